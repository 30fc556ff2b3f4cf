//! Counters: WRITEs that count at the receiver, after their bytes, by the NIC and by copies.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use test_basics::limits::until;
use test_support::limits::HANG;
use warpverbs::internal::engine::{
    EngineConfig, EngineError, EnginePath, Kind, MOST_COUNTERS, Operation, OperationStatus,
    Options, Outcome, Peer, Remote, Rights,
};

use crate::drivers::keeps_order;
use crate::rig::{End, SHORT, config, connect, listens, pair};

const PAGE: u64 = 4096;
const PAGE_LENGTH: usize = 4096;
const PATHS: [EnginePath; 2] = [EnginePath::Nic, EnginePath::Local];
/// Transport retry counter exceeded.
const NO_ANSWER: u8 = 0x15;

fn counting(counter: u32) -> Options<'static> {
    Options::default().with_counter(Some(counter))
}

fn write(local: u64, remote: u64, bytes: u64) -> Operation {
    Operation {
        kind: Kind::Write,
        local,
        remote,
        bytes,
    }
}

/// Pages of `a` to the same of `b`.
fn pages(a: &End, b: &End, numbers: std::ops::Range<u64>) -> Vec<Operation> {
    let page = |number| write(a.at(number * PAGE), b.at(number * PAGE), PAGE);
    numbers.map(page).collect()
}

fn pair_of(own: EngineConfig, bytes: u64) -> (End, End, [Peer; 2]) {
    let path = own.engine_path;
    let a = End::new(own, bytes);
    let b = End::new(config("b").with_engine_path(path), bytes);
    let peers = connect(&a, &b);
    (a, b, peers)
}

#[test]
pub(crate) fn each_operation_counts_once_behind_its_bytes_asked_for_or_not() {
    for path in PATHS {
        let (a, b, [to_b, to_a]) = pair_of(config("a").with_engine_path(path), 64 * PAGE);
        let expected = a.fill(1);
        let id = to_b.submit(&pages(&a, &b, 0..64), &counting(7)).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        // It has come before anybody has asked.
        let counter = b.engine.counter(7).unwrap();
        assert_eq!(counter.wait(64, HANG), Some(64), "{path}");
        assert!(b.bytes() == expected);
        // Other transfers do not count, at either end; nor does a WRITE without a counter.
        let id = to_b.submit(&pages(&a, &b, 0..64), &Options::default());
        assert_eq!(a.concluded(id.unwrap()), Outcome::Done);
        let id = to_a.write(b.at(0), a.at(0), PAGE).unwrap();
        assert_eq!(b.concluded(id), Outcome::Done);
        assert_eq!(a.engine.counter(7).unwrap().read(), 0);
        assert_eq!(b.engine.counter(6).unwrap().read(), 0);
        assert_eq!(
            (counter.read(), counter.reset(), counter.read()),
            (64, 64, 0)
        );
    }
}

#[test]
pub(crate) fn what_was_planned_once_counts_at_each_post() {
    for path in PATHS {
        let (a, b, [to_b, _]) = pair_of(config("a").with_engine_path(path), 16 * PAGE);
        let prepared = to_b.prepare_counting(&pages(&a, &b, 0..16)).unwrap();
        let last = MOST_COUNTERS - 1;
        for (round, counter) in [0, last, 0].into_iter().enumerate() {
            let expected = a.fill(round as u64);
            let id = to_b.post(&prepared, &counting(counter)).unwrap();
            assert_eq!(a.concluded(id), Outcome::Done);
            let count = b.engine.counter(counter).unwrap();
            let due = if round == 2 { 32 } else { 16 };
            assert_eq!(count.wait(due, HANG), Some(due), "{path} {round}");
            assert!(b.bytes() == expected);
        }
        // Posted without it does not.
        let id = to_b.post(&prepared, &Options::default()).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        let all = [0, last].map(|id| b.engine.counter(id).unwrap().read());
        assert_eq!(all, [32, 16]);
    }
}

