//! Which rails of two engines meet, and by which of them slices enter.

use test_basics::limits::until;
use test_support::limits::HANG;
use warpverbs::config::PathConfig;
use warpverbs::internal::engine::{
    Descriptor, EngineConfig, EnginePairing, Kind, Operation, Options, Outcome, Peer, Rights,
};

use crate::rails::Striped;
use crate::rig::{config, listens};

const MIB: u64 = 1 << 20;

fn paired(name: &str, pairing: EnginePairing) -> EngineConfig {
    config(name)
        .with_qps(8)
        .with_slice(4096)
        .with_fragment(0)
        .with_pairing(pairing)
}

/// Two engines of two rails, of which the first knows the region of the second as if it were near these rails.
fn ends(pairings: [EnginePairing; 2], near: u8) -> (Striped, Striped, [Peer; 2]) {
    ends_with(1, pairings, near)
}

/// As `ends`, with so many workers of a rail.
fn ends_with(
    workers: u32,
    pairings: [EnginePairing; 2],
    near: u8,
) -> (Striped, Striped, [Peer; 2]) {
    let path = PathConfig::default()
        .with_ack_timeout(Some(12))
        .with_retry_count(1);
    let end = |name, pairing| {
        let config = paired(name, pairing).with_path(path);
        Striped::with(config.with_workers(workers), 2, false)
    };
    let (a, b) = (end("a", pairings[0]), end("b", pairings[1]));
    let address = listens(&b.engine);
    let to_b = a.engine.connect(&address.to_string()).unwrap();
    let to_a = b.engine.accept(HANG).expect("it has connected");
    let told = b.engine.descriptor(b.region).unwrap();
    let near = Descriptor {
        rkeys: told.rkeys.with_near(near),
        ..told
    };
    // As a program carries it.
    let carried = Descriptor::from_bytes(&near.to_bytes()).unwrap();
    assert_eq!(carried, near);
    to_b.import(&carried).unwrap();
    (a, b, [to_b, to_a])
}

/// Moves all of the region. By which HCAs of both ends it went.
fn moved(a: &Striped, b: &Striped, to_b: &Peer, (kind, seed): (Kind, u64)) -> [Vec<bool>; 2] {
    let packets = |end: &Striped| -> Vec<u64> {
        let counters = end.hcas.iter().map(|hca| hca.counters());
        let moved = counters.map(|it| it.bytes_received + it.bytes_sent);
        moved.collect()
    };
    let (source, target) = match kind {
        Kind::Write => (a, b),
        Kind::Read => (b, a),
    };
    let expected = source.fill(seed);
    let before = [packets(a), packets(b)];
    let operation = Operation {
        kind,
        local: a.at(0),
        remote: b.at(0),
        bytes: MIB,
    };
    let id = to_b.submit(&[operation], &Options::default()).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
    a.engine.release(id).unwrap();
    assert!(target.bytes() == expected);
    let now = [packets(a), packets(b)];
    let grown = |(before, now): (Vec<u64>, Vec<u64>)| -> Vec<bool> {
        let all = before.into_iter().zip(now);
        all.map(|(before, now)| now > before).collect()
    };
    let [at_a, at_b] = before;
    let [now_a, now_b] = now;
    [grown((at_a, now_a)), grown((at_b, now_b))]
}

#[test]
fn slices_enter_by_a_rail_near_the_memory_if_either_end_wants_it() {
    use EnginePairing::{Near, Place};
    for (pairings, near, enters) in [
        ([Near, Place], 0b01, [true, false]),
        ([Place, Near], 0b10, [false, true]),
        ([Near, Near], 0b10, [false, true]),
        // All rails are near, none is known to be, or neither end asks.
        ([Near, Near], 0b11, [true, true]),
        ([Near, Near], 0b00, [true, true]),
        ([Place, Place], 0b01, [true, true]),
    ] {
        let (a, b, [to_b, _]) = ends(pairings, near);
        let mut has_left = [false; 2];
        let mut has_entered = [false; 2];
        let mut seed = 0;
        // Which of the workers runs first is the system's to say.
        until("every rail that may has carried a part", || {
            seed += 1;
            for kind in [Kind::Write, Kind::Read] {
                let [left, entered] = moved(&a, &b, &to_b, (kind, seed));
                for (all, one) in has_left.iter_mut().zip(left) {
                    *all |= one;
                }
                for (all, one) in has_entered.iter_mut().zip(entered) {
                    *all |= one;
                }
            }
            has_left == [true; 2]
                && has_entered.iter().filter(|it| **it).count()
                    >= enters.iter().filter(|it| **it).count()
        });
        assert_eq!(has_entered, enters, "{pairings:?} {near:#b}");
    }
}

#[test]
fn a_transfer_of_one_slice_enters_near_its_memory_too() {
    let (a, b, [to_b, _]) = ends([EnginePairing::Near; 2], 0b10);
    let before = b.hcas[0].counters().bytes_received;
    for nth in 0..32 {
        let id = to_b.write(a.at(0), b.at(nth * 8), 8).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        a.engine.release(id).unwrap();
    }
    assert_eq!(b.hcas[0].counters().bytes_received, before);
}

fn part(end: &Striped, rail: usize) {
    end.hcas[rail].set_faults(&"partition=*".parse().unwrap());
}

#[test]
fn where_the_near_rail_is_dead_slices_enter_by_another() {
    for workers in [1, 3] {
        let (a, b, [to_b, _]) = ends_with(workers, [EnginePairing::Near; 2], 0b01);
        part(&b, 0);
        for (seed, kind) in (0..).zip([Kind::Write, Kind::Read, Kind::Write]) {
            let [_, entered] = moved(&a, &b, &to_b, (kind, seed));
            assert!(entered[1]);
        }
    }
}

#[test]
fn where_a_rail_of_each_end_is_dead_slices_go_between_the_others() {
    for workers in [1, 3] {
        for near in [0b00, 0b01, 0b10] {
            let (a, b, [to_b, _]) = ends_with(workers, [EnginePairing::Near; 2], near);
            part(&a, 0);
            part(&b, 1);
            for (seed, kind) in (0..).zip([Kind::Write, Kind::Read]) {
                let [left, entered] = moved(&a, &b, &to_b, (kind, seed));
                assert!(left[1] && entered[0], "{workers} {near:#b} {kind}");
            }
        }
    }
}

#[test]
fn a_dead_rail_of_the_peer_gives_no_rail_of_this_end_a_rest() {
    let (a, b, [to_b, _]) = ends([EnginePairing::Near; 2], 0b00);
    part(&b, 0);
    let (mut seed, mut failed) = (0, 0);
    // QPs to the dead rail rest, and no slice is posted to it any more.
    until("no slice fails any more", || {
        for kind in [Kind::Write, Kind::Read, Kind::Write] {
            seed += 1;
            moved(&a, &b, &to_b, (kind, seed));
        }
        let now = a.engine.statistics().slices.failed;
        now > 0 && std::mem::replace(&mut failed, now) == now
    });
    let rests: Vec<u64> = a.engine.rails().iter().map(|rail| rail.rests).collect();
    assert_eq!(rests, [0, 0]);
}

#[test]
fn grants_say_what_their_region_is_near() {
    let (a, b, [to_b, to_a]) = ends([EnginePairing::Near; 2], 0);
    let region = b.engine.descriptor(b.region).unwrap();
    let grant = to_a.grant(b.at(0), MIB, Rights::Both, None).unwrap();
    assert_eq!(grant.rkeys.near(), region.rkeys.near());
    to_b.import_grant(&grant).unwrap();
    let id = to_b.write(a.at(0), grant.address, MIB).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
}
