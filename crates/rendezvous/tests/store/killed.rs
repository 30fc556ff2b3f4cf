//! Processes that are killed or stopped in the middle of anything.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rendezvous::{FileStore, Lease, Life, Process, Store};
use test_basics::limits::{HANG, until};
use test_basics::stopped;

use crate::conformance::increment;
use crate::growth::check;

const DIRECTORY: &str = "WV_TEST_STORE_DIRECTORY";
const ROLE: &str = "WV_TEST_STORE_ROLE";
/// A lease that no pause of the machine ends.
const LASTING: &str = "hold 600";
/// One that ends while its process stands still.
const SHORT: &str = "hold 3";

/// What a process of the tests below does.
#[test]
#[ignore = "is started by the tests below"]
fn worker() {
    let directory = std::env::var_os(DIRECTORY).expect("a test below starts this");
    let store = FileStore::open(Path::new(&directory), "run").unwrap();
    let role = std::env::var(ROLE).unwrap();
    match role.split_once(' ').unwrap_or((&role, "")) {
        ("count", id) => {
            let mut done = 0u32;
            // The parent ends it.
            loop {
                increment(&store, "n");
                done += 1;
                store
                    .put(&format!("done/{id}"), done.to_string().as_bytes())
                    .unwrap();
            }
        }
        ("read", id) => {
            let (mut newest, mut since) = (0, 0);
            loop {
                let found = number(&store, "n");
                let looked = store.changed_since(&["n"], None, since).unwrap();
                let changed = looked.entries.first().map(|entry| {
                    String::from_utf8_lossy(&entry.value)
                        .parse::<u32>()
                        .unwrap()
                });
                // A look comes after what was read before it, and misses no change.
                let went_back = found < newest || changed.is_some_and(|changed| changed < found);
                if went_back || (changed.is_none() && found != newest) {
                    let what = format!("{newest}, then {found}, then {changed:?}");
                    store.put(&format!("back/{id}"), what.as_bytes()).unwrap();
                }
                newest = changed.unwrap_or(found);
                since = looked.revision;
                store
                    .put(&format!("read/{id}"), newest.to_string().as_bytes())
                    .unwrap();
            }
        }
        ("hold", seconds) => {
            let ttl = Duration::from_secs(seconds.parse().unwrap());
            let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(store);
            let lease = Lease::take(&store, "seat", b"child", ttl);
            let lease = lease.unwrap().unwrap();
            while lease.is_held() {
                thread::sleep(Duration::from_millis(10));
            }
            store.put("lost", b"yes").unwrap();
        }
        ("blind", pid) => {
            let process = Process::of(pid.parse().unwrap());
            assert_eq!(process.life(), Life::Runs);
            // All descriptors that this process may have.
            let mut open = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                open.push(file);
            }
            let blind = process.life();
            let late = Process::of(pid.parse().unwrap()).life();
            drop(open);
            let found = format!("{blind:?} {late:?} {:?}", process.life());
            store.put("found", found.as_bytes()).unwrap();
        }
        other => panic!("{other:?}"),
    }
}

/// A worker, ended with the test.
struct Worker(Child);

impl Worker {
    fn start(directory: &Path, role: &str) -> Self {
        // It ends with the test, however that ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "killed::worker", "--ignored"])
            .env(DIRECTORY, directory)
            .env(ROLE, role)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Stops it, wherever it is.
    fn stop(&self) {
        stopped::stop(self.0.id());
    }

    fn resume(&self) {
        stopped::resume(self.0.id());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn number(store: &dyn Store, key: &str) -> u32 {
    let value = store.try_get(key).unwrap();
    value.map_or(0, |text| String::from_utf8(text).unwrap().parse().unwrap())
}

#[test]
fn processes_killed_at_any_point_leave_keys_whole_and_hold_up_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "run").unwrap();
    store.put("n", b"0").unwrap();
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let rounds = 12;
    for round in 0..rounds {
        let workers: Vec<Worker> = (0..2)
            .map(|i| Worker::start(directory.path(), &format!("count {round}-{i}")))
            .collect();
        let before = number(&store, "n");
        until("both count", || number(&store, "n") >= before + 5);
        thread::sleep(Duration::from_micros(random.u64(..20_000)));
        drop(workers);
    }
    let done: u32 = store
        .list("done")
        .unwrap()
        .iter()
        .map(|id| number(&store, &format!("done/{id}")))
        .sum();
    let counted = number(&store, "n");
    // Each of the killed may have counted once more than it could tell.
    assert!(
        (done..=done + 2 * rounds).contains(&counted),
        "seed {seed}: {counted} counted, {done} told"
    );
    increment(&store, "n");
    assert_eq!(number(&store, "n"), counted + 1);
}

#[test]
fn a_stopped_process_holds_up_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "run").unwrap();
    store.put("n", b"0").unwrap();
    let worker = Worker::start(directory.path(), "count x");
    for _ in 0..20 {
        let before = number(&store, "n");
        until("the other counts", || number(&store, "n") > before);
        worker.stop();
        // These end although the other stands still.
        increment(&store, "n");
        store.put("other", b"1").unwrap();
        worker.resume();
    }
}

