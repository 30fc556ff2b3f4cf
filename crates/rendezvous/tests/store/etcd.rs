//! What only an etcd can get wrong: servers that are killed, stopped and started again, and ones that refuse.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rendezvous::{EtcdStore, Known, Lease, Patient, Store, StoreError, Timed, open_store};
use test_basics::etcd::{Etcd, impostor};
use test_basics::limits::{HANG, until};

/// Threads that count in one key, each its own part of the value, `3 0 12`, while servers come and go.
struct Counting {
    store: EtcdStore,
    end: AtomicBool,
}

const THREADS: usize = 3;

impl Counting {
    fn new(etcd: &Etcd) -> Self {
        let store = EtcdStore::open(&etcd.url(0, "", "count"), "run").unwrap();
        store.put("n", &text([0; THREADS])).unwrap();
        Self {
            store,
            end: AtomicBool::new(false),
        }
    }

    fn parts(&self) -> Result<[u32; THREADS], StoreError> {
        let value = String::from_utf8(self.store.try_get("n")?.unwrap()).unwrap();
        let parts: Vec<u32> = value.split(' ').map(|n| n.parse().unwrap()).collect();
        Ok(parts.try_into().unwrap())
    }

    /// Counts until the end; returns how many changes had the answer done, and how many had none.
    fn count(&self, mine: usize, etcd: usize) -> (u32, u32) {
        let (mut told, mut unanswered) = (0, 0);
        let mut least = 0;
        while !self.end.load(Ordering::Relaxed) {
            let Ok(mut parts) = self.parts() else {
                continue;
            };
            let before = parts[mine];
            // After an error, each change that was under way is either whole or was not made.
            assert!(
                (least..=told + unanswered).contains(&before),
                "etcd {etcd}, thread {mine}: {before} counted, {told} told, {unanswered} without an answer"
            );
            least = before;
            let old = text(parts);
            parts[mine] += 1;
            match self.store.compare_and_set("n", Some(&old), &text(parts)) {
                Ok(true) => {
                    told += 1;
                    least = before + 1;
                }
                // No other thread writes this part.
                Ok(false) => least = before,
                Err(StoreError::NoAnswer { .. }) => unanswered += 1,
                Err(StoreError::Unreachable { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        (told, unanswered)
    }

    /// Runs `disturb` while threads count, then checks the sum. `disturb` gets a wait for progress.
    fn under_load(self, members: usize, disturb: impl FnOnce(&dyn Fn(&str))) {
        let sums = thread::scope(|scope| {
            let counting = &self;
            let threads: Vec<_> = (0..THREADS)
                .map(|mine| scope.spawn(move || counting.count(mine, members)))
                .collect();
            disturb(&|when| counting.progress(when));
            self.end.store(true, Ordering::Relaxed);
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect::<Vec<_>>()
        });
        let parts = self.parts().unwrap();
        for (part, (told, unanswered)) in parts.into_iter().zip(&sums) {
            assert!(
                (*told..=told + unanswered).contains(&part),
                "{parts:?} {sums:?}"
            );
        }
        eprintln!("counted {parts:?}; told and without an answer {sums:?}");
    }

    /// Waits until something is counted that was not begun before.
    fn progress(&self, when: &str) {
        let start = Instant::now();
        let sum = || self.parts().map(|parts| parts.iter().sum::<u32>());
        let mut before = None;
        loop {
            assert!(start.elapsed() < HANG, "no progress {when}");
            match (sum(), before) {
                (Ok(now), None) => before = Some(now + 6),
                (Ok(now), Some(enough)) if now > enough => break,
                _ => thread::sleep(Duration::from_millis(5)),
            }
        }
        eprintln!("{when}: counted on after {:?}", start.elapsed());
    }
}

fn text(parts: [u32; THREADS]) -> Vec<u8> {
    parts.map(|part| part.to_string()).join(" ").into_bytes()
}

#[test]
fn a_server_killed_and_restarted_under_load_loses_and_repeats_nothing() {
    let Some(mut etcd) = Etcd::start(1) else {
        return;
    };
    Counting::new(&etcd).under_load(1, |progress| {
        for round in 0..3 {
            progress("before a kill");
            etcd.kill(0);
            thread::sleep(Duration::from_millis(100 * round));
            etcd.start_member(0);
        }
        progress("after the last");
    });
}

#[test]
fn a_cluster_that_loses_a_member_and_then_its_leader_serves_on() {
    let Some(mut etcd) = Etcd::start(3) else {
        return;
    };
    Counting::new(&etcd).under_load(3, |progress| {
        let follower = (etcd.leader() + 1) % 3;
        etcd.kill(follower);
        progress("without a follower");
        etcd.start_member(follower);
        assert!(etcd.serves(follower));
        let leader = etcd.leader();
        etcd.kill(leader);
        progress("without the leader");
        etcd.start_member(leader);
        assert!(etcd.serves(leader));
        progress("with all again");
    });
}

/// Sets `k`, however often no member answers.
fn put(store: &EtcdStore, value: &[u8]) {
    until("the value is set", || match store.put("k", value) {
        Ok(()) => true,
        Err(StoreError::NoAnswer { .. } | StoreError::Unreachable { .. }) => false,
        Err(error) => panic!("{error}"),
    });
}

#[test]
fn a_stopped_member_is_passed_over_and_never_replaces_anything_newer() {
    let Some(etcd) = Etcd::start(3) else {
        return;
    };
    // The store's first member is stopped in the middle of writes, and wakes up when others have written.
    for round in 0..3 {
        let stopped = (etcd.leader() + round) % 3;
        // The member that was stopped before may just have lost its place as the leader: the others elect one.
        let mut store = None;
        until("a majority answers", || {
            store = EtcdStore::open(&etcd.url(stopped, "", "p"), "run").ok();
            store.is_some()
        });
        let store = store.unwrap();
        put(&store, b"before");
        etcd.stop(stopped);
        put(&store, b"during");
        put(&store, b"newest");
        etcd.resume(stopped);
        // Time for the requests that it took before it was stopped.
        thread::sleep(Duration::from_millis(300));
        let mut found = None;
        until("the store answers", || {
            found = store.try_get("k").ok();
            found.is_some()
        });
        assert_eq!(found.unwrap().unwrap(), b"newest");
    }
}

#[test]
fn a_lost_etcd_fails_calls_clearly_and_heals_with_leases_and_watches() {
    let Some(mut etcd) = Etcd::start(1) else {
        return;
    };
    let full = std::env::var_os("WV_TEST_FULL").is_some();
    let gone = Duration::from_secs(if full { 30 } else { 3 });
    let store = open_store(&etcd.url(0, "", "p"), "run").unwrap();
    store.put("record", b"1").unwrap();
    let ttl = Duration::from_secs(1);
    let lease = Lease::take(&store, "member", b"me", ttl).unwrap().unwrap();
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let start = Instant::now();
            loop {
                match store.watch("record", Some(b"1"), HANG) {
                    Ok(value) => return value,
                    Err(StoreError::Unreachable { .. }) if start.elapsed() < 2 * HANG => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        // The watcher watches by now, as a rule.
        thread::sleep(Duration::from_millis(200));
        etcd.kill(0);
        let start = Instant::now();
        while full && start.elapsed() < gone {
            let asked = Instant::now();
            let error = store
                .compare_and_set("record", Some(b"1"), b"2")
                .unwrap_err();
            assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
            eprintln!("refused after {:?}", asked.elapsed());
        }
        thread::sleep(gone.saturating_sub(start.elapsed()));
        assert!(!lease.is_held() && !lease.is_gone(), "its state is unknown");
        etcd.start_member(0);
        assert!(etcd.serves(0));
        assert!(store.compare_and_set("record", Some(b"1"), b"2").unwrap());
        assert_eq!(watcher.join().unwrap().unwrap(), b"2");
    });
    until("the lease heals", || {
        let key = store.try_get("member").unwrap();
        lease.is_held() && key.as_deref() == Some(b"me")
    });
}

#[test]
fn a_change_of_another_process_wakes_a_waiter_before_its_clock_does() {
    let Some(etcd) = Etcd::start(1) else {
        return;
    };
    let [waiting, writing] =
        [(); 2].map(|()| EtcdStore::open(&etcd.url(0, "", "p"), "run").unwrap());
    // Opens the watch.
    waiting
        .watch("k", None, Duration::from_millis(500))
        .unwrap();
    let mut round = 0u32;
    let mut woken_after = || {
        round += 1;
        let value = round.to_string().into_bytes();
        let known = waiting.try_get("k").unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let value = waiting.watch("k", known.as_deref(), HANG).unwrap();
                (value, Instant::now())
            });
            thread::sleep(Duration::from_millis(20));
            writing.put("k", &value).unwrap();
            let written = Instant::now();
            let (seen, at) = waiter.join().unwrap();
            assert_eq!(seen, Some(value));
            at.saturating_duration_since(written)
        })
    };
    let mut times = [(); 20].map(|()| woken_after());
    times.sort_unstable();
    eprintln!(
        "woken after {:?} (median), {:?} at most",
        times[10], times[19]
    );
    // Its clock wakes it half a second after it began to wait. On a machine that is busy it is late too, but not each time.
    let mut first = times[0];
    until("it is woken before its clock", || {
        let by_the_clock = first >= Duration::from_millis(250);
        if by_the_clock {
            first = woken_after();
        }
        !by_the_clock
    });
}

