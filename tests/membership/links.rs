//! A link between two ranks that stays down: the two part, no rank goes, and only the tokens between those two are missing.

use std::net::Ipv4Addr;

use softhca::FaultSpec;
use softhca::wire::faults::{Mishap, PacketFault, When};
use warpverbs::membership::GroupView;

use crate::deaths::{CONFIG, DEADLINE};
use crate::fleet::{Fleet, Plan, Rank};

/// Loses all packets between `rank` and the HCA with this address, or none.
fn cut(rank: &Rank, peer: Option<Ipv4Addr>) {
    let lost = peer.map(|peer| PacketFault {
        peer: Some(peer),
        ..PacketFault::new(Mishap::Drop, When::ALWAYS)
    });
    let mut faults = FaultSpec::default();
    faults.packets.extend(lost);
    rank.hca.set_faults(&faults);
}

/// Waits until each rank has a view of at least `epoch` in which exactly these pairs are parted; returns the epoch at rank 0.
fn until_parted(fleet: &Fleet, epoch: u32, parted: &[(u32, u32)]) -> u32 {
    let is_there = |view: GroupView| view.epoch >= epoch && view.parted == parted;
    fleet.until("the pairs are parted so", |rank| {
        rank.check();
        rank.group().view().is_some_and(is_there)
    });
    fleet.rank(0).group().view().map_or(0, |view| view.epoch)
}

#[test]
fn one_broken_link_parts_two_ranks_and_costs_only_tokens_between_them() {
    let fleet = Fleet::start(Plan {
        packets: true,
        ..Plan::new(4, DEADLINE, CONFIG)
    });
    fleet.until_whole(1, 3);
    cut(fleet.rank(0), Some(fleet.rank(1).hca.ip()));
    let epoch = until_parted(&fleet, 2, &[(0, 1)]);
    // The fleet compares each call with what its report says. Here the report itself is compared with the cut link.
    let expected = |rank: &Rank| -> Vec<u32> {
        let other = |slot: u32| matches!((rank.slot, slot), (0, 1) | (1, 0));
        (0..4).filter(|slot| !other(*slot)).collect()
    };
    fleet.until("calls of the view bring all other tokens", |rank| {
        let calls = rank.calls();
        let here = calls.iter().filter(|call| call.epoch >= epoch);
        here.filter(|call| call.seen == expected(rank)).count() >= 5
    });
    for rank in &fleet.ranks {
        assert_eq!(rank.members(), [0, 1, 2, 3], "{}", rank.story());
        for call in rank.calls().iter().filter(|call| call.epoch >= epoch) {
            let parted = call.seen.iter().find(|slot| !expected(rank).contains(slot));
            assert_eq!(parted, None, "rank {}: {}", rank.slot, call.report);
        }
    }
    cut(fleet.rank(0), None);
    let epoch = until_parted(&fleet, epoch, &[]);
    fleet.until_whole(epoch, 3);
    fleet.end();
}
