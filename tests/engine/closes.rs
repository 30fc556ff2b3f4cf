//! Two engines are closed in either order, and at once, while they move bytes.

use softhca::Hca;
use warpverbs::internal::engine::{CloseReport, HostMemory, Outcome, Status};

use crate::drivers::engine_on;
use crate::rig::{Side, config, connect, device};

const MIB: u64 = 1 << 20;
const EACH: u64 = 6;

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