#[test]
fn keys_of_another_run_are_refused_and_left_as_they_were() {
    let Some(etcd) = Etcd::start(1) else {
        return;
    };
    let url = etcd.url(0, "", "team/7");
    let monday = open_store(&url, "monday").unwrap();
    monday.put("k", b"kept").unwrap();
    assert!(open_store(&url, "monday").is_ok(), "other ranks of the run");
    let error = open_store(&url, "tuesday").unwrap_err();
    assert!(matches!(error, StoreError::OtherRun { .. }), "{error}");
    let error = error.to_string();
    assert!(
        error.starts_with("the store team/7 of etcd 127.0.0.1:")
            && error.ends_with(
                "belongs to run 'monday', not to run 'tuesday'; each run needs an empty one"
            ),
        "{error}"
    );
    assert_eq!(monday.try_get("k").unwrap().unwrap(), b"kept");
    let other = open_store(&etcd.url(0, "", "team/77"), "tuesday").unwrap();
    assert_eq!(other.try_get("k").unwrap(), None);
    assert_eq!(monday.list("k").unwrap(), [""; 0]);
}

#[test]
fn wrong_credentials_are_refused_by_name_and_right_ones_outlive_a_restart() {
    let Some(mut etcd) = Etcd::start(1) else {
        return;
    };
    etcd.require_password("p@ss");
    for (user, expected) in [
        ("", "user name is empty: its address names none"),
        (
            "root:secret@",
            "authentication failed, invalid user ID or password",
        ),
        (
            "nobody:p%40ss@",
            "authentication failed, invalid user ID or password",
        ),
    ] {
        let error = open_store(&etcd.url(0, user, "p"), "run").unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
        let error = error.to_string();
        assert!(
            error.contains(expected) && !error.contains("secret"),
            "{error}"
        );
    }
    let store = open_store(&etcd.url(0, "root:p%40ss@", "p"), "run").unwrap();
    store.put("k", b"1").unwrap();
    store.wait_for_change(Duration::from_millis(50));
    // The server forgets its tokens.
    etcd.kill(0);
    etcd.start_member(0);
    assert!(etcd.serves(0));
    assert!(store.compare_and_set("k", Some(b"1"), b"2").unwrap());
    thread::scope(|scope| {
        let watcher = scope.spawn(|| store.watch("k", Some(b"2"), HANG));
        // It watches by now, as a rule; it gets the value in any case.
        thread::sleep(Duration::from_millis(50));
        store.put("k", b"3").unwrap();
        assert_eq!(watcher.join().unwrap().unwrap().unwrap(), b"3");
    });
}

