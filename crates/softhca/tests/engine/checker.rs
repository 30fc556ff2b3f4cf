//! What the checker finds, and that it finds nothing where nothing is wrong.

use mlx5_prm::cmd::Opcode;
use mlx5_prm::cqe::{Cqe64, CqeOpcode};
use mlx5_prm::qp::Qpc;
use softhca::device::Simulation;
use softhca::wire::config::CarrierConfig;
use softhca::wire::memory::Network;
use softhca::{CheckConfig, Finding, Hca, HcaConfig};
use softhca_rig::patience::{HANG, wait_until};
use softhca_rig::{End, Pair, Shape};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Turns after which a device that has not come to rest is taken to hang.
const TURNS: usize = 100_000;

/// The peer sleeps until it is woken: what is sent to it is fetched and waits, what is posted after that is not fetched.
const PAUSE: Duration = HANG.saturating_mul(2);

fn checked(list: &str) -> HcaConfig {
    HcaConfig {
        check: list.parse::<CheckConfig>().unwrap(),
        ..HcaConfig::default()
    }
}

fn pair(list: &str) -> Pair {
    Pair::with(&checked(list), Shape::default(), Shape::default())
}

fn count(hca: &Hca, finding: Finding) -> u64 {
    hca.finding_counts().get(&finding).copied().unwrap_or(0)
}

fn all_well(cqes: &[Cqe64]) -> bool {
    cqes.iter().all(|cqe| cqe.opcode() == CqeOpcode::REQ)
}

/// Waits for a finding.
#[track_caller]
fn found(hca: &Hca, finding: Finding, words: &str) {
    wait_until(&finding.to_string(), || count(hca, finding) > 0);
    let texts = hca.findings();
    assert!(
        texts.iter().any(|text| text.contains(words)),
        "{words:?} is not in {texts:#?}"
    );
}

/// Two writes towards a peer that sleeps: the first is under way, the second waits in the ring.
fn one_under_way_and_one_waiting(pair: &mut Pair) -> [u16; 2] {
    pair.hca_b.pause(PAUSE);
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let indices = [0, 8].map(|at| pair.a.write(at, 8, remote + at, rkey));
    pair.a.post();
    fetched(&pair.hca_a, 1);
    indices
}

/// Waits until the device has fetched so many WQEs.
fn fetched(hca: &Hca, count: u64) {
    wait_until("WQEs are fetched", || hca.counters().wqes >= count);
    assert_eq!(hca.counters().wqes, count);
}

/// Where a WRITE without immediate has 4 bytes that mean nothing.
const UNUSED: usize = 12;

#[test]
fn a_wqe_changed_between_doorbell_and_fetch_is_found_and_others_are_not() {
    let mut pair = pair("wqe");
    let [_, second] = one_under_way_and_one_waiting(&mut pair);
    pair.a.overwrite(second, UNUSED, &[1, 2, 3, 4]);
    pair.hca_b.pause(Duration::ZERO);
    assert!(all_well(&[pair.a.completion(), pair.a.completion()]));
    found(
        &pair.hca_a,
        Finding::WqeChangedBeforeFetch,
        &format!("QP {:#x}: WQE {second} was changed", pair.a.qpn),
    );
    assert_eq!(pair.hca_a.counters().findings, 1);
}

#[test]
fn a_wqe_that_is_changed_between_fetch_and_completion_is_found() {
    let mut pair = pair("all");
    let [first, _] = one_under_way_and_one_waiting(&mut pair);
    pair.a.overwrite(first, UNUSED, &[1, 2, 3, 4]);
    pair.hca_b.pause(Duration::ZERO);
    assert!(all_well(&[pair.a.completion(), pair.a.completion()]));
    found(
        &pair.hca_a,
        Finding::WqeChangedBeforeCompletion,
        &format!("QP {:#x}: WQE {first} was changed", pair.a.qpn),
    );
    assert_eq!(pair.hca_a.counters().findings, 1);
}

#[test]
fn nothing_is_found_where_nothing_is_changed_or_looked_at() {
    // A ring used many times over, slots filled again as soon as they are free.
    let mut pair = pair("all");
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    for round in 0..20 {
        for at in 0..48 {
            pair.a.write(at * 8, 8, remote + at * 8, rkey);
        }
        assert!(all_well(&pair.a.run(48)), "round {round}");
    }
    pair.assert_clean();

    let mut pair = Pair::new(Shape::default());
    let [_, second] = one_under_way_and_one_waiting(&mut pair);
    pair.a.overwrite(second, UNUSED, &[1, 2, 3, 4]);
    pair.hca_b.pause(Duration::ZERO);
    pair.a.completion();
    pair.a.completion();
    pair.assert_clean();
}

