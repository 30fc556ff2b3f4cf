//! A process that gets no threads or no descriptors.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rendezvous::{FileStore, MemoryStore, Process};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::held::{TTL, world_over};
use super::worlds::{LONG, PATIENT};
use crate::error::ThreadRefused;
use crate::membership::pidfd::{PidFd, Watched};
use crate::membership::sim::{Rank, World, WorldConfig, lock};
use crate::membership::{Cause, GroupError, GroupEvent, GroupEventKind, GroupState};

/// The variable by which a test's child process knows the role that it has to take.
const ROLE: &str = "WV_TEST_LIMITS";

#[test]
fn a_rank_that_gets_no_thread_fails_and_costs_the_others_nothing() {
    let mut world = world_over(Arc::new(MemoryStore::new()), 4, 3);
    for name in ["group record 3", "group 3", "group watch 3"] {
        *lock(&world.wire.no_thread) = Some(name.to_owned());
        let error = world.join(3).unwrap_err();
        assert!(matches!(error, GroupError::Thread(_)), "{name}: {error}");
        world.until_called(3, name);
        for rank in world.ranks.values() {
            assert_eq!(rank.group().state(), GroupState::Serving, "{name}");
        }
    }
    *lock(&world.wire.no_thread) = None;
    world.join(3).unwrap();
    world.until_whole(3, "with all threads");
    world.check("no threads");
}

#[test]
fn a_rank_that_gets_no_thread_to_connect_says_so_and_comes_in_later() {
    let mut world = world_over(Arc::new(MemoryStore::new()), 4, 3);
    *lock(&world.wire.no_thread) = Some("group connect 3".to_owned());
    world.join(3).unwrap();
    let cause = std::io::ErrorKind::WouldBlock.into();
    let refused = GroupEventKind::Failed {
        error: ThreadRefused::new("group connect 3", &cause).to_string(),
    };
    let start = Instant::now();
    let mut events = Vec::new();
    while !events
        .iter()
        .any(|event: &GroupEvent| event.what == refused)
    {
        assert!(start.elapsed() < LONG, "{events:#?}");
        std::thread::sleep(Duration::from_millis(1));
        events.extend(world.ranks[&3].group().events());
    }
    let calls = |world: &World| lock(&world.ranks[&0].layer.done).len();
    let before = calls(&world);
    while calls(&world) < before + 3 {
        assert!(start.elapsed() < LONG, "calls stop beside the newcomer");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(world.ranks[&3].group().state(), GroupState::Joining);
    *lock(&world.wire.no_thread) = None;
    world.until_whole(3, "with all threads");
    world.check("no thread to connect");
}

#[test]
fn a_rank_in_peace_has_no_thread_that_connects() {
    let mut world = world_over(Arc::new(MemoryStore::new()), 4, 3);
    let connects = |world: &World| {
        let groups = world.ranks.values().map(Rank::group);
        groups.filter(|group| group.shared.lock().connects).count()
    };
    let until_none = |world: &World, what: &str| {
        let start = Instant::now();
        while connects(world) != 0 {
            assert!(
                start.elapsed() < LONG,
                "{what}: {} threads",
                connects(world)
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    assert_eq!(connects(&world), 0, "founders are connected");
    world.join(3).unwrap();
    world.until_whole(3, "a newcomer");
    until_none(&world, "behind a newcomer");
    drop(world.kill(3));
    world.until_whole(3, "a death");
    until_none(&world, "with a slot that stays empty");
    world.join(3).unwrap();
    world.until_whole(3, "the same slot");
    until_none(&world, "behind the second newcomer");
    world.check("threads that connect");
}

#[test]
#[ignore = "is started by the test below, in a process of its own"]
fn without_descriptors() {
    std::env::var_os(ROLE).expect("the test below starts this");
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "run").unwrap();
    let mut world = world_over(Arc::new(store), 3, 3);
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    let process = Process::of(other.id());
    let before = getrlimit(Resource::Nofile);
    let set = |current| {
        let maximum = before.maximum;
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    };
    // From now on this process cannot open any descriptor.
    set(Some(0));
    let seen = PidFd::open(&process);
    let ended = process.has_ended();
    std::thread::sleep(TTL * 7 / 4);
    world.until_called(3, "without descriptors");
    set(before.current);
    assert!(matches!(seen, Watched::Unknown), "{seen:?}");
    assert!(!ended, "a look that fails says nothing");
    other.kill().unwrap();
    other.wait().unwrap();
    for rank in world.ranks.values() {
        let events = rank.group().events();
        let lost = |what: &GroupEventKind| matches!(what, GroupEventKind::StoreLost { error } if error.contains("Too many open files"));
        assert!(events.iter().any(|event| lost(&event.what)), "{events:#?}");
    }
    world.check_undisturbed("there were no descriptors");
}

#[test]
#[ignore = "is started by the test below, in a process of its own"]
fn without_descriptors_at_the_begin() {
    std::env::var_os(ROLE).expect("the test below starts this");
    let mut others: Vec<_> = (0..3)
        .map(|_| Command::new("sleep").arg("600").spawn().unwrap())
        .collect();
    let processes: Vec<Process> = others.iter().map(|it| Process::of(it.id())).collect();
    let before = getrlimit(Resource::Nofile);
    let set = |current| {
        let maximum = before.maximum;
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    };
    set(Some(0));
    let config = WorldConfig {
        seen: false,
        process: Box::new(move |slot| processes[slot as usize].clone()),
        ..WorldConfig::new(3, PATIENT)
    };
    let mut world = World::new(Arc::new(MemoryStore::new()), config).unwrap();
    world.until_whole(3, "without descriptors");
    set(before.current);
    others[1].kill().unwrap();
    let ended = GroupEventKind::Suspected {
        rank: 1,
        cause: Cause::ProcessExit,
    };
    let start = Instant::now();
    let mut events = Vec::new();
    while !events.iter().any(|event: &GroupEvent| event.what == ended) {
        assert!(start.elapsed() < LONG, "{events:#?}");
        std::thread::sleep(Duration::from_millis(1));
        // One of the two other ranks may drop the rank before the second one looks.
        events.extend(world.ranks[&0].group().events());
        events.extend(world.ranks[&2].group().events());
    }
    for other in &mut others {
        other.kill().unwrap();
        other.wait().unwrap();
    }
}

#[test]
fn ranks_without_descriptors_report_that_and_take_no_rank_for_gone() {
    run_alone("without_descriptors");
}

#[test]
fn a_process_is_watched_as_soon_as_there_are_descriptors() {
    run_alone("without_descriptors_at_the_begin");
}

/// Runs a test of this file in a process of its own.
fn run_alone(name: &str) {
    let this = std::env::current_exe().unwrap();
    let name = format!("membership::scenarios::limits::{name}");
    let child = Command::new(this)
        .args([
            "--exact",
            &name,
            "--ignored",
            "--test-threads=1",
            "--nocapture",
        ])
        .env(ROLE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [child.stdout, child.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        child.status.success() && said.contains("1 passed"),
        "{said}"
    );
}
