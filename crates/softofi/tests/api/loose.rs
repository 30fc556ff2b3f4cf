//! What a provider may do to a program: refuse posts, cut, delay and mix up operations, drop completions at a close.

use std::time::{Duration, Instant};

use libfabric_abi::bindings::{FI_COMPLETION, FI_TRANSMIT_COMPLETE};
use libfabric_abi::errors::FI_EAGAIN;
use softofi::Count;

use crate::rig::{End, Fabric, Pair, bytes, until, watch};

/// Which posts of the first ones an endpoint refuses.
fn refused(seed: u64) -> Vec<bool> {
    let fabric = Fabric::soft(&format!("again=300,queue=4096,seed={seed}"));
    let pair = Pair::new(&fabric, 64);
    let posts = (0..200).map(|_| match pair.here.try_write(&pair.work(8)) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error, -(FI_EAGAIN as isize));
            true
        }
    });
    posts.collect()
}

#[test]
fn posts_are_refused_as_the_seed_says_and_counted() {
    let before = watch().count(Count::Refused);
    let first = refused(11);
    let many = first.iter().filter(|refused| **refused).count();
    assert!((30..100).contains(&many), "{many} of 200");
    assert!(watch().count(Count::Refused) >= before + many as u64);
    assert_eq!(first, refused(11));
    assert_ne!(first, refused(12));
}

#[test]
fn posts_to_a_new_peer_are_refused_while_it_connects() {
    let fabric = Fabric::soft("again=0,warmup=5");
    let pair = Pair::new(&fabric, 64);
    let posts: Vec<bool> = (0..8)
        .map(|_| pair.here.try_write(&pair.work(8)).is_ok())
        .collect();
    assert_eq!(posts, [false, false, false, false, false, true, true, true]);
}

/// The places of which bytes are there first, in the order in which they are seen.
fn landing(seed: u64) -> Vec<usize> {
    const BYTES: usize = 4096;
    let fabric = Fabric::soft(&format!("again=0,pieces=8,late_us=400000,seed={seed}"));
    let pair = Pair::new(&fabric, BYTES);
    pair.near.set(&[1; BYTES]);
    let mut seen = pair.seen();
    let context = pair.here.write(&pair.work(BYTES), &mut seen);
    let mut order = Vec::new();
    let mut before = vec![0; BYTES];
    until("all bytes are there", || {
        let now = pair.far.bytes();
        let first = (0..BYTES).find(|&at| now[at] != before[at]);
        order.extend(first);
        before = now;
        before.iter().all(|byte| *byte == 1).then_some(())
    });
    assert_eq!(seen.wait(0, context).error, 0);
    order
}

#[test]
fn an_operation_lands_in_parts_and_in_an_order_of_the_seed() {
    let orders: Vec<Vec<usize>> = (1..=4).map(landing).collect();
    assert!(orders.iter().any(|order| order.len() > 2), "{orders:?}");
    assert!(orders.iter().any(|order| !order.is_sorted()), "{orders:?}");
    // A look may see two parts at once, when the machine is busy.
    let same = (0..10).any(|_| landing(2) == orders[1]);
    assert!(same, "the same seed does the same");
}

#[test]
fn without_delivery_a_completion_may_come_before_the_bytes() {
    let fabric = Fabric::soft("again=0,late_us=100000,pieces=8");
    let pair = Pair::new(&fabric, 4096);
    pair.near.set(&[1; 4096]);
    let mut was_early = false;
    for _ in 0..10 {
        pair.far.set(&[0; 4096]);
        let context = transmit(&pair);
        until("the write completes", || {
            let done = pair.here.completions();
            done.iter().any(|it| it.context == context).then_some(())
        });
        was_early |= pair.far.bytes() != [1; 4096];
        until("the bytes land", || {
            (pair.far.bytes() == [1; 4096]).then_some(())
        });
    }
    assert!(was_early);
}

