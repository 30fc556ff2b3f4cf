//! What only `efa` has: several ranges, inline writes, completions by choice. And what is left after many lives: nothing.

use std::ffi::c_void;
use std::ptr::null_mut;

use libfabric_abi::bindings::*;
use libfabric_abi::calls;

use crate::rig::{End, Fabric, Memory, Pair, bytes, until};

/// Places of this length in memory, which do not touch.
fn places(memory: &Memory<'_>, lengths: &[usize]) -> Vec<libc::iovec> {
    let mut at = 0;
    let places = lengths.iter().map(|&iov_len| {
        let iov_base = memory.at(at);
        at += iov_len + 16;
        libc::iovec { iov_base, iov_len }
    });
    places.collect()
}

#[test]
fn four_ranges_of_both_sides_are_one_operation() {
    for (config, is_read) in [("seed=1", false), ("seed=2", true)] {
        let fabric = Fabric::soft(&format!("profile=efa,again=0,{config}"));
        let pair = Pair::new(&fabric, 4096);
        let mut dice = fastrand::Rng::with_seed(4);
        pair.near.set(&bytes(&mut dice, 4096));
        pair.far.set(&bytes(&mut dice, 4096));
        let near = places(&pair.near, &[100, 1, 700, 199]);
        let far = [300, 300, 399, 1];
        let mut at = 0;
        let far = far.map(|len| {
            let remote = pair.far.remote(at);
            at += len + 16;
            fi_rma_iov {
                addr: remote.address,
                len,
                key: remote.key,
            }
        });
        let flat = |memory: &Memory<'_>, lengths: [usize; 4]| {
            let all = memory.bytes();
            let mut at = 0;
            let mut flat: Vec<u8> = Vec::new();
            for length in lengths {
                flat.extend(&all[at..at + length]);
                at += length + 16;
            }
            flat
        };
        let own = || flat(&pair.near, [100, 1, 700, 199]);
        let theirs = || flat(&pair.far, [300, 300, 399, 1]);
        let expected = if is_read { theirs() } else { own() };
        let mut descriptors = [pair.near.descriptor(); 4];
        let message = fi_msg_rma {
            msg_iov: near.as_ptr(),
            desc: descriptors.as_mut_ptr(),
            iov_count: 4,
            addr: pair.peer,
            rma_iov: far.as_ptr(),
            rma_iov_count: 4,
            context: null_mut(),
            data: 0,
        };
        // SAFETY: arrays that live here, memory that outlives the operation.
        let posted = unsafe {
            if is_read {
                calls::fi_readmsg(pair.here.ep, &raw const message, FI_COMPLETION)
            } else {
                let flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
                calls::fi_writemsg(pair.here.ep, &raw const message, flags)
            }
        };
        assert_eq!(posted, 0);
        let mut seen = pair.seen();
        assert_eq!(seen.wait(0, 0).error, 0);
        assert!(own() == expected && theirs() == expected, "read: {is_read}");
    }
}

#[test]
fn bytes_of_an_inline_write_are_taken_at_once_and_nobody_is_told() {
    let fabric = Fabric::soft("profile=efa,again=0");
    let pair = Pair::new(&fabric, 64);
    let remote = pair.far.remote(0);
    pair.near.set(&[7; 64]);
    // SAFETY: memory that is read before this returns.
    let posted = unsafe {
        let (near, address) = (pair.near.address(), remote.address);
        calls::fi_inject_write(pair.here.ep, near, 64, pair.peer, address, remote.key)
    };
    assert_eq!(posted, 0);
    pair.near.set(&[8; 64]);
    let mut seen = pair.seen();
    until("the bytes land", || {
        seen.look();
        (pair.far.bytes() == [7; 64]).then_some(())
    });
    // What is posted after it is told of, and it is not.
    let context = pair.here.write(&pair.work(8), &mut seen);
    seen.wait(0, context);
    assert!(seen.done[0].is_empty());
}

#[test]
fn with_completions_by_choice_only_the_chosen_are_told_of() {
    for profile in ["efa-direct", "efa"] {
        let fabric = Fabric::soft(&format!("profile={profile},again=0,late_us=0"));
        let (here, there) = (bound_by_choice(&fabric), End::new(&fabric));
        let pair = Pair::of(here, there, 64);
        let mut seen = pair.seen();
        for _ in 0..10 {
            quiet_write(&pair);
        }
        let context = pair.here.write(&pair.work(8), &mut seen);
        seen.wait(0, context);
        std::thread::sleep(std::time::Duration::from_millis(20));
        seen.look();
        assert!(seen.done[0].is_empty(), "{profile}");
    }
}

fn bound_by_choice(fabric: &Fabric) -> End<'_> {
    let end = End::bound(fabric, 64, FI_WAIT_NONE);
    // SAFETY: objects of the test; what was bound before is replaced.
    unsafe {
        let flags = FI_TRANSMIT | FI_SELECTIVE_COMPLETION;
        assert_eq!(calls::fi_ep_bind(end.ep, &raw mut (*end.cq).fid, flags), 0);
        assert_eq!(calls::fi_enable(&raw mut (*end.ep).fid), 0);
    }
    end
}

/// A write without `FI_COMPLETION`, and so without a context.
fn quiet_write(pair: &Pair<'_>) {
    let near = libc::iovec {
        iov_base: pair.near.address(),
        iov_len: 8,
    };
    let remote = pair.far.remote(0);
    let far = fi_rma_iov {
        addr: remote.address,
        len: 8,
        key: remote.key,
    };
    let mut descriptor: *mut c_void = pair.near.descriptor();
    let message = fi_msg_rma {
        msg_iov: &raw const near,
        desc: &raw mut descriptor,
        iov_count: 1,
        addr: pair.peer,
        rma_iov: &raw const far,
        rma_iov_count: 1,
        context: null_mut(),
        data: 0,
    };
    // SAFETY: memory that outlives the operation.
    let posted =
        unsafe { calls::fi_writemsg(pair.here.ep, &raw const message, FI_DELIVERY_COMPLETE) };
    assert_eq!(posted, 0);
}

/// Descriptors and threads of this process.
fn held() -> Held {
    let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
    Held {
        descriptors: count("/proc/self/fd"),
        threads: count("/proc/self/task"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    threads: usize,
}

/// A process of its own counts: other tests open and close as well.
#[test]
fn after_two_hundred_lives_no_descriptor_and_no_thread_is_left() {
    let mut counting = test_basics::process::Process::start("ranges::counts", (COUNTS, "1"));
    assert_eq!(counting.asked("go"), "the same");
}

const COUNTS: &str = "SOFTOFI_TEST_COUNTS";

#[test]
#[ignore = "is started by the test above"]
fn counts() {
    if std::env::var_os(COUNTS).is_none() {
        return;
    }
    let live = |profile: &str| {
        let fabric = Fabric::soft(&format!("profile={profile},wait=fd,late_us=0"));
        let end = || End::with_queue(&fabric, 64, FI_WAIT_FD);
        let pair = Pair::of(end(), end(), 64);
        let mut seen = pair.seen();
        let context = pair.here.write(&pair.work(8), &mut seen);
        assert_eq!(seen.wait(0, context).error, 0);
        let _ = pair.here.try_write(&pair.work(64));
    };
    live("efa-direct");
    let before = held();
    for _ in 0..100 {
        live("efa-direct");
        live("efa");
    }
    assert_eq!(held(), before);
    println!("said: the same");
}
