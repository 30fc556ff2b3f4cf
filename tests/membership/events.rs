//! What an HCA reports by itself: that it has failed for good, that a QP has.

// UNSAFETY: launches a test kernel on memory of the team.
#![expect(unsafe_code, reason = "launch of a test kernel")]

use std::time::{Duration, Instant};

use bytemuck::bytes_of;
use test_support::abi::kernels::{GuardPutParams, GuardSeen};
use test_support::device::read;
use warpverbs::abi::{DevicePtr, PeerEntry, Status, TeamContext, Window};
use warpverbs::gpu::Launch;
use warpverbs::membership::{Cause, GroupEvent, GroupEventKind, GroupState};
use warpverbs::team::Team;

use crate::deaths::CONFIG;
use crate::fleet::{Fleet, LONG, Rank};

const DEADLINE: Duration = Duration::from_secs(20);
/// Type of the event "local access violation" of the programmer's manual.
const ACCESS_ERROR: u16 = 0x11;

/// Waits until `rank` has suspected each of `others` because of this.
fn suspects(rank: &Rank, others: &[u32], cause: &Cause) {
    let start = Instant::now();
    let mut told = Vec::new();
    let found = |told: &[GroupEvent], other: u32| {
        let (rank, cause) = (other, cause.clone());
        let what = GroupEventKind::Suspected { rank, cause };
        told.iter().any(|event| event.what == what)
    };
    while !others.iter().all(|other| found(&told, *other)) {
        assert!(start.elapsed() < LONG, "no {cause:?} in {told:#?}");
        std::thread::sleep(Duration::from_millis(1));
        told.extend(rank.group().events());
    }
}

#[test]
fn a_rank_with_an_hca_that_fails_for_good_learns_it_and_others_serve_on() {
    let mut fleet = Fleet::new(4, DEADLINE, CONFIG);
    fleet.until_whole(1, 3);
    let ill = fleet.remove(2);
    ill.hca.die();
    fleet.until_members(2, &[0, 1, 3]);
    ill.group().wait(GroupState::Expelled, LONG).unwrap();
    let events = ill.group().events();
    let lost = GroupEventKind::RailLost { rail: 0 };
    assert!(events.iter().any(|event| event.what == lost), "{events:#?}");
    fleet.until_whole(2, 3);
    fleet.dead.push(ill);
    fleet.end();
}

#[test]
fn a_write_beside_the_window_raises_a_qp_event_and_parts_and_unites_two() {
    let log = crate::log::of_process();
    let mut fleet = Fleet::new(3, DEADLINE, CONFIG);
    fleet.expected = Some("the peer's request is refused");
    fleet.until_whole(1, 3);
    put_beside(fleet.rank(0).moe.team(), 1);
    suspects(fleet.rank(1), &[0], &Cause::QpEvent(ACCESS_ERROR));
    let said = log.text();
    let span = "group{rank=1 generation=1}:qp_failure{peer=0}: ";
    assert!(said.contains(span), "{said}");
    // No rank goes for it, and the third has no part in it.
    let parted = |event: &GroupEvent| matches!(&event.what, GroupEventKind::Viewed(view) if view.parted == [(0, 1)]);
    let start = Instant::now();
    let mut events = Vec::new();
    while !events.iter().any(parted) {
        assert!(start.elapsed() < LONG, "{events:#?}");
        std::thread::sleep(Duration::from_millis(1));
        events.extend(fleet.rank(2).group().events());
    }
    let united = |rank: &Rank| {
        let view = rank.group().view();
        view.is_some_and(|view| view.parted.is_empty() && view.epoch > 2)
    };
    fleet.until("the two are united", united);
    let epoch = fleet.rank(2).group().view().map_or(0, |view| view.epoch);
    fleet.until_whole(epoch, 3);
    for rank in &fleet.ranks {
        assert_eq!(rank.members(), [0, 1, 2], "{}", rank.story());
    }
    fleet.end();
}

/// Puts a word to `peer` after the end of window 0, by a window that says that it is longer.
fn put_beside(team: &Team, peer: u32) {
    let gpu = team.gpu().as_ref();
    let tables = read::<TeamContext>(gpu, team.context_addr(), 1)[0];
    let own = tables.peers.addr() + u64::from(team.rank()) * size_of::<PeerEntry>() as u64;
    let own = read::<PeerEntry>(gpu, own, 1)[0];
    let memory = gpu.alloc(256, 128).unwrap();
    let stop = gpu.map_host(8).unwrap();
    let params = GuardPutParams {
        team: DevicePtr::new(team.context_addr()),
        window: Window {
            id: 0,
            lkey_be: read(gpu, tables.lkeys.addr(), 1)[0],
            base: own.base,
            bytes: 1 << 40,
        },
        dst_offset: 1 << 39,
        deadline_ns: 1_000_000_000,
        stop: DevicePtr::new(stop.addr()),
        seen: DevicePtr::new(memory.addr()),
        peer,
        qp: 0,
        count: 1,
        each: 1,
        rounds: 1,
        reserved: 0,
    };
    let launch = Launch::new("wv_test_guard_thread", 1, 1).with_deadline(LONG);
    // SAFETY: the parameters are those of the kernel, which has ended before what they name goes; the target is no allocated
    // memory.
    let event = unsafe { gpu.launch(&launch, bytes_of(&params)) }.unwrap();
    gpu.wait(&event, LONG).unwrap();
    let seen = read::<GuardSeen>(gpu, memory.addr(), 1)[0];
    assert_eq!(seen.done, 0, "{:?}", seen.status);
    assert_ne!(seen.status, Status::OK);
}
