//! Tests of each order of data: what may be seen, what may not be seen, and that all bytes are placed in the end.

use super::*;
use crate::device::memory::tests_memory;

const QPN: u32 = 0x40;
const LONGEST: Duration = Duration::from_micros(100);
const FAR: u64 = 1_000_000_000;

fn pending(seed: u64) -> PendingWrites {
    let adversary = Adversary {
        longest: LONGEST,
        ..Adversary::new(seed)
    };
    PendingWrites::new(Some(adversary), 0)
}

fn arrival(target: Region, bytes: &[u8], relaxed: bool) -> Arrival {
    Arrival {
        targets: vec![target],
        data: bytes.to_vec(),
        relaxed,
    }
}

fn words(memory: &Region) -> Vec<u64> {
    let mut bytes = vec![0; memory.length()];
    memory.read(0, &mut bytes);
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    bytes.chunks_exact(8).map(word).collect()
}

/// Writes 1 to 16 words, one after the other, each in a line of its own, and looks at the words after each microsecond. Returns whether a
/// later word was seen before an earlier word.
fn overtaking(order: DataOrder, relaxed: bool, seed: u64) -> bool {
    let mut memory = [0u64; 128];
    let all = tests_memory(&mut memory);
    let mut pending = pending(seed);
    for word in 0..16 {
        let target = all.part(word * 64, 8).unwrap();
        let one = arrival(target, &1u64.to_ne_bytes(), relaxed);
        pending.accept(QPN, order, one, 0);
    }
    let mut overtook = false;
    for now_ns in (0..=200_000).step_by(1000) {
        pending.place_due(now_ns);
        let seen: Vec<u64> = words(&all).into_iter().step_by(8).collect();
        overtook |= !seen.is_sorted_by(|a, b| a >= b);
    }
    let seen: Vec<u64> = words(&all).into_iter().step_by(8).collect();
    assert_eq!(seen, [1; 16], "seed {seed}");
    overtook
}

#[test]
fn strict_writes_of_a_qp_keep_order_only_if_the_device_promises_it() {
    for seed in 0..200 {
        assert!(!overtaking(DataOrder::InOrder, false, seed), "seed {seed}");
    }
    for (order, relaxed) in [
        (DataOrder::InOrder, true),
        (DataOrder::AtomicsOrdered, false),
        (DataOrder::FlushOnly, false),
    ] {
        let seen = (0..20).filter(|seed| overtaking(order, relaxed, *seed));
        assert!(seen.count() > 10, "{order}, relaxed: {relaxed}");
    }
}

#[test]
fn a_strict_write_comes_after_the_relaxed_ones_before_it() {
    for seed in 0..200 {
        let mut memory = [0u64; 1024];
        let all = tests_memory(&mut memory);
        let mut pending = pending(seed);
        let data = all.part(64, 8128).unwrap();
        pending.accept(QPN, DataOrder::InOrder, arrival(data, &[7; 8128], true), 0);
        let flag = all.part(0, 8).unwrap();
        let one = arrival(flag, &1u64.to_ne_bytes(), false);
        pending.accept(QPN, DataOrder::InOrder, one, 0);
        for now_ns in (0..=200_000).step_by(500) {
            pending.place_due(now_ns);
            let seen = words(&all);
            if seen[0] == 1 {
                assert!(
                    seen[8..].iter().all(|word| *word == 0x0707_0707_0707_0707),
                    "seed {seed} at {now_ns}"
                );
            }
        }
        assert_eq!(words(&all)[0], 1, "seed {seed}");
    }
}

#[test]
fn atomics_and_reads_force_what_their_device_promises_and_no_more() {
    let table = [
        (DataOrder::InOrder, true, true),
        (DataOrder::AtomicsOrdered, true, false),
        (DataOrder::FlushOnly, false, false),
    ];
    for (order, atomic, read) in table {
        for (is_atomic, forces) in [(true, atomic), (false, read)] {
            let mut early = 0;
            for seed in 0..200 {
                let mut memory = [0u64; 512];
                let all = tests_memory(&mut memory);
                let mut pending = pending(seed);
                pending.accept(QPN, order, arrival(all, &[1; 4096], true), 0);
                if is_atomic {
                    pending.before_atomic(QPN, order)
                } else {
                    pending.before_read(QPN, order)
                }
                let whole = words(&all).iter().all(|word| *word != 0);
                assert!(whole || !forces, "{order} seed {seed}");
                early += u32::from(!whole);
                pending.force(QPN);
                assert!(words(&all).iter().all(|word| *word != 0), "seed {seed}");
            }
            assert_eq!(early > 0, !forces, "{order}, atomic: {is_atomic}");
        }
    }
}

#[test]
fn a_retry_repeats_only_what_was_not_acknowledged() {
    assert!(repeated(true) > 0, "no retry was seen");
}

#[test]
fn an_adversary_that_repeats_nothing_brings_no_older_write_back() {
    assert_eq!(repeated(false), 0);
}