/// A counter that says n has n pages. By one QP of a NIC that keeps their order, it has the first n.
#[test]
pub(crate) fn a_counter_never_says_more_than_what_is_there() {
    const ROUNDS: u64 = 1000;
    let byte = |round: u64| u8::try_from(round % 251).unwrap() + 1;
    for path in PATHS {
        let own = config("a").with_engine_path(path).with_qps(1);
        let (a, b, [to_b, _]) = pair_of(own, 16 * PAGE);
        let (memory, counter) = (b.memory.clone(), b.engine.counter(0).unwrap());
        let first_come_first = keeps_order();
        let (tell, told) = channel();
        let receiver = thread::spawn(move || {
            for round in 0..ROUNDS {
                let mut seen = 0;
                while seen < 16 {
                    let said = counter.wait(16 * round + seen + 1, HANG);
                    let now = said.expect("they come") - 16 * round;
                    let is_there = |page: &u64| {
                        let mut found = [0; PAGE_LENGTH];
                        memory.read(page * PAGE, &mut found).unwrap();
                        found == [byte(round); PAGE_LENGTH]
                    };
                    if first_come_first {
                        let missing = (seen..now).find(|page| !is_there(page));
                        assert_eq!(missing, None, "{path} {round}: page of {now}");
                    }
                    let there = (0..16).filter(is_there).count() as u64;
                    assert!(there >= now, "{path} {round}: {there} pages of {now}");
                    seen = now;
                }
                tell.send(()).unwrap();
            }
        });
        let operations = pages(&a, &b, 0..16);
        for round in 0..ROUNDS {
            a.memory.write(0, &[byte(round); 16 * PAGE_LENGTH]).unwrap();
            let id = to_b.submit(&operations, &counting(0)).unwrap();
            assert_eq!(a.concluded(id), Outcome::Done);
            a.engine.release(id).unwrap();
            told.recv_timeout(HANG).expect("all of the round is there");
        }
        receiver.join().unwrap();
    }
}

/// More WRITEs than receive WQEs, from two peers at once, while the receiver's one worker sends too.
#[test]
pub(crate) fn many_small_ones_from_two_peers_are_counted_each() {
    const EACH: u64 = 20_000;
    const LENGTH: usize = 20_000;
    let (a, b, [to_b, to_a]) = pair(1 << 20);
    let c = End::new(config("c"), 4096);
    let address = listens(&b.engine).to_string();
    let c_to_b = c.engine.connect(&address).unwrap();
    let descriptor = b.engine.descriptor(b.region).unwrap();
    c_to_b.import(&descriptor).unwrap();
    let many = |from: &End, to: &End| vec![write(from.at(0), to.at(8), 8); LENGTH];
    let ids = [
        (&a, to_b.submit(&many(&a, &b), &counting(1)).unwrap()),
        (&c, c_to_b.submit(&many(&c, &b), &counting(1)).unwrap()),
        (&b, to_a.submit(&many(&b, &a), &counting(1)).unwrap()),
        (&b, to_a.write(b.at(0), a.at(0), 1 << 20).unwrap()),
    ];
    let counter = |end: &End| end.engine.counter(1).unwrap();
    assert_eq!(counter(&b).wait(2 * EACH, HANG), Some(2 * EACH));
    assert_eq!(counter(&a).wait(EACH, HANG), Some(EACH));
    for (end, id) in ids {
        assert_eq!(end.concluded(id), Outcome::Done);
    }
    assert_eq!((counter(&a).read(), counter(&b).read()), (EACH, 2 * EACH));
}

/// The peer executes the WQE, and the sender gets no answer. So the sender cannot know that it landed, and reports a failure.
#[test]
fn one_that_lands_without_an_answer_has_failed_and_is_not_posted_again() {
    for (workers, at) in [(1, 1), (1, 5), (2, 3)] {
        let (a, b, [to_b, to_a]) = pair_of(config("a").with_workers(workers), 64 * PAGE);
        let fault = format!("cqe=wqe#{at}:syndrome={NO_ANSWER:#x}");
        a.hca.set_faults(&fault.parse().unwrap());
        let id = to_b.submit(&pages(&a, &b, 0..64), &counting(2)).unwrap();
        assert_eq!(a.concluded(id), Outcome::Failed);
        let report = a.engine.report(id).unwrap();
        assert_eq!(report.remote, Remote::Quiet);
        let first = report.first.and_then(|first| first.cause).unwrap();
        assert_eq!(first.syndrome, NO_ANSWER);
        let count = |status| report.operations.iter().filter(|it| **it == status).count() as u64;
        let (done, failed) = (count(OperationStatus::Done), count(OperationStatus::Failed));
        // One of those that failed has landed. The workers of the receiver reap in their own time.
        let counter = b.engine.counter(2).unwrap();
        let counts = done + 1..=done + failed;
        let said = counter.wait(*counts.start(), HANG).unwrap();
        assert!(
            counts.contains(&said),
            "{said}, with {done} done and {failed} failed"
        );
        for peer in [&to_b, &to_a] {
            until("the pair is used again", || peer.resets() == 1);
        }
        let id = to_b.submit(&pages(&a, &b, 0..64), &counting(2)).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        let said = counter.wait(counts.start() + 64, HANG).unwrap();
        assert!(
            counts.contains(&(said - 64)),
            "{said}, with {done} done, {failed} failed and 64 more"
        );
    }
}

