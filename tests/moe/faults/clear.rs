//! The state of a rank is forgotten between two generations of it, and only then (J2).

use std::thread;
use std::time::Duration;

use warpverbs::abi::Status;
use warpverbs::internal::moe_abi::{KIND_COMBINE, KIND_DISPATCH, MoePeer, MoeSignal};

use crate::group::Group;

const DEADLINE: Duration = Duration::from_secs(20);
const ALL: [u32; 3] = [0, 1, 2];
const REST: [u32; 2] = [0, 1];

const NOTHING_KEPT: [u8; size_of::<MoePeer>()] = [0; size_of::<MoePeer>()];
const NOTHING_TOLD: [u8; 4 * size_of::<MoeSignal>()] = [0; 4 * size_of::<MoeSignal>()];

/// Returns what `rank` keeps of `peer`, as bytes.
fn kept(group: &Group, rank: u32, peer: u32) -> Vec<u8> {
    let moe = &group.moes[rank as usize];
    let mut state = NOTHING_KEPT;
    let at = group.context(rank).layer.peers.addr() + u64::from(peer) * size_of::<MoePeer>() as u64;
    moe.team().gpu().read(at, &mut state).unwrap();
    state.to_vec()
}

/// Returns what `writer` has sent `reader`, as bytes.
fn signals(group: &Group, reader: u32, writer: u32) -> Vec<u8> {
    let kinds = [KIND_DISPATCH, KIND_COMBINE];
    let of = |kind| [0, 1].map(|set| group.signal(reader, writer, kind, set));
    let signals: Vec<MoeSignal> = kinds.into_iter().flat_map(of).collect();
    bytemuck::cast_slice(&signals).to_vec()
}

fn refused(group: &Group, rank: u32, peer: u32) -> String {
    let before = (kept(group, rank, peer), signals(group, rank, peer));
    let error = group.moes[rank as usize]
        .control()
        .clear_peer(peer)
        .unwrap_err();
    let after = (kept(group, rank, peer), signals(group, rank, peer));
    assert_eq!(before, after, "nothing is forgotten");
    error.to_string()
}

#[test]
fn a_rank_is_forgotten_after_its_last_call_and_its_next_generation_joins() {
    let mut group = Group::new(3, DEADLINE);
    for call in 1..=3 {
        group.whole_call(&ALL, 51, call);
    }
    let batches = group.batches(51, 4);
    group.send(&ALL, &batches);
    group.moes[0].control().board().set_suspects(&[2]).unwrap();
    group.moes[0].control().board().set_suspects(&[]).unwrap();
    assert_eq!(
        refused(&group, 0, 2),
        "rank 2 is a member from call 1 on",
        "it has not left"
    );
    group.set_view(&REST, 5, 2, &REST);
    assert_eq!(
        refused(&group, 0, 2),
        "calls up to 4 may need rank 2; the last one that has ended is 3"
    );
    group.receive(&ALL, &batches, |_| ALL.to_vec());
    group.send_back(&ALL);
    group.receive_back(&ALL, &batches, |_| ALL.to_vec());
    assert_eq!(
        refused(&group, 0, 2),
        "kernels may post to rank 2: it is not closed, or they hold guards of it (0)"
    );
    group.settle();
    for rank in REST {
        group.moes[rank as usize].mark_dead(2).unwrap();
        group.moes[2].team().fail_peer(rank).unwrap();
    }
    assert_ne!(kept(&group, 0, 2), NOTHING_KEPT);
    for rank in REST {
        group.moes[rank as usize].control().clear_peer(2).unwrap();
        assert_eq!(kept(&group, rank, 2), NOTHING_KEPT);
        assert_eq!(signals(&group, rank, 2), NOTHING_TOLD);
        assert_ne!(signals(&group, rank, 1 - rank), NOTHING_TOLD);
    }
    // The others go on meanwhile.
    for call in 5..=7 {
        group.whole_call(&REST, 51, call);
    }
    // Rank 2 begins as a new generation does: it knows no peer, and its first call is the first of its epoch.
    group.moes[2].control().begin_at(8).unwrap();
    group.set_view(&[2], 8, 3, &[2]);
    for rank in REST {
        group.moes[2].control().clear_peer(rank).unwrap();
    }
    thread::scope(|scope| {
        for rank in REST {
            let survivor = group.moes[rank as usize].team();
            scope.spawn(move || survivor.recover(2).unwrap());
        }
        for rank in REST {
            group.moes[2].team().recover(rank).unwrap();
        }
    });
    group.set_view(&ALL, 8, 3, &ALL);
    for call in 8..=13 {
        group.whole_call(&ALL, 51, call);
        for rank in ALL {
            let report = group.report(rank);
            assert!(report.is_complete(), "{report}");
            assert_eq!((report.call, report.epoch), (call, 3));
            assert!(group.moes[rank as usize].suspected().is_empty());
        }
    }
    group.end();
}

#[test]
fn a_call_that_was_held_in_vain_leaves_alone_what_the_host_clears() {
    let mut group = Group::new(3, DEADLINE);
    for call in 1..=3 {
        group.whole_call(&ALL, 53, call);
    }
    // A change that drops rank 2 is being prepared. Call 4 ends in the view before, of which rank 2 is a member. Its number belongs
    // to the next view. So no change waits for it.
    group.moes[0].control().board().set_refuse(true);
    group.moes[0].set_limit(Some(3));
    let batches = group.batches(53, 4);
    group.send(&[0], &batches);
    group.receive(&[0], &batches, |_| Vec::new());
    assert_eq!(group.report(0).phases[0], Status::ABORTED);
    group.set_view(&REST, 4, 2, &REST);
    group.settle();
    group.moes[0].mark_dead(2).unwrap();
    group.moes[0].control().clear_peer(2).unwrap();
    assert_eq!(kept(&group, 0, 2), NOTHING_KEPT);
    // The program calls the combine when it likes.
    group.send_back(&[0]);
    group.receive_back(&[0], &batches, |_| Vec::new());
    assert_eq!(kept(&group, 0, 2), NOTHING_KEPT);
    group.end();
}

#[test]
fn a_suspicion_ends_with_membership() {
    let mut group = Group::new(3, DEADLINE);
    group.whole_call(&ALL, 52, 1);
    group.unplug(2);
    // In call 2 only rank 2 can be late: the others have sent before they wait.
    group.set_deadline(Duration::from_secs(3));
    let batches = group.batches(52, 2);
    group.send(&REST, &batches);
    group.settle();
    group.receive(&REST, &batches, |_| REST.to_vec());
    group.send_back(&REST);
    group.settle();
    group.receive_back(&REST, &batches, |_| REST.to_vec());
    for rank in REST {
        assert_eq!(group.moes[rank as usize].suspected(), [2]);
        group.moes[rank as usize].mark_dead(2).unwrap();
    }
    group.set_deadline(DEADLINE);
    group.set_view(&REST, 3, 2, &REST);
    group.whole_call(&REST, 52, 3);
    for rank in REST {
        assert!(group.report(rank).is_complete(), "{}", group.report(rank));
        let suspected = group.moes[rank as usize].suspected();
        assert!(suspected.is_empty(), "rank {rank}: {suspected:?}");
    }
    group.end();
}
