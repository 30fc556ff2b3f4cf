//! Limits and bounds: sizes of queues, numbers of endpoints, peers that are gone.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use libfabric_abi::bindings::FI_WAIT_NONE;
use libfabric_abi::calls;
use libfabric_abi::errors::{FI_EAGAIN, FI_ECONNABORTED, FI_EHOSTUNREACH, FI_ENOMEM, FI_EOVERRUN};
use softofi::{Count, Failure, Rule};

use crate::rig::{Done, End, Fabric, Memory, Pair, Seen, Work, until, was_reported, watch};

#[test]
fn an_endpoint_takes_as_many_operations_as_its_queue_is_long() {
    // Nothing moves while nobody calls.
    let fabric = Fabric::soft("profile=efa,again=0,queue=8");
    let pair = Pair::new(&fabric, 64);
    let before = watch().count(Count::Full);
    let posts = (0..12).map(|_| pair.here.try_write(&pair.work(8)));
    let refused: Vec<isize> = posts.filter_map(Result::err).collect();
    assert_eq!(refused, [-(FI_EAGAIN as isize); 4]);
    assert!(watch().count(Count::Full) >= before + 4);
}

#[test]
fn a_queue_that_has_more_than_room_is_lost_and_reported() {
    let fabric = Fabric::soft("again=0,late_us=0");
    let here = End::with_queue(&fabric, 4, FI_WAIT_NONE);
    let pair = Pair::of(here, End::new(&fabric), 64);
    for _ in 0..8 {
        pair.here.try_write(&pair.work(8)).unwrap();
    }
    assert!(was_reported(Rule::CqOverbooked, "of 4)"));
    until("the queue is overrun", || {
        was_reported(Rule::CqOverrun, "(4 entries)").then_some(())
    });
    let errors: Vec<c_int> = pair.here.completions().iter().map(|it| it.error).collect();
    assert_eq!(errors, [FI_EOVERRUN]);
}

#[test]
fn a_domain_has_so_many_endpoints_and_one_that_closes_makes_room() {
    let fabric = Fabric::soft("endpoints=2");
    let ends = [End::new(&fabric), End::new(&fabric)];
    let third = End::bound(&fabric, 64, FI_WAIT_NONE);
    // SAFETY: an endpoint to which all is bound.
    let enable = || unsafe { calls::fi_enable(&raw mut (*third.ep).fid) };
    assert_eq!(enable(), -FI_ENOMEM);
    ends[0].close();
    assert_eq!(enable(), 0);
}

/// How long it takes until a write is told of, and as what.
fn told_after(here: &End<'_>, work: &Work<'_>) -> (Done, Duration) {
    let mut seen = Seen::new(&[here]);
    let start = Instant::now();
    let context = here.write(work, &mut seen);
    let done = seen.wait(0, context);
    (done, start.elapsed())
}

#[test]
fn operations_to_an_endpoint_that_is_gone_end_in_time() {
    for profile in ["efa-direct", "efa"] {
        let fabric = Fabric::soft(&format!("profile={profile},again=0,dead_ms=100"));
        let pair = Pair::new(&fabric, 64);
        let mut seen = pair.seen();
        let context = pair.here.write(&pair.work(64), &mut seen);
        assert_eq!(seen.wait(0, context).error, 0);
        pair.there.close();
        let (done, time) = told_after(&pair.here, &pair.work(64));
        assert_eq!(done.error, FI_ECONNABORTED, "{profile}");
        let failure = Failure::of_provider_error(done.provider_error);
        assert_eq!(failure, Some(Failure::Unresponsive));
        assert!(time >= Duration::from_millis(90), "{profile}: {time:?}");
    }
}

#[test]
fn operations_to_nobody_are_told_as_that() {
    let fabric = Fabric::soft("again=0,dead_ms=50");
    let (here, gone) = (End::new(&fabric), End::new(&fabric));
    let peer = here.insert(&gone.address());
    gone.close();
    let memory = Memory::new(&fabric, 64);
    let work = Work {
        memory: &memory,
        offset: 0,
        bytes: 64,
        peer,
        remote: memory.remote(0),
        data: None,
    };
    let (done, _) = told_after(&here, &work);
    assert_eq!(done.error, FI_EHOSTUNREACH);
}

#[test]
fn a_silent_death_is_told_of_by_nobody_until_the_close() {
    let fabric = Fabric::soft("again=0,dead=silent,dead_ms=10");
    let pair = Pair::new(&fabric, 64);
    pair.there.close();
    let before = watch().count(Count::DroppedOperations);
    pair.here.try_write(&pair.work(64)).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(pair.here.completions(), []);
    pair.here.close();
    assert!(watch().count(Count::DroppedOperations) > before);
}

#[test]
fn a_peer_that_says_nothing_is_given_up_after_the_timeout() {
    let fabric = Fabric::soft("profile=efa,again=0,timeout_ms=300");
    let pair = Pair::new(&fabric, 64);
    // Nobody calls the target: it lets nobody in.
    let (done, time) = told_after(&pair.here, &pair.work(64));
    assert_eq!(done.error, FI_EHOSTUNREACH);
    assert!(time >= Duration::from_millis(290), "{time:?}");
}

#[test]
fn an_endpoint_that_closes_under_load_and_comes_again_is_served_again() {
    let fabric = Fabric::soft("again=200,late_us=500,dead_ms=5");
    let here = End::new(&fabric);
    let near = Memory::new(&fabric, 4096);
    near.set(&[5; 4096]);
    for _ in 0..30 {
        let there = End::new(&fabric);
        there.insert(&here.address());
        let far = Memory::new(&fabric, 4096);
        let work = Work {
            memory: &near,
            offset: 0,
            bytes: 4096,
            peer: here.insert(&there.address()),
            remote: far.remote(0),
            data: None,
        };
        let mut seen = Seen::new(&[&here, &there]);
        let context = here.write(&work, &mut seen);
        assert_eq!(seen.wait(0, context).error, 0);
        assert_eq!(far.bytes(), [5; 4096]);
        let taken: usize = (0..10).filter_map(|_| here.try_write(&work).ok()).count();
        there.close();
        far.set(&[6; 4096]);
        until("all end", || {
            seen.look();
            (seen.done[0].len() >= taken).then_some(())
        });
        assert_eq!(far.bytes(), [6; 4096], "nothing lands after the close");
        let mut peer = work.peer;
        // SAFETY: a number of this vector, with nothing under way.
        let removed = unsafe { calls::fi_av_remove(here.av, &raw mut peer, 1, 0) };
        assert_eq!(removed, 0);
    }
}
