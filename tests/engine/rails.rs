//! Engines on several HCAs: each carries a part of a transfer, and one that fails holds nothing up.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use softhca::device::FaultSpec;
use softhca::profile::Profile;
use softhca::{Hca, HcaConfig};
use test_basics::limits::until;
use warpverbs::config::PathConfig;
use warpverbs::internal::engine::{
    Engine, EngineConfig, EngineError, HostError, HostMemory, Kind, Operation, OperationStatus,
    Options, Outcome, Peer, Remote, Rights,
};
use warpverbs::verbs::Context;

use crate::rig::{Side, config, connect, device};

const MIB: u64 = 1 << 20;
/// Transport retry counter exceeded.
const NO_ANSWER: u8 = 0x15;

/// An engine on several HCAs, with one region.
pub(crate) struct Striped {
    side: Side,
    contexts: Vec<Arc<Context>>,
    /// Go last.
    pub(crate) hcas: Vec<Hca>,
}

impl Deref for Striped {
    type Target = Side;

    fn deref(&self) -> &Side {
        &self.side
    }
}

impl Striped {
    fn new(name: &str, rails: usize) -> Self {
        Self::with(config(name).with_qps(8), rails, true)
    }

    /// `loopback`: between HCAs of this process bytes are copied. Else all goes in packets.
    pub(crate) fn with(config: EngineConfig, rails: usize, loopback: bool) -> Self {
        Self::of(config, &vec![Profile::default(); rails], loopback)
    }

    /// On these cards.
    fn of(config: EngineConfig, cards: &[Profile], loopback: bool) -> Self {
        let devices = cards.iter().map(|profile| {
            device(HcaConfig {
                loopback,
                profile: *profile,
                ..HcaConfig::default()
            })
        });
        let (hcas, contexts): (Vec<Hca>, Vec<_>) = devices.unzip();
        let engine = Engine::on(&contexts, config).unwrap();
        Self {
            side: Side::new(engine, HostMemory::new(MIB).unwrap()),
            contexts,
            hcas,
        }
    }

    /// WRITEs and READs that each HCA was given.
    fn requests(&self) -> Vec<u64> {
        let counters = self.hcas.iter().map(Hca::counters);
        let requests = counters.map(|it| it.write_requests + it.read_requests);
        requests.collect()
    }
}

fn rests(end: &Striped) -> Vec<u64> {
    let rails = end.engine.rails();
    rails.iter().map(|rail| rail.rests).collect()
}

/// All of the region, in slices of 4 KiB: more slices than any QP holds.
fn whole(kind: Kind, from: &Striped, to: &Striped) -> Operation {
    Operation {
        kind,
        local: from.at(0),
        remote: to.at(0),
        bytes: MIB,
    }
}

fn short_slices(name: &str) -> EngineConfig {
    config(name).with_qps(8).with_slice(4096).with_fragment(0)
}

#[test]
fn each_rail_carries_a_part_and_every_byte_is_right() {
    for (own, theirs) in [(1, 1), (2, 2), (4, 4), (2, 1), (1, 3), (3, 2), (8, 8)] {
        let a = Striped::with(short_slices("a"), own, true);
        let b = Striped::with(short_slices("b"), theirs, true);
        let [to_b, to_a] = connect(&a, &b);
        assert_eq!([to_b.qps(), to_a.qps()], [8, 8]);
        // Which worker runs first is the system's to say: all of them do in the end.
        let (mut seed, mut moved) = (0, 0);
        until("every rail has carried a part", || {
            moved += 2 * MIB;
            for (from, to, peer, kind) in [
                (&a, &b, &to_b, Kind::Write),
                (&b, &a, &to_a, Kind::Write),
                (&a, &b, &to_b, Kind::Read),
            ] {
                seed += 1;
                let (source, target) = match kind {
                    Kind::Write => (from, to),
                    Kind::Read => (to, from),
                };
                let expected = source.fill(seed);
                let id = peer
                    .submit(&[whole(kind, from, to)], &Options::default())
                    .unwrap();
                assert_eq!(from.concluded(id), Outcome::Done, "{own} {theirs} {kind}");
                assert!(target.bytes() == expected, "{own} {theirs} {kind}");
                from.engine.release(id).unwrap();
            }
            a.requests().iter().chain(&b.requests()).all(|it| *it > 0)
        });
        let rails = a.engine.rails();
        assert_eq!(
            rails.iter().map(|it| it.slices.posted_bytes).sum::<u64>(),
            moved
        );
        for (rail, hca) in rails.iter().zip(&a.hcas) {
            assert_eq!(rail.device, hca.name());
            assert!(rail.slices.posted_bytes > 0 || theirs > own, "{rail:?}");
        }
    }
}

