//! Ranks of two processes of one machine: each stores into the other's memory, also when one has been killed and replaced.

// UNSAFETY: launches a test kernel on memory of the team.
#![expect(unsafe_code, reason = "launch of a test kernel")]

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use bytemuck::bytes_of;
use test_support::abi::ops::OpsSeveralParams;
use test_support::process::Process;
use test_support::stopped;
use warpverbs::abi::{DevicePtr, Status};
use warpverbs::gpu::Launch;
use warpverbs::team::{FileStore, RankSet, Store, TeamError};

use crate::rank::{PATIENCE, Rank, WORDS, setup, until};
use test_support::fleet::Hcas;

/// The variable with a process's store, generation, and whether it wants to be direct.
const SPEC: &str = "WV_TEST_RANK_PROCESS";
/// Words that one kernel puts: by two QPs, three times a warp.
const PUT: u32 = 2 * 3 * 32;

fn store(directory: &Path) -> Arc<dyn Store> {
    Arc::new(FileStore::open(directory, "run").unwrap())
}

/// Puts words from each QP's share of this rank's window into the other half of the peer's, by open paths.
fn put_by_path(rank: &Rank<'_>) {
    let gpu = &rank.gpu;
    let memory = gpu.alloc(256, 128).unwrap();
    gpu.write(memory.addr(), &[0xff; 256]).unwrap();
    let params = OpsSeveralParams {
        team: DevicePtr::new(rank.team.context_addr()),
        window: rank.window,
        dst_offset: 8 * u64::from(WORDS / 2),
        deadline_ns: 20_000_000_000,
        status: DevicePtr::new(memory.addr()),
        ended: DevicePtr::new(memory.addr() + 64),
        order: DevicePtr::new(memory.addr() + 128),
        peer: 1 - rank.number(),
        mode: 1,
        count: 3,
        ..OpsSeveralParams::default()
    };
    let launch = Launch::new("wv_test_ops_several", 1, 32);
    // SAFETY: tables, window and results live to the end of the kernel, which is waited for.
    let event = unsafe { gpu.launch(&launch, bytes_of(&params)) }.unwrap();
    gpu.wait(&event, PATIENCE).unwrap();
    assert_eq!(rank.read::<Status>(memory.addr(), 1)[0], Status::OK);
}

/// Nothing of the other's words is missing; then they are wiped out.
fn look(rank: &Rank<'_>) {
    let wrong = rank.wrong_words(1 - rank.number(), WORDS / 2, PUT);
    assert_eq!(wrong, Vec::<u32>::new());
    let at = rank.window.base + 8 * u64::from(WORDS / 2);
    rank.gpu.write(at, &[0; 8 * PUT as usize]).unwrap();
}

/// WQEs that the HCA of rank 0 has begun.
fn posted(hcas: &Hcas) -> u64 {
    hcas.of(0)[0].counters().wqes
}

/// The memory that a process shows others, by name.
fn shown(pid: u32) -> BTreeSet<PathBuf> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let target = |link: io::Result<fs::DirEntry>| fs::read_link(link.ok()?.path()).ok();
    let is_shown = |path: &PathBuf| path.to_string_lossy().contains("memfd:warpverbs-");
    links.filter_map(target).filter(is_shown).collect()
}

/// Returns how much of that is open here.
fn open(shown: &BTreeSet<PathBuf>) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let is_open = |path: &&PathBuf| maps.contains(&*path.to_string_lossy());
    shown.iter().filter(is_open).count()
}

/// Starts rank 1, another process.
fn start(directory: &Path, generation: u32, direct: bool) -> Process {
    let spec = format!("{generation} {direct} {}", directory.display());
    Process::start("processes::a_rank_process", (SPEC, &spec))
}

/// Orders a process to do something, and waits until it has.
fn does(process: &mut Process, what: &str) {
    assert_eq!(process.asked(what), what);
}

#[test]
#[ignore = "is started by the tests below"]
fn a_rank_process() {
    let spec = env::var(SPEC).expect("started by a test");
    let mut words = spec.splitn(3, ' ');
    let generation: u32 = words.next().unwrap().parse().unwrap();
    let direct = words.next().unwrap() == "true";
    let store = store(Path::new(words.next().unwrap()));
    let mut setup = setup(2);
    setup.team.modes.direct = direct;
    let hcas = Hcas::new(&setup);
    let config = match generation {
        1 => setup.of_rank(1),
        _ => setup.of_rank(1).joining(generation, RankSet::first(1)),
    };
    let rank = Rank::alone(config, hcas.of(1), store).unwrap();
    rank.team.hello().unwrap();
    println!("said: joined");
    for line in io::stdin().lines() {
        let line = line.unwrap();
        match line.as_str() {
            "offer" => {
                let absent = rank.team.connect_peer(0, 1, Duration::ZERO).unwrap_err();
                assert!(matches!(absent, TeamError::Absent { .. }), "{absent}");
            }
            "connect" => {
                rank.team.connect_peer(0, 1, PATIENCE).unwrap();
                rank.team.open_peer(0).unwrap();
            }
            "put" => {
                assert_eq!(rank.team.is_direct(0).unwrap(), direct);
                put_by_path(&rank);
            }
            "look" => look(&rank),
            other => panic!("{other}"),
        }
        println!("said: {line}");
    }
}