#[test]
pub(crate) fn packets_that_are_lost_change_no_count() {
    let hca = || softhca::HcaConfig {
        loopback: false,
        ..softhca::HcaConfig::default()
    };
    let a = End::on(hca(), config("a"), 64 * PAGE);
    let b = End::on(hca(), config("b"), 64 * PAGE);
    let [to_b, _] = connect(&a, &b);
    let counter = b.engine.counter(3).unwrap();
    for round in 0..8u64 {
        for end in [&a, &b] {
            end.hca
                .set_faults(&format!("drop=2%,seed={round}").parse().unwrap());
        }
        let expected = a.fill(round);
        let id = to_b.submit(&pages(&a, &b, 0..64), &counting(3)).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done, "{round}");
        assert_eq!(counter.wait(64 * (round + 1), HANG), Some(64 * (round + 1)));
        assert!(b.bytes() == expected, "{round}");
    }
}

#[test]
pub(crate) fn a_counter_goes_on_with_the_same_life_of_a_peer_and_then_is_final() {
    for path in PATHS {
        let own = || {
            let own = config("a").with_engine_path(path);
            own.with_drain(Duration::ZERO)
        };
        let (a, b, [first, _]) = pair_of(own(), 64 * PAGE);
        let counter = b.engine.counter(4).unwrap();
        let address = listens(&b.engine).to_string();
        let mut peer = first;
        for round in 1..=3 {
            let id = peer.submit(&pages(&a, &b, 0..64), &counting(4)).unwrap();
            assert_eq!(a.concluded(id), Outcome::Done);
            assert_eq!(counter.wait(64 * round, HANG), Some(64 * round), "{path}");
            peer.break_off();
            let gone = b
                .engine
                .peer_gone(HANG)
                .expect("it was the last connection");
            assert_eq!(gone.name, "a");
            peer = a.engine.connect(&address).unwrap();
            let _there = b.engine.accept(HANG).expect("it has connected again");
        }
        // A life that ends under way: after the word of that nothing of it comes.
        let many = pages(&a, &b, 0..64).repeat(100);
        let _cut_off = peer.submit(&many, &counting(4)).unwrap();
        drop(a);
        b.engine.peer_gone(HANG).expect("it is gone");
        let last = counter.reset();
        assert!((192..=192 + 6400).contains(&last), "{last}");
        let a = End::new(own(), 64 * PAGE);
        let [peer, _] = connect(&a, &b);
        assert_eq!(counter.read(), 0, "{path}");
        let id = peer.submit(&pages(&a, &b, 0..64), &counting(4)).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        assert_eq!(counter.wait(64, HANG), Some(64));
        assert_eq!(counter.read(), 64);
    }
}

#[test]
pub(crate) fn behind_a_cancel_all_is_counted_that_ever_is() {
    for path in PATHS {
        let own = config("a").with_engine_path(path);
        let (a, b, [to_b, _]) = pair_of(own.with_grace(Duration::ZERO), 64 * PAGE);
        let counter = b.engine.counter(5).unwrap();
        let many = pages(&a, &b, 0..64).repeat(20);
        let mut sum = 0;
        for round in 0..10 {
            let id = to_b.submit(&many, &counting(5)).unwrap();
            assert!(counter.wait(sum + round, HANG).is_some());
            a.engine.cancel(id).unwrap();
            a.concluded(id);
            let report = a.engine.report(id).unwrap();
            a.engine.release(id).unwrap();
            let count =
                |status| report.operations.iter().filter(|it| **it == status).count() as u64;
            let (done, failed) = (count(OperationStatus::Done), count(OperationStatus::Failed));
            // What is done is counted soon, what has failed has been by now.
            let said = counter.wait(sum + done, HANG).expect("it comes");
            assert!(said <= sum + done + failed, "{path} {round}");
            sum = said;
        }
        let id = to_b.submit(&pages(&a, &b, 0..1), &counting(5)).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        assert_eq!(counter.wait(sum + 1, HANG), Some(sum + 1), "{path}");
    }
}