#[test]
fn a_rail_that_completes_nothing_holds_two_chains_at_most() {
    const CHAIN: u32 = 4;
    let short = |name| short_slices(name).with_qps(2).with_chain(CHAIN);
    let (a, b) = (
        Striped::with(short("a"), 2, true),
        Striped::with(short("b"), 2, true),
    );
    let [to_b, _] = connect(&a, &b);
    a.hcas[1].pause(Duration::from_secs(3600));
    let expected = a.fill(1);
    // Together more slices than both QPs hold.
    let ids = [(); 4].map(|()| {
        let whole = whole(Kind::Write, &a, &b);
        to_b.submit(&[whole], &Options::default()).unwrap()
    });
    until("all are posted", || {
        let all = a.engine.statistics();
        all.slices.posted == all.queued
    });
    let [works, stands] = [0, 1].map(|rail| a.engine.rails()[rail].slices.posted);
    assert!(stands <= 2 * u64::from(CHAIN), "{stands} of {works}");
    a.hcas[1].pause(Duration::ZERO);
    for id in ids {
        assert_eq!(a.concluded(id), Outcome::Done);
    }
    assert!(b.bytes() == expected);
}

#[test]
fn small_transfers_take_the_rails_in_turn() {
    let (a, b) = (Striped::new("a", 4), Striped::new("b", 4));
    let [to_b, _] = connect(&a, &b);
    for nth in 0..64 {
        let id = to_b.write(a.at(nth * 64), b.at(nth * 64), 64).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
    }
    assert_eq!(a.requests(), [16; 4]);
}

#[test]
fn a_faster_port_gets_more_small_transfers_by_the_ratio_of_speeds() {
    for (cards, expected) in [
        // 200 and 400 Gb/s.
        ([Profile::ConnectX6, Profile::ConnectX7], [20, 40]),
        ([Profile::ConnectX7, Profile::ConnectX6], [40, 20]),
        // 100 and 400 Gb/s.
        ([Profile::ConnectX6Dx, Profile::ConnectX7], [12, 48]),
        ([Profile::ConnectX7, Profile::ConnectX7], [30, 30]),
    ] {
        let a = Striped::of(config("a").with_qps(8), &cards, true);
        let b = Striped::new("b", 2);
        let [to_b, to_a] = connect(&a, &b);
        for nth in 0..60 {
            let id = to_b.write(a.at(nth * 64), b.at(nth * 64), 64).unwrap();
            assert_eq!(a.concluded(id), Outcome::Done);
        }
        assert_eq!(a.requests(), expected, "{cards:?}");
        // The other end has two ports of one speed.
        for nth in 0..60 {
            let id = to_a.write(b.at(nth * 64), a.at(nth * 64), 64).unwrap();
            assert_eq!(b.concluded(id), Outcome::Done);
        }
        assert_eq!(b.requests(), [30, 30], "{cards:?}");
    }
}

/// Ends of two rails whose HCAs soon give a peer up.
fn impatient() -> (Striped, Striped, [Peer; 2]) {
    let path = PathConfig::default()
        .with_ack_timeout(Some(12))
        .with_retry_count(1);
    let [a, b] = ["a", "b"].map(|name| Striped::with(short_slices(name).with_path(path), 2, false));
    let peers = connect(&a, &b);
    (a, b, peers)
}

