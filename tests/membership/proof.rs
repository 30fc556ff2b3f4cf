//! A newcomer is proven by a write each way on each QP before it stands in a view.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use softhca::FaultSpec;
use softhca::wire::faults::{Direction, Mishap, PacketFault, When};
use warpverbs::membership::{GroupEventKind, GroupState};

use crate::deaths::{CONFIG, DEADLINE};
use crate::fleet::{Fleet, LONG, Plan, Point, Rank};

/// All packets between an HCA and the one with this address, or all others, are lost.
fn lost(peer: Option<Ipv4Addr>) -> FaultSpec {
    let mut faults = FaultSpec::default();
    faults.packets.push(PacketFault {
        peer,
        ..PacketFault::new(Mishap::Drop, When::ALWAYS)
    });
    faults
}

/// Four ranks with HCAs that send packets, of which rank 3 is dead.
fn without_one(rails: usize) -> Fleet {
    let mut fleet = Fleet::start(Plan {
        packets: true,
        rails,
        ..Plan::new(4, DEADLINE, CONFIG)
    });
    fleet.until_whole(1, 3);
    let mut dead = fleet.remove(3);
    dead.die_at(Point::SendBack);
    fleet.dead.push(dead);
    fleet.until_members(2, &[0, 1, 2]);
    fleet
}

/// As `without_one`, in one direction, seen from that HCA.
fn lost_one_way(peer: Option<Ipv4Addr>, direction: Direction) -> FaultSpec {
    let mut faults = lost(peer);
    for fault in &mut faults.packets {
        fault.direction = Some(direction);
    }
    faults
}

fn carries(rank: &Rank) {
    for hca in &rank.rails {
        hca.set_faults(&FaultSpec::default());
    }
}

#[test]
fn a_newcomer_that_no_packet_reaches_waits_until_its_link_carries() {
    it_waits_until_its_link_carries(&lost(None));
}

/// Its writes arrive, and it hears nothing.
#[test]
fn a_newcomer_that_hears_nothing_waits_until_its_link_carries() {
    it_waits_until_its_link_carries(&lost_one_way(None, Direction::In));
}

/// It hears the others' writes, and nothing of it arrives.
#[test]
fn a_newcomer_that_only_hears_waits_until_its_link_carries() {
    it_waits_until_its_link_carries(&lost_one_way(None, Direction::Out));
}

fn it_waits_until_its_link_carries(faults: &FaultSpec) {
    let mut fleet = without_one(1);
    fleet.join_with(3, vec![faults.clone()]);
    let newcomer = fleet.remove(3);
    let start = Instant::now();
    let waits = |what: &GroupEventKind| match what {
        // Told once: when two of the three are too few already, or all.
        GroupEventKind::Failed { error } => error.contains("this newcomer waits: writes to "),
        _ => false,
    };
    let mut events = Vec::new();
    while !events.iter().any(waits) {
        assert_eq!(newcomer.group().state(), GroupState::Joining, "{events:#?}");
        assert!(start.elapsed() < LONG, "{events:#?}");
        let new = newcomer.group().events();
        events.extend(new.into_iter().map(|event| event.what));
        std::thread::sleep(Duration::from_millis(1));
    }
    // The others go on, and no view changes.
    fleet.until_whole(2, 10);
    for rank in &fleet.ranks {
        assert_eq!(rank.group().view().unwrap().epoch, 2, "{}", rank.story());
    }
    carries(&newcomer);
    fleet.ranks.push(newcomer);
    fleet.until_members(3, &[0, 1, 2, 3]);
    fleet.until_whole(3, 3);
    fleet.end();
}

#[test]
fn a_newcomer_that_does_not_reach_one_member_comes_in_parted_from_it() {
    it_comes_in_parted_from_rank_0(lost);
}

#[test]
fn a_newcomer_with_a_link_that_carries_one_way_comes_in_parted() {
    for direction in [Direction::In, Direction::Out] {
        eprintln!("lost at the newcomer: {direction:?}");
        it_comes_in_parted_from_rank_0(|peer| lost_one_way(peer, direction));
    }
}

fn it_comes_in_parted_from_rank_0(faults: impl Fn(Option<Ipv4Addr>) -> FaultSpec) {
    let mut fleet = without_one(1);
    let address = fleet.rank(0).hca.ip();
    fleet.join_with(3, vec![faults(Some(address))]);
    fleet.until("it comes in parted from rank 0", |rank| {
        let view = rank.group().view();
        view.is_some_and(|view| view.members.contains_key(3) && view.parted == [(0, 3)])
    });
    carries(fleet.rank(3));
    fleet.until("the pair is united", |rank| {
        let view = rank.group().view();
        view.is_some_and(|view| view.members.contains_key(3) && view.parted.is_empty())
    });
    let epoch = fleet.rank(3).group().view().unwrap().epoch;
    fleet.until_whole(epoch, 3);
    fleet.end();
}

#[test]
fn a_newcomer_goes_round_a_rail_that_carries_nothing() {
    let mut fleet = without_one(2);
    fleet.join_with(3, vec![FaultSpec::default(), lost(None)]);
    fleet.until_members(3, &[0, 1, 2, 3]);
    let view = fleet.rank(3).group().view().unwrap();
    assert_eq!((view.epoch, view.parted), (3, vec![]));
    for other in 0..3 {
        let carriers = fleet.rank(other).moe.team().carriers(3).unwrap();
        assert!(!carriers.contains(&1), "rank {other}: {carriers:?}");
    }
    fleet.until_whole(3, 3);
    fleet.end();
}
