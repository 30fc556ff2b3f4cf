//! One call of a rank, in phases with the experts on the host, and what it must have brought.

use std::sync::Arc;

use test_support::reference;
use warpverbs::abi::{MoeCause, Outcome};
use warpverbs::moe::{Batch, CallReport, Moe, Workspace};

use test_support::moe::{check_dispatch, expert};

/// One call at one rank, as it went.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) number: u32,
    pub(crate) epoch: u32,
    /// Whose rows came and were added.
    pub(crate) seen: Vec<u32>,
    pub(crate) report: CallReport,
}

/// The phase of a call before which a rank stops for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    /// Nothing of the call has begun.
    Send = 1,
    /// Its rows and words are on their way.
    Receive,
    /// It has received, and sent nothing back.
    SendBack,
    /// What it made of the others' rows is on its way.
    ReceiveBack,
}

/// One call: what it brings is what its own report says, bit for bit. None if it stops in the middle.
pub(crate) fn one_call(
    moe: &Arc<Moe>,
    work: &mut Workspace,
    batches: &[Batch],
    slot: u32,
    stops: &dyn Fn(Point) -> bool,
) -> Option<Call> {
    if stops(Point::Send) {
        return None;
    }
    work.send(&batches[slot as usize]).unwrap();
    if stops(Point::Receive) {
        return None;
    }
    let sources = work.receive().unwrap();
    let report = work.call().report().unwrap();
    let aborted = is_aborted(&report);
    // A call that finds its staging memory in use sends nothing, not even to its own rank.
    let own_sent = report.peers[slot as usize].dispatch_received != Outcome::NOT_SENT;
    let here = |rank: u32, there: bool| (there || rank == slot && own_sent) && !aborted;
    let mut rows: Vec<Batch> = batches.to_vec();
    for (rank, peer) in (0u32..).zip(&report.peers) {
        if !here(rank, peer.dispatch_received == Outcome::ACCEPTED) {
            rows[rank as usize] = Batch::default();
        }
    }
    check_dispatch(moe, &rows, work, &sources, &format!("{report}"));
    work.experts(expert).unwrap();
    if stops(Point::SendBack) {
        return None;
    }
    work.send_back().unwrap();
    if stops(Point::ReceiveBack) {
        return None;
    }
    let combined = work.receive_back().unwrap();
    let report = work.call().report().unwrap();
    let batch = &batches[slot as usize];
    let tokens = (combined.out.as_slice(), combined.token_valid.as_slice());
    Some(judge(moe, report, batch, tokens))
}

/// What a combine has brought is what its own report says, bit for bit: `out` and `token_valid`.
pub(crate) fn judge(
    moe: &Moe,
    report: CallReport,
    batch: &Batch,
    (out, token_valid): (&[u16], &[bool]),
) -> Call {
    let slot = moe.team().rank();
    let aborted = is_aborted(&report);
    let peers = (0u32..).zip(&report.peers);
    let seen = peers.filter(|(_, peer)| peer.valid != 0 && peer.member != 0 && !aborted);
    let seen: Vec<u32> = seen.map(|(rank, _)| rank).collect();

    let (placement, there) = (moe.placement(), |rank: u32| seen.contains(&rank));
    let want = reference::combine_seen(moe.config(), &placement, slot, batch, there, expert);
    assert_eq!(token_valid, want.token_valid, "{report}, sees {seen:?}");
    assert_eq!(out, want.out, "{report}, sees {seen:?}");
    Call {
        number: report.call,
        epoch: report.epoch,
        seen,
        report,
    }
}

fn is_aborted(report: &CallReport) -> bool {
    let fault = report.fault.as_ref();
    fault.is_some_and(|fault| fault.cause == MoeCause::ABORTED && fault.peer.is_none())
}