#[test]
fn a_rail_that_dies_fails_no_transfer_and_its_qps_are_used_again() {
    for kind in [Kind::Write, Kind::Read] {
        let (a, b, [to_b, to_a]) = impatient();
        a.hcas[1].set_faults(&"partition=*".parse().unwrap());
        let (source, target) = match kind {
            Kind::Write => (&a, &b),
            Kind::Read => (&b, &a),
        };
        let mut seed = 0;
        until("a QP of the dead rail has failed", || {
            seed += 1;
            let expected = source.fill(seed);
            let id = to_b
                .submit(&[whole(kind, &a, &b)], &Options::default())
                .unwrap();
            assert_eq!(a.concluded(id), Outcome::Done, "{kind}");
            let report = a.engine.report(id).unwrap();
            assert_eq!((report.bytes_landed, report.remote), (MIB, Remote::Quiet));
            assert_eq!(report.operations, [OperationStatus::Done]);
            assert!(target.bytes() == expected, "{kind}");
            a.engine.release(id).unwrap();
            to_b.resets() > 0
        });
        a.hcas[1].set_faults(&FaultSpec::default());
        assert!(to_b.is_open() && to_a.is_open());
    }
}

#[test]
fn a_dead_rail_rests_and_works_again_behind_a_probe() {
    let (a, b, [to_b, _]) = impatient();
    a.hcas[1].set_faults(&"partition=*".parse().unwrap());
    let mut seed = 0;
    let mut write = || {
        seed += 1;
        let expected = a.fill(seed);
        let id = to_b
            .submit(&[whole(Kind::Write, &a, &b)], &Options::default())
            .unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        assert!(b.bytes() == expected);
        a.engine.release(id).unwrap();
        a.engine.rails()[1].clone()
    };
    until("the rail rests", || write().rests == 1);
    a.hcas[1].set_faults(&FaultSpec::default());
    let mut before = 0;
    until("nothing is posted on it", || {
        let now = write().slices.posted_bytes;
        std::mem::replace(&mut before, now) == now
    });
    // It rests for 30 s.
    until("the rail is used again", || {
        write().slices.posted_bytes > before
    });
    assert_eq!(write().rests, 1);
}

/// The next WQEs that an HCA runs fail.
fn all_fail() -> FaultSpec {
    let fails = (1..=64).map(|nth| format!("cqe=wqe#{nth}:syndrome={NO_ANSWER:#x}"));
    fails.collect::<Vec<_>>().join(",").parse().unwrap()
}

#[test]
fn a_slice_that_has_failed_goes_to_another_rail_at_its_one_retry() {
    let own = short_slices("a").with_retry(1);
    let (a, b) = (
        Striped::with(own, 2, true),
        Striped::with(short_slices("b"), 2, true),
    );
    let [to_b, _] = connect(&a, &b);
    let mut seed = 0;
    until("slices have failed on the rail", || {
        a.hcas[1].set_faults(&all_fail());
        seed += 1;
        let expected = a.fill(seed);
        let id = to_b
            .submit(&[whole(Kind::Write, &a, &b)], &Options::default())
            .unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        assert!(b.bytes() == expected);
        let failed = a.engine.report(id).unwrap().first.is_some();
        a.engine.release(id).unwrap();
        failed
    });
}

#[test]
fn a_rail_whose_qps_fail_often_is_given_a_rest_while_another_works() {
    let a = Striped::with(short_slices("a"), 2, true);
    let b = Striped::with(short_slices("b"), 2, true);
    let [to_b, _] = connect(&a, &b);
    let fails = all_fail();
    let mut seed = 0;
    until("the rail rests", || {
        a.hcas[1].set_faults(&fails);
        seed += 1;
        let expected = a.fill(seed);
        let id = to_b
            .submit(&[whole(Kind::Write, &a, &b)], &Options::default())
            .unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        assert!(b.bytes() == expected);
        a.engine.release(id).unwrap();
        rests(&a) == [0, 1]
    });
    // The QPs that have not failed are ended too: from then on the other rail carries all.
    until("nothing is posted on it", || {
        let before = a.requests();
        for nth in 0..16 {
            let id = to_b.write(a.at(nth * 8), b.at(nth * 8), 8).unwrap();
            assert_eq!(a.concluded(id), Outcome::Done);
        }
        let after = a.requests();
        after[1] == before[1] && after[0] >= before[0] + 16
    });
    assert_eq!(rests(&b), [0, 0]);
}