#[test]
fn an_address_where_no_etcd_answers_is_a_clear_error() {
    let garbage = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let missing = "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot found";
    let cases: Vec<(String, &str)> = vec![
        (
            "127.0.0.1:1".into(),
            "no member of the etcd 127.0.0.1:1 could be asked within",
        ),
        ("127.0.0.1:1,127.0.0.1:2".into(), "could be asked within"),
        ("no-such-host.invalid:2379".into(), "could be asked within"),
        (impostor(None), "could be asked within"),
        (impostor(Some("")), "could be asked within"),
        (impostor(Some(garbage)), "an answer that is none of etcd's"),
        (
            impostor(Some(missing)),
            "404 Not Found: no etcd of 3.4 or later",
        ),
    ];
    let cases: Arc<[_]> = cases.into();
    thread::scope(|scope| {
        for (address, expected) in cases.iter() {
            scope.spawn(move || {
                let start = Instant::now();
                let error = open_store(&format!("etcd://{address}/p"), "run").unwrap_err();
                eprintln!("{:.1?}: {error}", start.elapsed());
                assert!(error.to_string().contains(expected), "{error}");
            });
        }
    });
}

/// An etcd that answers questions and is silent when it gets a change; how many changes it got.
fn silent_to_changes() -> (String, Arc<AtomicU32>) {
    answers_changes_with(None)
}

