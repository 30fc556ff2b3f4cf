//! Packets of a dead generation on the wire: recorded, and replayed with the packet number that is due.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use softhca::Hca;
use warpverbs::team::RankSet;
use warpverbs::verbs::QpState;

use crate::fleet::DrivenFleet;
use crate::rank::{Put, WORDS, setup, until};
use test_support::fleet::{Hcas, Setup};

/// RC RDMA WRITE Only.
const WRITE_ONLY: u8 = 0x0a;

/// Packets go over the wire, also between HCAs of one process.
fn on_the_wire() -> Setup {
    let mut setup = setup(2);
    setup.hca.loopback = false;
    setup
}

/// Lets `from` put words to `to`, which keeps the packets that arrive for its QP 0; they are wiped out again.
fn record(fleet: &DrivenFleet<'_>, from: u32, to: u32) -> usize {
    let hca = &fleet.hcas.of(to)[0];
    hca.record_packets(Some(fleet.rank(to).qp(from, 0).qpn));
    let seen = fleet.rank(from).put(&Put::new(to, 8)).finish()[0];
    assert_eq!((seen.done, seen.failed), (8, 0));
    hca.record_packets(None);
    assert_ne!(first_word(fleet, to), 0);
    wipe(fleet, to);
    writes(hca).len()
}

fn writes(hca: &Hca) -> Vec<usize> {
    let kept = hca.recorded_packets();
    let is_write = |place: &usize| kept[*place].bytes[0] == WRITE_ONLY;
    (0..kept.len()).filter(is_write).collect()
}

fn first_word(fleet: &DrivenFleet<'_>, rank: u32) -> u64 {
    let at = fleet.rank(rank).window.base + 8 * u64::from(WORDS / 2);
    fleet.rank(rank).read(at, 1)[0]
}

fn wipe(fleet: &DrivenFleet<'_>, rank: u32) {
    let at = fleet.rank(rank).window.base + 8 * u64::from(WORDS / 2);
    fleet.rank(rank).gpu.write(at, &[0; 64]).unwrap();
}

/// Replays the first write that `rank` has kept into its QP 0 to the other.
fn replay(fleet: &DrivenFleet<'_>, rank: u32) {
    let hca = &fleet.hcas.of(rank)[0];
    let kept = hca.recorded_packets();
    let first = writes(hca)[0];
    let qpn = fleet.rank(rank).qp(1 - rank, 0).qpn;
    hca.replay_packet(&kept[first], qpn).unwrap();
}

#[test]
fn a_packet_of_an_old_generation_is_refused_even_with_the_number_due() {
    let setup = on_the_wire();
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    // What comes to the rank that stays, and what comes to the place of a rank that has gone.
    for (generation, victim) in [(2, 0), (3, 1), (4, 0)] {
        assert_eq!(record(&fleet, 1 - victim, victim), 8);
        fleet.replace(1, generation);
        replay(&fleet, victim);
        let state = || {
            fleet
                .rank(victim)
                .team
                .qp_status(1 - victim, 0)
                .unwrap()
                .hca
                .state
        };
        until("the packet is refused, loudly", || state() == QpState::ERR);
        assert_eq!(first_word(&fleet, victim), 0, "victim {victim}");
        // Nothing else has happened, and the pair is healed as any other.
        thread::scope(|scope| {
            for rank in [0, 1] {
                let team = &fleet.rank(rank).team;
                scope.spawn(move || team.recover(1 - rank).unwrap());
            }
        });
        fleet.talk(0, 1);
    }
    drop(fleet);
    for hca in hcas.all() {
        assert_eq!(hca.live_objects().total(), 0);
    }
}

#[test]
fn the_same_packet_is_taken_where_keys_are_not_renewed() {
    // A recovery resets the same QPs for the same generation and keeps its keys. The test above would look so if a replacement
    // forgot the keys.
    let setup = on_the_wire();
    let hcas = Hcas::new(&setup);
    let fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    assert_eq!(record(&fleet, 1, 0), 8);
    thread::scope(|scope| {
        for rank in [0, 1] {
            let team = &fleet.rank(rank).team;
            scope.spawn(move || team.recover(1 - rank).unwrap());
        }
    });
    replay(&fleet, 0);
    until("the packet is taken", || first_word(&fleet, 0) != 0);
}

#[test]
fn many_lives_leave_the_heap_as_it_was_and_no_key_comes_twice() {
    let lives = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => 200,
        None => 30,
    };
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    let (heap, live) = (
        fleet.rank(0).team.control_stats(),
        hcas.of(0)[0].live_objects(),
    );
    let bytes = fleet.rank(0).team.bytes_allocated();
    let captured = fleet.captured(0, 1);
    let mut keys = BTreeSet::new();
    for life in 0..lives {
        // The key that rank 1 has for the window of rank 0.
        assert!(keys.insert(fleet.entry(1, 0, 0).rkey_be), "life {life}");
        fleet.replace(1, life + 2);
        assert_eq!(fleet.captured(0, 1), captured, "life {life}");
    }
    fleet.talk(0, 1);
    assert_eq!(fleet.rank(0).team.control_stats(), heap);
    assert_eq!(hcas.of(0)[0].live_objects(), live);
    // `talk` has its own buffers.
    let talk = fleet.rank(0).team.bytes_allocated() - bytes;
    fleet.talk(0, 1);
    assert_eq!(fleet.rank(0).team.bytes_allocated() - bytes, 2 * talk);
    drop(fleet);
    hcas.check();
}

#[test]
fn a_survivor_issues_as_many_commands_in_a_team_of_64_as_in_one_of_8() {
    let counted = [8, 64].map(|ranks| {
        let mut setup = setup(ranks);
        setup.team.qps_per_peer = 1;
        setup.team.join_timeout = Duration::from_secs(120);
        let hcas = Hcas::new(&setup);
        let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(ranks));
        let last = ranks - 1;
        let usage = |fleet: &DrivenFleet<'_>, rank: u32| {
            let team = &fleet.rank(rank).team;
            (team.commands(), team.bytes_allocated())
        };
        let before: Vec<_> = (0..last).map(|rank| usage(&fleet, rank)).collect();
        fleet.replace(last, 2);
        let after: Vec<_> = (0..last).map(|rank| usage(&fleet, rank)).collect();
        let spent = |((commands, bytes), (first, had)): (&(u64, u64), &(u64, u64))| {
            (commands - first, bytes - had)
        };
        let spent: BTreeSet<(u64, u64)> = after.iter().zip(&before).map(spent).collect();
        fleet.talk(0, last);
        drop(fleet);
        hcas.check();
        spent
    });
    println!("commands and bytes of each survivor in teams of 8 and 64: {counted:?}");
    assert_eq!(counted[0], counted[1]);
    // All survivors the same: one QP, one window.
    let only: Vec<_> = counted[0].iter().copied().collect();
    assert!(
        only.len() == 1 && only[0].0 <= 5 + 8 && only[0].1 == 0,
        "{only:?}"
    );
}