#[test]
pub(crate) fn what_the_peer_refuses_is_not_counted_and_fails_only_itself() {
    for path in PATHS {
        let (a, b, [to_b, to_a]) = pair_of(config("a").with_engine_path(path), 64 * PAGE);
        let grant = to_a.grant(b.at(0), PAGE, Rights::Both, None).unwrap();
        to_b.import_grant(&grant).unwrap();
        let operation = write(a.at(0), grant.address, PAGE);
        let id = to_b.submit(&[operation], &counting(6)).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        let counter = b.engine.counter(6).unwrap();
        assert_eq!(counter.wait(1, HANG), Some(1));
        b.engine.revoke(&grant).unwrap();
        let id = to_b.submit(&[operation], &counting(6)).unwrap();
        assert_eq!(a.concluded(id), Outcome::Failed);
        assert_eq!(counter.read(), 1, "{path}");
        let id = to_b.submit(&pages(&a, &b, 0..64), &counting(6)).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        assert_eq!(counter.wait(65, HANG), Some(65), "{path}");
    }
}

#[test]
fn a_wait_ends_with_its_time_and_with_the_engine() {
    let (a, b, [to_b, _]) = pair(PAGE);
    let counter = b.engine.counter(8).unwrap();
    assert_eq!(counter.wait(0, Duration::ZERO), Some(0));
    assert_eq!(counter.wait(1, Duration::ZERO), None);
    assert_eq!(counter.wait(1, SHORT), None);
    assert_eq!((counter.id(), counter.word() % 8), (8, 0));
    let next = b.engine.counter(9).unwrap();
    assert_eq!(next.word(), counter.word() + 8);
    let waiters: Vec<_> = [1, 1, 2, u64::MAX]
        .map(|count| {
            let counter = counter.clone();
            thread::spawn(move || counter.wait(count, Duration::MAX))
        })
        .into();
    for _ in 0..2 {
        let id = to_b.submit(&pages(&a, &b, 0..1), &counting(8)).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
    }
    let mut waiters = waiters.into_iter();
    for count in [1, 1, 2] {
        let found = waiters.next().unwrap().join().unwrap();
        assert!(found.is_some_and(|found| found >= count));
    }
    assert_eq!(b.engine.close().cut_off, 0);
    assert_eq!(waiters.next().unwrap().join().unwrap(), None);
    // What it says stays.
    assert_eq!((counter.read(), counter.wait(2, SHORT)), (2, Some(2)));
    drop(b);
    assert_eq!(counter.read(), 2);
}

#[test]
fn what_cannot_count_is_refused_and_nothing_is_done() {
    for path in PATHS {
        let own = config("a").with_engine_path(path).with_gather(2);
        let (a, b, [to_b, _]) = pair_of(own, 4 * PAGE);
        let before = b.fill(1);
        let good = write(a.at(0), b.at(0), PAGE);
        let read = Operation {
            kind: Kind::Read,
            ..good
        };
        let none = write(a.at(0), b.at(0), 0);
        let parts = |operation, bytes| EngineError::CountedParts {
            operation,
            bytes,
            gather: 2,
        };
        let refused = |operations: &[Operation], counter: u32| {
            to_b.submit(operations, &counting(counter)).unwrap_err()
        };
        let counter = |id| EngineError::Counter { id };
        assert_eq!(refused(&[good], MOST_COUNTERS), counter(MOST_COUNTERS));
        assert_eq!(refused(&[good], u32::MAX), counter(u32::MAX));
        let of_read = EngineError::CountedRead { operation: 1 };
        assert_eq!(refused(&[good, read], 0), of_read);
        assert_eq!(refused(&[good, none], 0), parts(1, 0));
        assert_eq!(to_b.prepare_counting(&[none]).unwrap_err(), parts(0, 0));
        let plain = to_b.prepare(&[good]).unwrap();
        let of_plain = to_b.post(&plain, &counting(0)).unwrap_err();
        assert_eq!(of_plain, EngineError::PreparedUncounted);
        let of_high = to_b.post(&plain, &counting(MOST_COUNTERS)).unwrap_err();
        assert_eq!(of_high, counter(MOST_COUNTERS));
        let of_engine = b.engine.counter(MOST_COUNTERS).unwrap_err();
        assert_eq!(of_engine.to_string(), "counter 4096; it must be 0 to 4095");
        assert_eq!(a.engine.in_use(), 0);
        assert!(b.bytes() == before);
        assert_eq!(b.engine.counter(0).unwrap().read(), 0);
        let id = to_b.submit(&[good], &counting(0)).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
    }
}