#[test]
fn a_record_without_a_doorbell_is_found_and_one_with_a_late_one_is_not() {
    // On a clock of the test, so that late is what the test says.
    const LATE_NS: u64 = 9_000_000_000;
    const TOO_LATE_NS: u64 = 11_000_000_000;
    // How long an idle engine sleeps.
    const SLEEP_NS: u64 = 4_000_000;
    let simulation = Simulation::new();
    let network = Network::with_latency(1000);
    let hca = simulation
        .hca(&HcaConfig {
            ip: Some(Ipv4Addr::new(10, 0, 0, 1)),
            carrier: CarrierConfig::Memory(network),
            ..HcaConfig::default()
        })
        .unwrap();
    let mut end = End::new(&hca, Shape::default());
    end.connect(hca.gid(), end.qpn, 7);
    let pass = |time_ns: u64| {
        for _ in 0..time_ns / SLEEP_NS {
            simulation.step(simulation.now_ns() + SLEEP_NS);
        }
    };
    end.nop(true);
    end.record();
    pass(LATE_NS);
    assert_eq!(hca.findings(), [""; 0]);
    end.ring();
    assert!(simulation.run(TURNS));
    assert!(all_well(&[end.poll_for(Duration::ZERO, |_| true).unwrap()]));
    assert_eq!(hca.findings(), [""; 0]);

    end.nop(true);
    end.record();
    pass(TOO_LATE_NS);
    found(
        &hca,
        Finding::RecordWithoutDoorbell,
        "the doorbell record says 2, but no doorbell came since 1",
    );
    end.ring();
    assert!(simulation.run(TURNS));
    assert!(all_well(&[end.poll_for(Duration::ZERO, |_| true).unwrap()]));
    assert_eq!(hca.counters().findings, 1);
}

#[test]
fn a_doorbell_without_its_record_is_found_for_both_ways_to_ring() {
    for names_last in [false, true] {
        let mut pair = Pair::new(Shape::default());
        let index = pair.a.nop(true);
        if names_last {
            // The first 8 bytes of the last WQE, as libmlx5 stores them.
            pair.a.ring_last(index);
        } else {
            pair.a.ring();
        }
        found(
            &pair.hca_a,
            Finding::DoorbellWithoutRecord,
            "but the doorbell record says 0",
        );
        pair.a.record();
        pair.a.ring();
        assert!(all_well(&[pair.a.completion()]));

        let index = pair.b.nop(true);
        pair.b.record();
        if names_last {
            pair.b.ring_last(index);
        } else {
            pair.b.ring();
        }
        pair.b.completion();
        // Again for nothing new, as a program may.
        let before = pair.hca_b.counters().doorbells;
        pair.b.ring();
        wait_until("the doorbell is taken", || {
            pair.hca_b.counters().doorbells > before
        });
        assert_eq!(pair.hca_b.findings(), [""; 0]);
    }
}

#[test]
fn the_first_doorbell_after_a_reset_is_measured_from_0() {
    let mut pair = Pair::new(Shape::default());
    for _ in 0..5 {
        pair.a.nop(true);
    }
    pair.a.run(5);
    let kept = pair.a.index;
    pair.a.modify(Opcode::TO_RST_QP, Qpc::default()).unwrap();
    pair.a.connect(pair.hca_b.gid(), pair.b.qpn, 7);
    // A program that goes on counting where it was, and further than the ring is long.
    pair.a.record_as(kept + 64);
    pair.a.ring();
    found(
        &pair.hca_a,
        Finding::DoorbellBeyondRing,
        "the first doorbell record says 69, but the ring has 64 WQEBBs",
    );

    // So far that it could be taken for a step back.
    let mut far = Pair::new(Shape::default());
    far.a.record_as(40_000);
    far.a.ring();
    found(
        &far.hca_a,
        Finding::DoorbellBeyondRing,
        "the first doorbell record says 40000",
    );
    assert_eq!(count(&far.hca_a, Finding::DoorbellBackwards), 0);
    assert_eq!(far.a.completion().opcode(), CqeOpcode::REQ_ERR);

    pair.b.reset();
    pair.b.connect(pair.hca_a.gid(), pair.a.qpn, 7);
    pair.b.nop(true);
    assert!(all_well(&pair.b.run(1)));
    assert_eq!(count(&pair.hca_b, Finding::DoorbellBeyondRing), 0);
}

