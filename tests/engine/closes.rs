//! Two engines are closed in either order, and at once, while they move bytes. Or the queues of one lane are closed, and the rest goes on.

use std::ops::Range;
use std::time::{Duration, Instant};

use softhca::Hca;
use test_support::counts::full;
use test_support::limits::HANG;
use warpverbs::internal::engine::{CloseReport, HostMemory, Outcome, Peer, Status, TransferId};

use crate::drivers::engine_on;
use crate::rig::{End, Side, config, connect, device};

const MIB: u64 = 1 << 20;
const EACH: u64 = 6;
/// Bytes of a transfer of one slice, which is cancelled.
const LONG: u64 = 16 * MIB;
/// Bytes of each of the other transfers. Their places begin after those of the long one.
const TILE: u64 = 16 << 10;
const TILES: u64 = 32;
/// The tiles that the first end writes to the second, those that it reads from there, and those that the second end writes to the first.
const WRITTEN: Range<u64> = 0..12;
const READ: Range<u64> = 12..20;
const BACK: Range<u64> = 20..TILES;

/// Returns what an HCA has of engines.
fn objects(hca: &Hca) -> [usize; 5] {
    let live = hca.live_objects();
    [live.qp, live.cq, live.mr, live.mkey, live.umem]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    First,
    Second,
    AtOnce,
}

#[test]
pub(crate) fn two_engines_are_closed_in_either_order_and_at_once() {
    for order in [Order::First, Order::Second, Order::AtOnce] {
        for round in 0..4 {
            close(order, round);
        }
    }
}

/// The first engine has the second connected, and both write to each other.
fn close(order: Order, round: u64) {
    let devices = ["a", "b"].map(|_| device(softhca::HcaConfig::default()));
    let before = devices.each_ref().map(|(hca, _)| objects(hca));
    let [a, b] = [0, 1].map(|nth: usize| {
        let name = ["a", "b"][nth];
        let engine = engine_on(&devices[nth].1, config(name));
        Side::new(engine, HostMemory::new(4 * MIB).unwrap())
    });
    let [to_b, to_a] = connect(&a, &b);
    let of_a: Vec<_> = (0..EACH)
        .map(|_| to_b.write(a.at(0), b.at(0), 4 * MIB).unwrap())
        .collect();
    let of_b: Vec<_> = (0..EACH)
        .map(|_| to_a.read(b.at(0), a.at(0), 4 * MIB).unwrap())
        .collect();
    let reports: [CloseReport; 2] = match order {
        Order::First => [a.engine.close(), b.engine.close()],
        Order::Second => {
            let second = b.engine.close();
            [a.engine.close(), second]
        }
        Order::AtOnce => std::thread::scope(|scope| {
            let both = [&a, &b].map(|end| scope.spawn(|| end.engine.close()));
            both.map(|thread| thread.join().unwrap())
        }),
    };
    for (end, ids, report) in [(&a, &of_a, reports[0]), (&b, &of_b, reports[1])] {
        let outcomes = ids.iter().map(|id| end.engine.poll(*id).unwrap());
        let of = |wanted| {
            let found = outcomes.clone();
            found.filter(|it| *it == Status::Concluded(wanted)).count() as u64
        };
        let counts = [of(Outcome::Done), of(Outcome::Failed)];
        // The other end may have closed before: then they have failed, and none hangs.
        assert_eq!(counts.iter().sum::<u64>(), EACH, "{order:?} {round}");
        assert_eq!(counts, [report.done, report.failed], "{order:?} {round}");
        assert_eq!(end.engine.close(), report, "once more it only reports");
    }
    let first = match order {
        Order::First => Some(reports[0]),
        Order::Second => Some(reports[1]),
        Order::AtOnce => None,
    };
    // The one that is closed first waits for all that it has.
    let all = (EACH, 0, 0);
    assert!(first.is_none_or(|it| (it.done, it.failed, it.cut_off) == all));
    assert!(!to_b.is_open() && !to_a.is_open());
    // What is dropped goes in another order than it was made, or closed.
    match round % 2 {
        0 => drop((a, to_a, to_b, b)),
        _ => drop((to_b, b, a, to_a)),
    }
    let after = devices.each_ref().map(|(hca, _)| objects(hca));
    assert_eq!(after, before, "{order:?} {round}");
    for (hca, _) in &devices {
        assert_eq!(hca.findings(), Vec::<String>::new(), "{order:?} {round}");
    }
}

