//! Waits of threads and of futures: for conclusions, for slots, and for the end of an engine.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use test_basics::limits::until;
use test_support::limits::HANG;
use warpverbs::engine::{
    EngineError, HostError, HostMemory, Kind, Operation, Options, Outcome, Status, WaitsFor,
};

use crate::rails::Striped;
use crate::rig::{End, SHORT, config, connect, pair};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    let end = Instant::now() + HANG;
    loop {
        if let Poll::Ready(found) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return found;
        }
        thread::park_timeout(end.saturating_duration_since(Instant::now()));
        assert!(Instant::now() < end, "no thread wakes it");
    }
}

fn write(local: u64, remote: u64, bytes: u64) -> [Operation; 1] {
    [Operation {
        kind: Kind::Write,
        local,
        remote,
        bytes,
    }]
}

#[test]
fn futures_of_many_transfers_at_a_time_are_all_woken() {
    let (a, b, [to_b, _]) = pair(1 << 20);
    let expected = a.fill(1);
    let parts = 32u64;
    let bytes = (1 << 20) / parts;
    for round in 0..20 {
        let part = |nth| to_b.write(a.at(nth * bytes), b.at(nth * bytes), bytes);
        let ids: Vec<_> = (0..parts).map(|nth| part(nth).unwrap()).collect();
        let all = async {
            let mut found = Vec::new();
            for id in &ids {
                found.push(a.engine.concluded(*id).await.unwrap());
            }
            found
        };
        let done = Status::Concluded(Outcome::Done);
        assert_eq!(block_on(all), vec![done; ids.len()], "round {round}");
        let mut polled = Vec::new();
        a.engine.poll_many(&ids, &mut polled).unwrap();
        assert_eq!(polled, vec![done; ids.len()], "a poll frees nothing");
        ids.into_iter().for_each(|id| a.engine.release(id).unwrap());
    }
    assert!(b.bytes() == expected);
}

#[test]
fn a_submit_that_waits_gets_the_slot_that_another_thread_gives_back() {
    let a = End::new(config("a").with_transfers(1), 4096);
    let b = End::new(config("b"), 4096);
    let [to_b, _] = connect(&a, &b);
    let submit = |most| {
        let options = Options::default().with_wait(most);
        to_b.submit(&write(a.at(0), b.at(0), 8), &options)
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let id = submit(HANG).unwrap();
                    assert_eq!(a.concluded(id), Outcome::Done);
                    a.engine.release(id).unwrap();
                }
            });
        }
    });
    let kept = submit(Duration::ZERO).unwrap();
    for most in [Duration::ZERO, SHORT] {
        assert_eq!(submit(most), Err(EngineError::WouldBlock { slots: 1 }));
    }
    a.concluded(kept);
    assert_eq!(a.engine.in_use(), 1);
    // What cannot be is refused at once, slot or not.
    a.engine.release(kept).unwrap();
    let none = to_b.submit(&[], &Options::default().with_wait(HANG));
    assert_eq!(none, Err(EngineError::Operations { count: 0 }));
}

#[test]
fn the_end_of_an_engine_ends_the_waits_for_a_slot() {
    let a = End::new(config("a").with_transfers(1), 4096);
    let b = End::new(config("b"), 4096);
    let [to_b, _] = connect(&a, &b);
    let one = write(a.at(0), b.at(0), 8);
    to_b.submit(&one, &Options::default()).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| to_b.submit(&one, &Options::default().with_wait(HANG)));
        let accepts = scope.spawn(|| a.engine.accept(HANG).is_none());
        assert_eq!(a.engine.close().done, 1);
        assert_eq!(waits.join().unwrap(), Err(EngineError::Closing));
        assert!(accepts.join().unwrap() && a.engine.is_closed());
    });
    assert_eq!(a.engine.close().done, 1, "once more only reports");
    let closing = |error: HostError| matches!(error, HostError::Refused(EngineError::Closing));
    assert!(closing(a.engine.register(&a.memory).unwrap_err()));
    let unknown = a.engine.deregister(a.region).unwrap_err().to_string();
    assert!(unknown.contains("was taken away"), "{unknown}");
}

#[test]
fn what_is_submitted_beside_a_close_is_refused_or_concluded() {
    for round in 0..20 {
        let (a, b, [to_b, _]) = pair(4096);
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            let submits = scope.spawn(|| {
                let mut ids = Vec::new();
                loop {
                    begun.store(ids.len() > round, Ordering::Relaxed);
                    match to_b.write(a.at(0), b.at(0), 8) {
                        Ok(id) => ids.push(id),
                        Err(EngineError::WouldBlock { .. }) => begun.store(true, Ordering::Relaxed),
                        Err(EngineError::Closing) => return ids,
                        Err(other) => panic!("{other}"),
                    }
                }
            });
            until("some are begun", || begun.load(Ordering::Relaxed));
            let _ = a.engine.close();
            for id in submits.join().unwrap() {
                let status = a.engine.wait(id, HANG).unwrap();
                assert!(
                    matches!(status, Status::Concluded(_)),
                    "{round}: {status:?}"
                );
            }
        });
    }
}