#[test]
fn ranks_of_two_processes_store_into_each_others_memory_if_both_want_to() {
    for (own, theirs) in [(true, true), (true, false), (false, true)] {
        let directory = tempfile::tempdir().unwrap();
        let mut other = start(directory.path(), 1, theirs);
        let mut setup = setup(2);
        setup.team.modes.direct = own;
        let hcas = Hcas::new(&setup);
        let rank = Rank::alone(setup.of_rank(0), hcas.of(0), store(directory.path())).unwrap();
        assert_eq!(other.says(), "joined");
        let direct = own && theirs;
        assert_eq!(rank.team.is_direct(1).unwrap(), direct);
        let shown = shown(other.id());
        assert_eq!((shown.len(), open(&shown)), (theirs.into(), direct.into()));
        put_by_path(&rank);
        does(&mut other, "look");
        if direct {
            does(&mut other, "put");
            look(&rank);
        }
        assert_eq!(posted(&hcas) == 0, direct, "{own} {theirs}");
        drop(rank);
        assert_eq!(open(&shown), 0);
        hcas.check();
    }
}

#[test]
fn a_killed_rank_is_replaced_after_its_memory_closes_and_its_process_ends() {
    let directory = tempfile::tempdir().unwrap();
    let mut first = start(directory.path(), 1, true);
    let mut setup = setup(2);
    setup.team.modes.direct = true;
    let hcas = Hcas::new(&setup);
    let rank = Rank::alone(setup.of_rank(0), hcas.of(0), store(directory.path())).unwrap();
    let team = &rank.team;
    assert_eq!(first.says(), "joined");
    put_by_path(&rank);
    does(&mut first, "look");
    assert!(team.is_direct(1).unwrap() && !team.release_peer(1).unwrap());
    let of_first = shown(first.id());
    assert_eq!((of_first.len(), open(&of_first)), (1, 1));

    // Frozen, and dropped: what was open is closed at once, and another may not come while it could wake up.
    stopped::stop(first.id());
    team.fail_peer(1).unwrap();
    assert!(team.release_peer(1).unwrap() && !team.is_direct(1).unwrap());
    assert_eq!(open(&of_first), 0);
    let mut second = start(directory.path(), 2, true);
    assert_eq!(second.says(), "joined");
    does(&mut second, "offer");
    for _ in 0..2 {
        let errors = [
            team.check_former(1, 2),
            team.connect_peer(1, 2, Duration::ZERO),
        ];
        for error in errors.map(Result::unwrap_err) {
            let TeamError::StillRuns {
                peer,
                generation,
                process,
            } = &error
            else {
                panic!("{error}");
            };
            assert_eq!((*peer, *generation), (1, 1));
            assert_eq!(*process, first.id().to_string());
        }
    }
    // It wakes up, and stores where it could: no rank has connected with its successor.
    stopped::resume(first.id());
    does(&mut first, "put");
    drop(first);
    team.check_former(1, 2).unwrap();
    until("both ends are connected", || {
        match team.connect_peer(1, 2, Duration::ZERO) {
            Ok(()) => true,
            Err(TeamError::Absent { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    });
    team.open_peer(1).unwrap();
    does(&mut second, "connect");
    let of_second = shown(second.id());
    assert!(team.is_direct(1).unwrap());
    assert_eq!((open(&of_first), open(&of_second)), (0, 1));
    put_by_path(&rank);
    does(&mut second, "look");
    look(&rank);
    does(&mut second, "put");
    look(&rank);
    assert_eq!(posted(&hcas), 0);

    // The name that a dead process has published is not used: its successor is reached by the HCA.
    drop(second);
    team.fail_peer(1).unwrap();
    let mut third = start(directory.path(), 3, true);
    assert_eq!(third.says(), "joined");
    does(&mut third, "offer");
    drop(third);
    team.connect_peer(1, 3, PATIENCE).unwrap();
    assert!(team.is_connected(1).unwrap() && !team.is_direct(1).unwrap());
    assert_eq!(open(&of_second), 0);
    drop(rank);
    hcas.check();
}