/// The offset of a tile.
fn tile(number: u64) -> u64 {
    LONG + number * TILE
}

fn tiles(end: &End) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(TILES * TILE).unwrap()];
    end.memory.read(tile(0), &mut bytes).unwrap();
    bytes
}

fn fill_tiles(end: &End, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(TILES * TILE).unwrap()];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    end.memory.write(tile(0), &bytes).unwrap();
    bytes
}

/// One slice is cancelled without a grace. So the queues of its lane are closed at both ends, while that lane and the other one move bytes
/// both ways.
#[test]
pub(crate) fn a_lane_that_is_closed_under_load_fails_no_other_transfer() {
    let closes = if full() { 100 } else { 5 };
    let [a, b] = ["a", "b"].map(|name| {
        let own = config(name).with_qps(2).with_slice(1 << 24);
        End::new(own.with_grace(Duration::ZERO), tile(TILES))
    });
    let [to_b, to_a] = connect(&a, &b);
    let begun = Instant::now();
    let mut round = 0;
    while to_b.resets() < closes || to_a.resets() < closes {
        let found = to_b.resets();
        let is_late = begun.elapsed() > HANG;
        assert!(!is_late, "{found} of {closes} closes in {round} rounds");
        round += 1;
        move_beside_a_close(round, [&a, &b], [&to_b, &to_a]);
    }
    println!("{} closes in {round} rounds", to_b.resets());
    for end in [&a, &b] {
        let all = end.engine.statistics();
        assert_eq!(all.done + all.cancelled, all.submitted, "{all:?}");
        assert_eq!(end.engine.in_use(), 0);
    }
    assert!(to_b.is_open() && to_a.is_open());
}

/// All transfers but the long one are done, and their bytes are right, whether a lane was closed in time or not.
fn move_beside_a_close(round: u64, [a, b]: [&End; 2], [to_b, to_a]: [&Peer; 2]) {
    let of_a = fill_tiles(a, 2 * round);
    let of_b = fill_tiles(b, 2 * round + 1);
    let posted = || a.engine.statistics().slices.posted;
    let before = posted();
    let long = to_b.write(a.at(0), b.at(0), LONG).unwrap();
    let begun = Instant::now();
    while posted() == before {
        assert!(begun.elapsed() < HANG, "round {round}: it is not posted");
        std::thread::yield_now();
    }
    let write = |nth| to_b.write(a.at(tile(nth)), b.at(tile(nth)), TILE).unwrap();
    let read = |nth| to_b.read(a.at(tile(nth)), b.at(tile(nth)), TILE).unwrap();
    let back = |nth| to_a.write(b.at(tile(nth)), a.at(tile(nth)), TILE).unwrap();
    let of_first: Vec<TransferId> = WRITTEN.map(write).chain(READ.map(read)).collect();
    let of_second: Vec<TransferId> = BACK.map(back).collect();
    a.engine.cancel(long).unwrap();
    for (end, ids) in [(a, of_first), (b, of_second)] {
        for id in ids {
            assert_eq!(end.concluded(id), Outcome::Done, "round {round}");
            end.engine.release(id).unwrap();
        }
    }
    let outcome = a.concluded(long);
    let is_expected = matches!(outcome, Outcome::Cancelled | Outcome::Done);
    assert!(is_expected, "round {round}: {outcome:?}");
    a.engine.release(long).unwrap();
    let written = usize::try_from(WRITTEN.end * TILE).unwrap();
    let expected = [&of_a[..written], &of_b[written..]].concat();
    for end in [a, b] {
        assert!(tiles(end) == expected, "round {round}");
    }
}