/// Returns how often an older write was seen again after a later one, in some hundred runs.
fn repeated(repeats: bool) -> u32 {
    let mut repeated = 0;
    for seed in 0..400 {
        let mut memory = [0u64; 8];
        let all = tests_memory(&mut memory);
        let first = all.part(0, 8).unwrap();
        let adversary = Adversary {
            longest: LONGEST,
            repeats,
            ..Adversary::new(seed)
        };
        let mut pending = PendingWrites::new(Some(adversary), 0);
        let write = |value: u64| arrival(first, &value.to_ne_bytes(), false);
        pending.accept(QPN, DataOrder::InOrder, write(1), 0);
        pending.force(QPN);
        assert_eq!(words(&all)[0], 1);
        // The receiver clears the word: the first write must not come back.
        first.write(0, &0u64.to_ne_bytes());
        for value in 2..20 {
            pending.accept(QPN, DataOrder::InOrder, write(value), 0);
        }
        let mut highest = 0;
        for now_ns in 0..3000 {
            pending.place_due(now_ns * 100);
            let seen = words(&all)[0];
            assert_ne!(seen, 1, "seed {seed}");
            repeated += u32::from(seen < highest);
            highest = highest.max(seen);
        }
        assert_eq!(
            words(&all)[0],
            19,
            "seed {seed}: the last write is the last"
        );
    }
    repeated
}

#[test]
fn words_are_never_torn_and_all_bytes_of_odd_places_come() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut memory = [0u64; 256];
        let all = tests_memory(&mut memory);
        let (at, bytes) = (random.usize(0..1000), random.usize(1..1000));
        let data: Vec<u8> = std::iter::repeat_with(|| random.u8(1..))
            .take(bytes)
            .collect();
        let target = all.part(at as u64, bytes as u64).unwrap();
        let mut pending = pending(seed);
        pending.accept(QPN, DataOrder::FlushOnly, arrival(target, &data, true), 0);
        let mut want = vec![0; 2048];
        want[at..at + bytes].copy_from_slice(&data);
        for now_ns in (0..=100_000).step_by(5000) {
            pending.place_due(now_ns);
            let mut seen = vec![0; 2048];
            all.read(0, &mut seen);
            for (seen, want) in seen.chunks(8).zip(want.chunks(8)) {
                let there = seen == want || seen.iter().all(|byte| *byte == 0);
                assert!(there, "seed {seed} at {now_ns}: {seen:?} of {want:?}");
            }
        }
        let mut seen = vec![0; 2048];
        all.read(0, &mut seen);
        assert_eq!(seen, want, "seed {seed}");
    }
}

#[test]
fn qps_have_no_order_between_them_and_force_all_leaves_nothing() {
    let mut second_first = 0;
    for seed in 0..100 {
        let mut memory = [0u64; 16];
        let all = tests_memory(&mut memory);
        let mut pending = pending(seed);
        for (qpn, word) in [(QPN, 0), (QPN + 1, 8)] {
            let target = all.part(word * 8, 8).unwrap();
            let one = arrival(target, &1u64.to_ne_bytes(), false);
            pending.accept(qpn, DataOrder::InOrder, one, 0);
        }
        second_first += u32::from(words(&all)[0] < words(&all)[8]);
        pending.force_all();
        assert_eq!((words(&all)[0], words(&all)[8]), (1, 1), "seed {seed}");
        assert_eq!(pending.place_due(FAR), (false, None));
    }
    assert!(second_first > 0);
}

#[test]
fn so_many_chunks_wait_that_more_are_placed_at_once() {
    let mut memory = [0u64; 1];
    let all = tests_memory(&mut memory);
    let mut pending = pending(1);
    for value in 1..=3 * MOST_CHUNKS as u64 {
        let one = arrival(all, &value.to_ne_bytes(), false);
        pending.accept(QPN, DataOrder::InOrder, one, 0);
        assert!(pending.waiting <= MOST_CHUNKS + RETRY_WRITES, "{value}");
    }
    pending.force(QPN);
    assert_eq!(words(&all), [3 * MOST_CHUNKS as u64]);
    assert_eq!(pending.waiting, 0);
}

#[test]
fn orders_and_adversaries_are_read_from_text() {
    for order in [
        DataOrder::InOrder,
        DataOrder::AtomicsOrdered,
        DataOrder::FlushOnly,
    ] {
        assert_eq!(order.to_string().parse(), Ok(order));
    }
    assert!("ordered".parse::<DataOrder>().is_err());
    assert_eq!("7".parse(), Ok(Adversary::new(7)));
    let long = Adversary {
        longest: Duration::from_secs(1),
        ..Adversary::new(7)
    };
    assert_eq!("7:1000000".parse(), Ok(long));
    for bad in [
        "",
        "x",
        "7:",
        "7:1000001",
        "7:1:1",
        "-1",
        "+7",
        "07",
        "7:01",
    ] {
        let error = bad.parse::<Adversary>().unwrap_err().to_string();
        assert!(error.contains("SEED:MICROSECONDS"), "{error}");
    }
}
