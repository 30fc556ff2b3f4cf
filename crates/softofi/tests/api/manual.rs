//! Progress and sleep.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use libfabric_abi::bindings::{FI_WAIT_FD, FI_WAIT_NONE, fid};
use libfabric_abi::calls;
use libfabric_abi::errors::{FI_EAGAIN, FI_EINVAL, FI_ENODATA};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use softofi::Count;

use crate::rig::{End, Fabric, Pair, until, watch};

/// Whether bytes land though the target's thread never calls the library.
fn lands_by_itself(profile: &str, within: Duration) -> bool {
    let fabric = Fabric::soft(&format!("profile={profile},again=0,late_us=100"));
    let pair = Pair::new(&fabric, 64);
    pair.near.set(&[1; 64]);
    pair.here.try_write(&pair.work(64)).unwrap();
    let start = Instant::now();
    let mut told = 0;
    while told == 0 && start.elapsed() < within {
        told += pair.here.completions().len();
    }
    let landed = pair.far.bytes() == [1; 64];
    assert_eq!(told > 0, landed);
    until("the target is called", || {
        pair.there.completions();
        pair.here.completions();
        (pair.far.bytes() == [1; 64]).then_some(())
    });
    landed
}

#[test]
fn on_efa_bytes_land_only_while_the_target_is_called() {
    assert!(!lands_by_itself("efa", Duration::from_millis(300)));
    assert!(lands_by_itself("efa-direct", test_basics::limits::HANG));
}

fn wait_fd(end: &End<'_>) -> c_int {
    let mut fd = -1;
    // SAFETY: an open queue, and a place for a descriptor.
    let found = unsafe { calls::fi_get_wait_fd(&raw mut (*end.cq).fid, &raw mut fd) };
    assert_eq!(found, 0);
    fd
}

fn trywait(end: &End<'_>) -> c_int {
    // SAFETY: an open queue of an open fabric.
    unsafe {
        let mut fids: [*mut fid; 1] = [&raw mut (*end.cq).fid];
        calls::fi_trywait(end.fabric().fabric, fids.as_mut_ptr(), 1)
    }
}

/// Whether the descriptor becomes readable within this time.
fn wakes(fd: c_int, within: Duration) -> bool {
    let time = Timespec {
        tv_sec: within.as_secs().cast_signed(),
        tv_nsec: within.subsec_nanos().into(),
    };
    // SAFETY: of a queue that is open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    poll(
        &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
        Some(&time),
    )
    .unwrap()
        == 1
}

#[test]
fn a_thread_that_sleeps_after_fi_trywait_wakes_for_what_comes() {
    for profile in ["efa-direct", "efa"] {
        let fabric = Fabric::soft(&format!("profile={profile},again=0,wait=fd"));
        let end = || End::with_queue(&fabric, 64, FI_WAIT_FD);
        let pair = Pair::of(end(), end(), 64);
        for round in 0..40 {
            pair.near.set(&[round + 1; 64]);
            let mut work = pair.work(64);
            work.data = Some(u64::from(round));
            let fd = wait_fd(&pair.there);
            std::thread::scope(|scope| {
                let target = &pair.there as *const End<'_> as usize;
                scope.spawn(move || {
                    // SAFETY: the scope ends before the pair; the library is FI_THREAD_SAFE.
                    let target = unsafe { &*std::ptr::with_exposed_provenance::<End<'_>>(target) };
                    let start = Instant::now();
                    loop {
                        if trywait(target) == 0 {
                            assert!(
                                wakes(fd, Duration::from_secs(60)),
                                "{profile}: asleep for ever"
                            );
                        }
                        if !target.completions().is_empty() {
                            break;
                        }
                        assert!(start.elapsed() < test_basics::limits::HANG);
                    }
                });
                let mut told = false;
                pair.here.try_write(&work).unwrap();
                until("the write completes", || {
                    told |= !pair.here.completions().is_empty();
                    told.then_some(())
                });
            });
            assert_eq!(pair.far.bytes(), [round + 1; 64], "{profile}");
        }
        assert_eq!(trywait(&pair.there), 0);
        assert!(!wakes(wait_fd(&pair.there), Duration::from_millis(20)));
    }
}

#[test]
fn completions_that_wait_are_a_reason_not_to_sleep() {
    let fabric = Fabric::soft("again=0,late_us=0,wait=fd");
    let end = || End::with_queue(&fabric, 64, FI_WAIT_FD);
    let pair = Pair::of(end(), end(), 64);
    pair.here.try_write(&pair.work(64)).unwrap();
    assert!(wakes(wait_fd(&pair.here), Duration::from_secs(60)));
    assert_eq!(trywait(&pair.here), -FI_EAGAIN);
    assert_eq!(pair.here.completions().len(), 1);
    assert_eq!(trywait(&pair.here), 0);
}

#[test]
fn a_close_drops_completions_that_nobody_has_read() {
    let fabric = Fabric::soft("again=0,late_us=0,wait=fd");
    let end = || End::with_queue(&fabric, 64, FI_WAIT_FD);
    let pair = Pair::of(end(), end(), 64);
    let before = watch().count(Count::DroppedCompletions);
    for _ in 0..20 {
        pair.here.try_write(&pair.work(64)).unwrap();
    }
    assert!(wakes(wait_fd(&pair.here), Duration::from_secs(60)));
    pair.here.close();
    assert_eq!(pair.here.completions(), []);
    assert!(watch().count(Count::DroppedCompletions) > before);
}

#[test]
fn a_queue_without_a_descriptor_says_so() {
    let fabric = Fabric::soft("");
    let end = End::with_queue(&fabric, 64, FI_WAIT_NONE);
    assert_eq!(trywait(&end), -FI_EINVAL);
    let mut fd = -1;
    // SAFETY: an open queue, and a place for a descriptor.
    let found = unsafe { calls::fi_get_wait_fd(&raw mut (*end.cq).fid, &raw mut fd) };
    assert_eq!(found, -FI_ENODATA);
}
