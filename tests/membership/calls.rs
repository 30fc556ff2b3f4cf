//! One call of a rank, in phases with the experts on the host, and what it must have brought.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use moe_reference::format;
use test_support::reference;
use warpverbs::abi::{MoeCause, Outcome};
use warpverbs::moe::{Batch, CallReport, Format, Moe, MoeConfig, Workspace};

use test_support::moe::{check_dispatch, expert};

/// One call at one rank, as it went.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) number: u32,
    pub(crate) epoch: u32,
    /// Whose rows came and were added.
    pub(crate) seen: Vec<u32>,
    pub(crate) report: CallReport,
    /// From before its tokens were given to the layer.
    pub(crate) from: Instant,
    pub(crate) until: Instant,
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

/// The calls of one rank, of which some are sent before earlier ones are received.
pub(crate) struct Calls {
    moe: Arc<Moe>,
    free: Vec<Workspace>,
    sent: VecDeque<Sent>,
}

/// A call whose tokens are on their way.
struct Sent {
    work: Workspace,
    /// Of all ranks.
    batches: Vec<Batch>,
    from: Instant,
}

impl Calls {
    /// With so many dispatches ahead.
    pub(crate) fn ahead(moe: &Arc<Moe>, ahead: usize) -> Self {
        let free = (0..=ahead).map(|_| Workspace::new(moe).unwrap());
        Self {
            moe: Arc::clone(moe),
            free: free.collect(),
            sent: VecDeque::new(),
        }
    }

    /// Returns whether the next call can be sent before another is received.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Sends the tokens of a call. None if the rank stops instead.
    pub(crate) fn send(
        &mut self,
        batches: Vec<Batch>,
        stops: impl Fn(Point) -> bool,
    ) -> Option<()> {
        if stops(Point::Send) {
            return None;
        }
        let from = Instant::now();
        let slot = self.moe.team().rank() as usize;
        let mut work = self.free.pop().expect("it has room");
        work.send(&batches[slot]).unwrap();
        self.sent.push_back(Sent {
            work,
            batches,
            from,
        });
        Some(())
    }

    /// The rest of the earliest call: what it brings is what its own report says, bit for bit. None if the rank stops in the middle, or
    /// no call is left.
    pub(crate) fn receive(&mut self, stops: impl Fn(Point) -> bool) -> Option<Call> {
        let Sent {
            mut work,
            batches,
            from,
        } = self.sent.pop_front()?;
        let call = receive(&self.moe, &mut work, &batches, stops);
        self.free.push(work);
        call.map(|call| Call { from, ..call })
    }
}

fn receive(
    moe: &Arc<Moe>,
    work: &mut Workspace,
    batches: &[Batch],
    stops: impl Fn(Point) -> bool,
) -> Option<Call> {
    let slot = moe.team().rank();
    if stops(Point::Receive) {
        return None;
    }
    let sources = work.receive().unwrap();
    let report = work.call().report().unwrap();
    let aborted = is_aborted(&report);
    // A call that finds its staging memory in use sends nothing, not even to its own rank.
    let own_sent = report.peers[slot as usize].dispatch_received != Outcome::NOT_SENT;
    let here = |rank: u32, there: bool| (there || rank == slot && own_sent) && !aborted;
    let cast = |batch: &Batch| carried(moe.config(), batch);
    let mut rows: Vec<Batch> = batches.iter().map(cast).collect();
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

/// Returns what experts get of these tokens: dispatch casts them to FP8 in a layer of that.
fn carried(config: &MoeConfig, batch: &Batch) -> Batch {
    let Format::Fp8(kind) = config.format else {
        return batch.clone();
    };
    let kind = reference::scales(kind);
    let cast = |token: &[u16]| {
        let (codes, scales) = format::quantize(kind, token);
        format::dequantize(kind, &codes, &scales)
    };
    let tokens = batch.x.chunks(config.hidden as usize);
    Batch {
        x: tokens.flat_map(cast).collect(),
        ..batch.clone()
    }
}

/// Returns what a combine has brought is what its own report says, bit for bit: `out` and `token_valid`.
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
    let batch = carried(moe.config(), batch);
    let want = reference::combine_seen(moe.config(), &placement, slot, &batch, there, expert);
    assert_eq!(token_valid, want.token_valid, "{report}, sees {seen:?}");
    assert_eq!(out, want.out, "{report}, sees {seen:?}");
    let now = Instant::now();
    Call {
        number: report.call,
        epoch: report.epoch,
        seen,
        report,
        from: now,
        until: now,
    }
}

fn is_aborted(report: &CallReport) -> bool {
    let fault = report.fault.as_ref();
    fault.is_some_and(|fault| fault.cause == MoeCause::ABORTED && fault.peer.is_none())
}