#[test]
fn a_record_that_goes_back_is_found() {
    let mut pair = Pair::new(Shape::default());
    for _ in 0..3 {
        pair.a.nop(true);
    }
    pair.a.run(3);
    pair.a.record_as(1);
    pair.a.ring();
    found(
        &pair.hca_a,
        Finding::DoorbellBackwards,
        "went back from 3 to 1",
    );
    assert_eq!(count(&pair.hca_b, Finding::DoorbellBackwards), 0);
}

#[test]
fn a_key_used_after_its_end_differs_from_one_that_never_was() {
    let mut pair = Pair::new(Shape::default());
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    pair.b.context.dereg_mr(pair.b.keys.lkey).unwrap();
    pair.a.write(0, 8, remote, rkey);
    assert!(!all_well(&pair.a.run(1)));
    found(
        &pair.hca_b,
        Finding::KeyEnded,
        &format!("its peer uses key {rkey:#x}, which was ended"),
    );
    assert_eq!(count(&pair.hca_b, Finding::RemoteKey), 0);

    let mut pair = Pair::new(Shape::default());
    let lkey = pair.a.keys.lkey;
    pair.a.context.dereg_mr(lkey).unwrap();
    pair.a.write(0, 8, pair.b.data.address(), pair.b.keys.rkey);
    assert!(!all_well(&pair.a.run(1)));
    found(
        &pair.hca_a,
        Finding::KeyEnded,
        &format!("a WQE uses key {lkey:#x}, which was ended"),
    );
    assert_eq!(count(&pair.hca_a, Finding::LocalKey), 0);

    let mut pair = Pair::new(Shape::default());
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    pair.a.write(0, 8, remote, rkey ^ 0x100);
    assert!(!all_well(&pair.a.run(1)));
    found(&pair.hca_b, Finding::RemoteKey, "no such key");
    assert_eq!(count(&pair.hca_b, Finding::KeyEnded), 0);
}

#[test]
fn a_cq_that_overruns_is_found() {
    let shape = Shape {
        log_cq: Some(1),
        ..Shape::default()
    };
    let mut pair = Pair::new(shape);
    for _ in 0..3 {
        pair.a.nop(true);
    }
    pair.a.post();
    found(
        &pair.hca_a,
        Finding::CqOverrun,
        "2 entries, 2 written and 0 consumed",
    );
    pair.b.nop(true);
    pair.b.nop(true);
    pair.b.run(2);
    assert_eq!(count(&pair.hca_b, Finding::CqOverrun), 0);
}

#[test]
fn writes_of_two_qps_to_one_range_at_once_are_found_if_asked_for() {
    for (list, distance, expected) in [("overlap", 7, true), ("overlap", 8, false), ("", 0, false)]
    {
        let hca_a = Hca::with_config(checked(list)).unwrap();
        let hca_b = Hca::new().unwrap();
        let mut ends: Vec<(End, End)> = (0..2)
            .map(|_| {
                let near = End::new(&hca_a, Shape::default());
                let far = End::new(&hca_b, Shape::default());
                near.connect(hca_b.gid(), far.qpn, 7);
                far.connect(hca_a.gid(), near.qpn, 7);
                (near, far)
            })
            .collect();
        hca_b.pause(PAUSE);
        let (remote, rkey) = (ends[0].1.data.address(), ends[0].1.keys.rkey);
        for (number, (near, _)) in (0..).zip(&mut ends) {
            // Twice on each QP: those are in order.
            near.write(0, 8, remote + number * distance, rkey);
            near.write(0, 8, remote + number * distance, rkey);
            near.post();
            fetched(&hca_a, number + 1);
        }
        // Both are under way: what is to be found has been found.
        let found = || count(&hca_a, Finding::Overlap) > 0;
        assert_eq!(found(), expected, "{list} {distance}");
        hca_b.pause(Duration::ZERO);
        for (near, _) in &mut ends {
            near.completion();
            near.completion();
        }
        // Once or more often: when the peer wakes, the second write of one QP may meet the first of the other.
        assert_eq!(found(), expected, "{list} {distance}");
    }
}