/// As `silent_to_changes`, that answers changes with this, if anything.
fn answers_changes_with(answer_to_changes: Option<String>) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let changes = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&changes);
    // It lives as long as the test program.
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            // A request is one JSON object after its headers, and ends with it.
            while !request.ends_with(b"}") {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(bytes) => request.extend_from_slice(&buffer[..bytes]),
                }
            }
            if request.starts_with(b"POST /v3/kv/txn") {
                counted.fetch_add(1, Ordering::SeqCst);
                if let Some(answer) = &answer_to_changes {
                    let _ = stream.write_all(answer.as_bytes());
                }
                kept.push(stream);
                continue;
            }
            // The run, `run` in base64.
            let body = r#"{"header":{"revision":"7"},"kvs":[{"key":"cC8ucnVu","value":"cnVu","mod_revision":"5"}]}"#;
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (address, changes)
}

#[test]
fn an_unanswered_change_is_sent_once_and_ends_at_its_bound_as_unknown() {
    let (address, changes) = silent_to_changes();
    let store = EtcdStore::open(&format!("etcd://{address}/p"), "run").unwrap();
    let bound = Duration::from_millis(500);
    let store = store.bounded(bound);
    let put = Timed::of(|| store.put("k", b"1"));
    let error = put.result.unwrap_err();
    assert_eq!(error.known(), Known::Unknown, "{error}");
    assert!(
        matches!(error, StoreError::NoAnswer { seen: 5, waited, .. } if waited <= put.took),
        "{error:?}"
    );
    assert!(put.took >= bound / 2, "{:?}", put.took);
    assert_eq!(changes.load(Ordering::SeqCst), 1);
    let removed = store.remove_below("q");
    assert_eq!(removed.unwrap(), 0, "there is nothing, as far as it says");
    assert_eq!(changes.load(Ordering::SeqCst), 1);
}

#[test]
fn a_balancer_without_an_etcd_leaves_a_change_unknown() {
    for status in [
        "502 Bad Gateway",
        "503 Service Unavailable",
        "504 Gateway Timeout",
    ] {
        let answer =
            format!("HTTP/1.1 {status}\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>");
        let (address, changes) = answers_changes_with(Some(answer.clone()));
        let store = EtcdStore::open(&format!("etcd://{address}/p"), "run").unwrap();
        let error = store.put("k", b"1").unwrap_err();
        assert_eq!(error.known(), Known::Unknown, "{error}");
        assert!(error.is_unanswered(), "{error}");
        assert!(error.to_string().contains(status), "{error}");
        assert_eq!(changes.load(Ordering::SeqCst), 1);
        let answer: &'static str = answer.leak();
        let never = open_store(&format!("etcd://{}/p", impostor(Some(answer))), "run");
        let error = never.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        assert!(error.to_string().contains(status), "{error}");
    }
}

#[test]
fn calls_to_a_stopped_etcd_end_at_their_bound_and_reads_are_not_unknown() {
    let Some(etcd) = Etcd::start(1) else {
        return;
    };
    let store = EtcdStore::open(&etcd.url(0, "", "p"), "run").unwrap();
    store.put("k", b"1").unwrap();
    let bound = Duration::from_millis(300);
    let store = store.bounded(bound);
    etcd.stop(0);
    let calls = [
        Timed::of(|| store.try_get("k").map(drop)),
        Timed::of(|| store.changed_since(&["k"], Some("p"), 0).map(drop)),
        Timed::of(|| store.count("p").map(drop)),
        Timed::of(|| store.list("p").map(drop)),
        Timed::of(|| store.put("k", b"2")),
        Timed::of(|| store.wait_for_key("k", 0, bound).map(drop)),
    ];
    etcd.resume(0);
    for call in calls {
        let error = call.result.unwrap_err();
        // The change was not sent: the look before it had no answer.
        assert_eq!(error.known(), Known::NotDone, "{error}");
        assert!(error.is_unanswered(), "{error}");
        eprintln!("{:?} of {bound:?}: {error}", call.took);
    }
    until("it answers again", || store.try_get("k").is_ok());
    assert_eq!(store.try_get("k").unwrap().unwrap(), b"1");
}

#[test]
fn a_lost_etcd_fails_a_call_at_once_and_a_patient_call_succeeds_later() {
    let Some(mut etcd) = Etcd::start(1) else {
        return;
    };
    let store = open_store(&etcd.url(0, "", "p"), "run").unwrap();
    etcd.kill(0);
    let error = store.put("k", b"1").unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    let patient = Patient::new(store, HANG);
    thread::scope(|scope| {
        let put = scope.spawn(|| patient.put("k", b"1"));
        etcd.start_member(0);
        put.join().unwrap().unwrap();
    });
    assert_eq!(patient.try_get("k").unwrap().unwrap(), b"1");
}