#[test]
#[expect(unsafe_code, reason = "memory of the program")]
fn memory_of_the_program_is_moved_wherever_it_begins() {
    let (a, b, [to_b, _]) = pair(4096);
    let mut bytes = vec![0u8; 4096 + 64];
    let first = bytes.as_mut_ptr().wrapping_add(7);
    // SAFETY: the bytes live longer than the engines, and are looked at when their region is gone.
    let own = Arc::new(unsafe { HostMemory::over(first, 4096, None) }.unwrap());
    let region = a.engine.register(&own).unwrap();
    let expected = b.fill(3);
    let id = to_b.read(own.address(), b.at(0), 4096).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
    a.engine.deregister(region).unwrap();
    drop(own);
    assert!(bytes[7..7 + 4096] == expected[..]);
    assert!(
        bytes[..7]
            .iter()
            .chain(&bytes[7 + 4096..])
            .all(|byte| *byte == 0)
    );
}

#[test]
fn behind_a_wait_in_vain_a_frozen_rail_differs_from_one_that_works() {
    let a = Striped::with(config("a").with_qps(2).with_slice(4096), 2, true);
    let b = Striped::with(config("b").with_qps(2), 2, true);
    let [to_b, _to_a] = connect(&a, &b);
    a.hcas.iter().for_each(|hca| hca.pause(HANG));
    // More slices than a QP holds, so both rails have some.
    let whole = write(a.at(0), b.at(0), 1 << 20);
    let ids = [0, 1].map(|_| to_b.submit(&whole, &Options::default()).unwrap());
    until("both rails have slices", || {
        a.engine.stalled(ids[0]).unwrap().len() == 2
    });
    assert_eq!(a.engine.wait(ids[0], SHORT).unwrap(), Status::Pending);
    let waits_for = |id| a.engine.waits_for(id);
    assert_eq!(waits_for(ids[0]), Ok(Some(WaitsFor::Completion)));
    a.hcas[1].pause(Duration::ZERO);
    // The one that works then has nothing in flight.
    let only_frozen = |id| {
        let all = a.engine.stalled(id).unwrap();
        let [one] = &all[..] else {
            return None;
        };
        Some(one.clone()).filter(|one| one.rail == Some(0))
    };
    until("all are posted", || {
        let all = a.engine.statistics();
        all.slices.posted == all.queued
    });
    let mut found = None;
    until("only the frozen rail has slices", || {
        found = ids.into_iter().find(|id| only_frozen(*id).is_some());
        found.is_some()
    });
    let id = found.unwrap();
    let frozen = || only_frozen(id);
    let before = frozen().unwrap();
    assert_eq!(before.device.as_deref(), Some(a.hcas[0].name()));
    assert!(before.in_flight > 0);
    // It completes nothing, however long that is waited for.
    until("its time grows", || {
        frozen().unwrap().since_completion >= before.since_completion + SHORT
    });
    assert_eq!(frozen().unwrap().in_flight, before.in_flight);
    a.hcas[0].pause(Duration::ZERO);
    for id in ids {
        assert_eq!(a.concluded(id), Outcome::Done);
    }
    assert_eq!(a.engine.stalled(id).unwrap(), []);
    assert_eq!(waits_for(id), Ok(None));
    a.engine.release(id).unwrap();
    let released = a.engine.stalled(id);
    assert!(matches!(released, Err(EngineError::Released { .. })));
    assert_eq!(waits_for(id), Err(EngineError::Released { id }));
    assert!(matches!(
        b.engine.stalled(id),
        Err(EngineError::ForeignId { .. })
    ));
}

#[test]
fn a_rail_that_is_slow_begins_its_time_anew_with_each_completion() {
    let config = |name| config(name).with_qps(1).with_slice(4096).with_chain(1);
    let [a, b] = ["a", "b"].map(|name| End::new(config(name), 1 << 20));
    let [to_b, _to_a] = connect(&a, &b);
    // Of 64 completions eight come at a time, and those after them later.
    let late = (1..8).map(|nth| format!("cqe=delay#{}:{}ms", 8 * nth, 40 * nth));
    let late = late.collect::<Vec<_>>().join(",");
    a.hca.set_faults(&late.parse().unwrap());
    let id = to_b.submit(&write(a.at(0), b.at(0), 1 << 18), &Options::default());
    let id = id.unwrap();
    let (mut last, mut anew) = (Duration::ZERO, 0);
    while a.engine.poll(id).unwrap() == Status::Pending {
        let all = a.engine.stalled(id).unwrap();
        let Some(found) = all.first() else {
            continue;
        };
        assert!((1..=64).contains(&found.in_flight), "{found:?}");
        anew += u32::from(found.since_completion < last);
        last = found.since_completion;
        thread::yield_now();
    }
    assert!(anew > 0, "it has only grown");
    assert_eq!(a.concluded(id), Outcome::Done);
}