#[test]
fn stopped_and_killed_writers_leave_few_files_and_readers_never_go_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "run").unwrap();
    store.put("n", b"0").unwrap();
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut started, mut killed, mut own) = (0, 0, 0);
    let mut start = |role: &str| {
        started += 1;
        Worker::start(directory.path(), &format!("{role} {started}"))
    };
    let mut writers: Vec<Worker> = (0..3).map(|_| start("count")).collect();
    let mut readers: Vec<Worker> = (0..2).map(|_| start("read")).collect();
    for _ in 0..40 {
        let before = number(&store, "n");
        until("some count", || number(&store, "n") > before);
        thread::sleep(Duration::from_micros(random.u64(..3_000)));
        let workers = || writers.iter().chain(&readers);
        let stopped: Vec<&Worker> = workers().filter(|_| random.bool()).collect();
        stopped.iter().for_each(|worker| worker.stop());
        // Many versions of what they have found.
        for _ in 0..random.u32(..6) {
            increment(&store, "n");
            own += 1;
        }
        // Those that go on are stopped at another point, so that no worker changes anything while files are counted.
        workers().for_each(Worker::stop);
        check(directory.path());
        workers().for_each(|worker| worker.resume());
        match random.u32(..4) {
            0 => {
                // First it is killed.
                drop(writers.swap_remove(random.usize(..writers.len())));
                killed += 1;
                writers.push(start("count"));
            }
            1 => {
                drop(readers.swap_remove(random.usize(..readers.len())));
                readers.push(start("read"));
            }
            _ => {}
        }
    }
    let counted = number(&store, "n");
    until("readers read on", || newest_read(&store) >= counted);
    killed += u32::try_from(writers.len()).unwrap();
    drop((writers, readers));
    assert_eq!(store.list("back").unwrap(), [""; 0], "seed {seed}");
    let told: u32 = store
        .list("done")
        .unwrap()
        .iter()
        .map(|id| number(&store, &format!("done/{id}")))
        .sum();
    let counted = number(&store, "n");
    // Each of the killed may have counted once more than it could tell.
    assert!(
        (told + own..=told + own + killed).contains(&counted),
        "seed {seed}: {counted} counted, {told} told, {own} own, {killed} killed"
    );
    check(directory.path());
}

/// Returns the newest version that any reader has reported.
fn newest_read(store: &dyn Store) -> u32 {
    let readers = store.list("read").unwrap();
    let told = readers
        .iter()
        .map(|id| number(store, &format!("read/{id}")));
    told.max().unwrap_or(0)
}

#[test]
fn the_lease_of_a_killed_process_is_gone_before_its_time_to_live() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "run").unwrap();
    let worker = Worker::start(directory.path(), LASTING);
    store.get("seat", Instant::now() + HANG).unwrap();
    drop(worker);
    assert_eq!(store.try_get("seat").unwrap(), None);
    assert!(
        store
            .take_lease("seat", b"next", Duration::from_secs(1))
            .unwrap()
            .is_some()
    );
}

#[test]
fn a_process_that_is_stopped_too_long_loses_its_lease_and_learns_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "run").unwrap();
    let worker = Worker::start(directory.path(), SHORT);
    store.get("seat", Instant::now() + HANG).unwrap();
    worker.stop();
    assert_eq!(store.watch("seat", Some(b"child"), HANG).unwrap(), None);
    assert!(
        store
            .take_lease("seat", b"next", 2 * HANG)
            .unwrap()
            .is_some()
    );
    worker.resume();
    assert_eq!(store.get("lost", Instant::now() + HANG).unwrap(), b"yes");
    assert_eq!(store.try_get("seat").unwrap().unwrap(), b"next");
}

#[test]
fn a_process_without_descriptors_never_reports_that_another_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(directory.path(), "run").unwrap();
    let role = format!("blind {}", std::process::id());
    let _worker = Worker::start(directory.path(), &role);
    let found = store.get("found", Instant::now() + HANG).unwrap();
    assert_eq!(String::from_utf8_lossy(&found), "Unknown Unknown Runs");
}