/// A write without `FI_DELIVERY_COMPLETE`.
fn transmit(pair: &Pair<'_>) -> usize {
    use libfabric_abi::bindings::{fi_context2, fi_msg_rma, fi_rma_iov};
    let context = std::ptr::from_mut(Box::leak(Box::new(fi_context2::default())));
    let remote = pair.far.remote(0);
    let near = libc::iovec {
        iov_base: pair.near.address(),
        iov_len: 4096,
    };
    let far = fi_rma_iov {
        addr: remote.address,
        len: 4096,
        key: remote.key,
    };
    let mut descriptor = pair.near.descriptor();
    let message = fi_msg_rma {
        msg_iov: &raw const near,
        desc: &raw mut descriptor,
        iov_count: 1,
        addr: pair.peer,
        rma_iov: &raw const far,
        rma_iov_count: 1,
        context: context.cast(),
        data: 0,
    };
    let flags = FI_COMPLETION | FI_TRANSMIT_COMPLETE;
    // SAFETY: memory that outlives the operation, and a context that stays.
    let posted =
        unsafe { libfabric_abi::calls::fi_writemsg(pair.here.ep, &raw const message, flags) };
    assert_eq!(posted, 0);
    context.addr()
}

#[test]
fn parts_may_land_after_their_initiator_is_gone_and_not_after_the_target() {
    const BYTES: usize = 60_000;
    let mut late = 0;
    for seed in 1..=10 {
        let fabric = Fabric::soft(&format!("again=0,late_us=20000,pieces=8,seed={seed}"));
        let pair = Pair::new(&fabric, BYTES);
        let mut dice = fastrand::Rng::with_seed(seed);
        pair.near.set(&bytes(&mut dice, BYTES));
        for _ in 0..4 {
            pair.here.try_write(&pair.work(BYTES)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
        pair.here.close();
        let then = pair.far.bytes();
        let start = Instant::now();
        while pair.far.bytes() == then && start.elapsed() < Duration::from_millis(25) {}
        late += usize::from(pair.far.bytes() != then);
        pair.there.close();
        let closed = pair.far.bytes();
        std::thread::sleep(Duration::from_millis(25));
        assert!(
            pair.far.bytes() == closed,
            "seed {seed}: bytes after the close"
        );
    }
    assert!(late > 0, "a close of the initiator stops nothing");
    assert!(watch().count(Count::Orphans) > 0);
}

#[test]
fn data_may_come_after_the_initiator_was_told_and_a_close_drops_it() {
    const WRITES: usize = 20;
    for profile in ["efa-direct", "efa"] {
        let fabric = Fabric::soft(&format!("profile={profile},again=0,data_us=400000"));
        let pair = Pair::new(&fabric, 64);
        let mut work = pair.work(64);
        work.data = Some(7);
        let mut seen = pair.seen();
        for _ in 0..WRITES {
            let context = pair.here.write(&work, &mut seen);
            assert_eq!(seen.wait(0, context).error, 0, "{profile}");
        }
        let come = seen.done[1].len();
        assert!(come < WRITES, "{profile}: {come} of {WRITES}");
        let before = watch().count(Count::DroppedCompletions);
        pair.there.close();
        assert!(
            watch().count(Count::DroppedCompletions) > before,
            "{profile}"
        );
    }
}

#[test]
fn every_byte_is_right_and_every_operation_told_once_by_many_seeds() {
    const BYTES: usize = 16_384;
    for seed in 1..=40 {
        let profile = ["efa-direct", "efa"][seed % 2];
        let fabric = Fabric::soft(&format!("profile={profile},again=300,seed={seed}"));
        let (here, there) = (End::new(&fabric), End::new(&fabric));
        let pair = Pair::of(here, there, BYTES);
        let mut dice = fastrand::Rng::with_seed(seed as u64);
        let sent = bytes(&mut dice, BYTES);
        pair.near.set(&sent);
        let mut seen = pair.seen();
        let mut told = Vec::new();
        let mut posted = Vec::new();
        let mut at = 0;
        while at < BYTES {
            let count = dice.usize(1..=2000).min(BYTES - at);
            let mut work = pair.work(count);
            work.offset = at;
            work.remote = pair.far.remote(at);
            posted.push(pair.here.write(&work, &mut seen));
            at += count;
        }
        until("all are told", || {
            seen.look();
            told.append(&mut seen.done[0]);
            (told.len() >= posted.len()).then_some(())
        });
        assert!(pair.far.bytes() == sent, "seed {seed}");
        let mut contexts: Vec<usize> = told.iter().map(|done| done.context).collect();
        contexts.sort_unstable();
        posted.sort_unstable();
        assert_eq!(contexts, posted, "seed {seed}");
        assert!(told.iter().all(|done| done.error == 0), "seed {seed}");
    }
}
