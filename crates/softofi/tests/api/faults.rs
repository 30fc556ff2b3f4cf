//! Planted faults, which no provider may have: each does what it says, so that tests of programs can show that they find it.

use std::time::Duration;

use softofi::Count;

use crate::rig::{Fabric, Pair, until, watch};

#[test]
fn an_early_completion_comes_before_the_last_byte() {
    for profile in ["efa-direct", "efa"] {
        let config = format!("profile={profile},again=0,late_us=100,fault=early,early_ms=20");
        let fabric = Fabric::soft(&config);
        for bytes in [1, 4096, 200_000] {
            // When the machine is busy, the byte may be there before this thread has looked.
            let is_seen = (0..20).any(|_| is_early(&fabric, bytes));
            assert!(is_seen, "{profile}, {bytes} bytes");
        }
    }
}

/// Whether a write is told of while a byte of it is missing.
fn is_early(fabric: &Fabric, bytes: usize) -> bool {
    let pair = Pair::new(fabric, bytes);
    pair.near.set(&vec![1; bytes]);
    let before = watch().count(Count::Early);
    let mut seen = pair.seen();
    let context = pair.here.write(&pair.work(bytes), &mut seen);
    assert_eq!(seen.wait(0, context).error, 0);
    let is_whole = pair.far.bytes().iter().all(|byte| *byte == 1);
    until("the last byte lands", || {
        seen.look();
        pair.far.bytes().iter().all(|byte| *byte == 1).then_some(())
    });
    assert!(watch().count(Count::Early) > before);
    assert!(seen.done[0].is_empty(), "told once");
    !is_whole
}

#[test]
fn a_lost_completion_never_comes_though_the_bytes_do() {
    let fabric = Fabric::soft("again=0,late_us=0,fault=lost");
    let pair = Pair::new(&fabric, 64);
    pair.near.set(&[1; 64]);
    let mut seen = pair.seen();
    pair.here.write(&pair.work(64), &mut seen);
    until("the bytes land", || {
        seen.look();
        (pair.far.bytes() == [1; 64]).then_some(())
    });
    std::thread::sleep(Duration::from_millis(50));
    seen.look();
    assert!(seen.done[0].is_empty());
    assert!(watch().count(Count::Lost) > 0);
}

#[test]
fn a_double_completion_comes_twice() {
    let fabric = Fabric::soft("again=0,late_us=0,fault=double");
    let pair = Pair::new(&fabric, 64);
    let mut seen = pair.seen();
    let context = pair.here.write(&pair.work(64), &mut seen);
    seen.wait(0, context);
    seen.wait(0, context);
    assert!(watch().count(Count::Doubled) > 0);
}

#[test]
fn rates_of_faults_hit_some_operations_and_not_others() {
    let fabric = Fabric::soft("again=0,late_us=0,lost=200,seed=3");
    let pair = Pair::new(&fabric, 64);
    for _ in 0..100 {
        pair.here.try_write(&pair.work(64)).unwrap();
    }
    let mut told = 0;
    until("most are told", || {
        told += pair.here.completions().len();
        (told >= 60).then_some(())
    });
    std::thread::sleep(Duration::from_millis(100));
    told += pair.here.completions().len();
    assert!((60..95).contains(&told), "{told} of 100");
}