#[test]
fn the_only_rail_is_never_given_a_rest() {
    let (a, b) = (Striped::new("a", 1), Striped::new("b", 1));
    let [to_b, _] = connect(&a, &b);
    for round in 1..=12 {
        a.hcas[0].set_faults(
            &format!("cqe=wqe#1:syndrome={NO_ANSWER:#x}")
                .parse()
                .unwrap(),
        );
        let id = to_b.write(a.at(0), b.at(0), 8).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        until("the pair is used again", || to_b.resets() == round);
    }
}

#[test]
fn a_grant_is_a_key_on_every_rail_until_it_is_revoked_on_all() {
    let a = Striped::with(short_slices("a"), 4, true);
    let b = Striped::with(short_slices("b"), 4, true);
    let [to_b, to_a] = connect(&a, &b);
    let expected = b.fill(5);
    let grant = to_a.grant(b.at(0), MIB, Rights::Read, None).unwrap();
    to_b.import_grant(&grant).unwrap();
    let mut keys: Vec<u32> = grant.rkeys.all()[..4].to_vec();
    assert!(keys.iter().all(|key| *key != 0) && grant.rkeys.all()[4..] == [0; 4]);
    keys.sort_unstable();
    until("every rail has read", || {
        a.fill(6);
        let id = to_b.read(a.at(0), grant.address, MIB).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        assert!(a.bytes() == expected);
        a.engine.release(id).unwrap();
        a.requests().iter().all(|it| *it > 0)
    });
    b.engine.revoke(&grant).unwrap();
    for nth in 0..16 {
        let id = to_b.read(a.at(nth * 64), grant.address, 64).unwrap();
        assert_eq!(a.concluded(id), Outcome::Failed, "{nth}");
        a.engine.release(id).unwrap();
    }
}

#[test]
fn a_key_that_one_rail_keeps_is_ended_by_the_next_revocation() {
    let (a, b) = (Striped::new("a", 2), Striped::new("b", 2));
    let [to_b, to_a] = connect(&a, &b);
    for rail in 0..2 {
        let grant = to_a.grant(b.at(0), 64, Rights::Read, None).unwrap();
        b.hcas[rail].set_faults(&"cmd=DESTROY_MKEY#1".parse().unwrap());
        assert!(matches!(
            b.engine.revoke(&grant),
            Err(HostError::Provider(_))
        ));
        assert_eq!(b.engine.grants(), 1);
        b.engine.revoke(&grant).unwrap();
        assert_eq!(b.engine.grants(), 0);
        b.hcas[rail].set_faults(&FaultSpec::default());
        // One rail that makes no key leaves none on the other.
        b.hcas[rail].set_faults(&"cmd=CREATE_MKEY#1".parse().unwrap());
        assert!(to_a.grant(b.at(0), 64, Rights::Read, None).is_err());
        assert_eq!(b.engine.grants(), 0);
        b.hcas[rail].set_faults(&FaultSpec::default());
    }
    let id = to_b.write(a.at(0), b.at(0), MIB).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
}

#[test]
fn devices_that_are_none_many_or_twice_are_refused() {
    let end = Striped::new("a", 1);
    let context = &end.contexts[0];
    let refused =
        |contexts: &[Arc<Context>], qps| match Engine::on(contexts, config("b").with_qps(qps)) {
            Err(HostError::Refused(error)) => error,
            other => panic!("{other:?}"),
        };
    assert_eq!(refused(&[], 8), EngineError::Devices { count: 0 });
    let nine = vec![Arc::clone(context); 9];
    assert_eq!(refused(&nine, 8), EngineError::Devices { count: 9 });
    let twice = vec![Arc::clone(context); 2];
    let name = end.hcas[0].name().to_owned();
    assert_eq!(refused(&twice, 8), EngineError::SameDevice { name });
    let other = Striped::new("c", 1);
    let both = [Arc::clone(context), Arc::clone(&other.contexts[0])];
    let few = EngineError::FewQps { qps: 1, devices: 2 };
    assert_eq!(refused(&both, 1), few);
    assert_eq!(
        Engine::on(&both, config("b").with_qps(2))
            .unwrap()
            .devices()
            .len(),
        2
    );
}
