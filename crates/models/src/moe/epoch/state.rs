//! What the model of membership remembers. Calls count from 1; a set of ranks is a bit mask.

use super::configuration::Epoch;
use crate::explore::Codec;

pub(super) const RANKS: usize = 3;
pub(super) const CALLS: usize = 4;
/// The most proposals for one epoch.
pub(super) const ATTEMPTS: usize = 5;
/// The value of `limit` that is open for all calls.
pub(super) const OPEN: u8 = 15;

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct View {
    pub(super) first: u8,
    /// The epoch of the view; 0: it is not written.
    pub(super) epoch: u8,
    pub(super) mask: u8,
}

/// How a call went at one rank.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Used {
    /// The epoch in which the call ran; 0: it has not run, or was aborted.
    pub(super) epoch: u8,
    pub(super) mask: u8,
    /// Ghost: the invocation of dispatch that ran the call.
    pub(super) invocation: u8,
}

/// How far the host is with its promise.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Promise {
    #[default]
    Idle,
    /// The host has closed `limit` (in a mutant: it has read `started`).
    Closed,
    Read,
}

/// How far the device is with its call.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Device {
    #[default]
    Idle,
    Started,
    MayRun,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Rank {
    pub(super) alive: bool,
    pub(super) promise: Promise,
    /// The proposal that the rank has promised last, and the number in the promise.
    pub(super) proposal: u8,
    pub(super) promised: u8,
    /// The epoch that the rank has applied; 0: none.
    pub(super) epoch: u8,
    /// The ranks to which its QPs are in ERR.
    pub(super) fenced: u8,
    pub(super) limit: u8,
    pub(super) views: [View; 2],
    pub(super) started: u8,
    pub(super) next: u8,
    pub(super) invocation: u8,
    pub(super) device: Device,
    /// The bits of calls that ended aborted.
    pub(super) aborted: u8,
    pub(super) used: [Used; CALLS],
}

impl Rank {
    pub(super) fn newest(&self) -> View {
        match self.views[1].epoch {
            0 => self.views[0],
            _ => self.views[1],
        }
    }
}

/// The record in the store.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) epoch: u8,
    pub(super) mask: u8,
    pub(super) first: u8,
    /// The open proposal, as 8 * epoch + attempt, or 0; and its mask.
    pub(super) proposal: u8,
    pub(super) proposed: u8,
}

/// Everything that a step may change.
#[derive(Clone, Copy, Default)]
pub struct State {
    pub(super) ranks: [Rank; RANKS],
    pub(super) record: Record,
    /// The promises for proposals of this epoch, each as 1 + its number, or 0.
    pub(super) promises: [[u8; RANKS]; ATTEMPTS],
    /// How many deaths, suspicions and aborts are still possible.
    pub(super) deaths: u8,
    pub(super) suspicions: u8,
    pub(super) aborts: u8,
}

/// Codes a state of `model`.
pub(super) fn code(model: &Epoch, state: &mut State, codec: &mut impl Codec) {
    for rank in &mut state.ranks[..model.ranks] {
        code_rank(model, rank, codec);
    }
    let record = &mut state.record;
    codec.byte(&mut record.proposal, 6);
    for field in [
        &mut record.epoch,
        &mut record.mask,
        &mut record.first,
        &mut record.proposed,
    ] {
        codec.byte(field, 3);
    }
    for promises in &mut state.promises {
        for promise in &mut promises[..model.ranks] {
            codec.byte(promise, 3);
        }
    }
    for left in [&mut state.deaths, &mut state.suspicions, &mut state.aborts] {
        codec.byte(left, 2);
    }
}

fn code_rank(model: &Epoch, rank: &mut Rank, codec: &mut impl Codec) {
    const PROMISE: [Promise; 3] = [Promise::Idle, Promise::Closed, Promise::Read];
    const DEVICE: [Device; 3] = [Device::Idle, Device::Started, Device::MayRun];
    let (mut promise, mut device) = (rank.promise as u8, rank.device as u8);
    codec.flag(&mut rank.alive);
    codec.byte(&mut promise, 2);
    codec.byte(&mut device, 2);
    rank.promise = PROMISE[usize::from(promise)];
    rank.device = DEVICE[usize::from(device)];
    codec.byte(&mut rank.proposal, 6);
    codec.byte(&mut rank.limit, 4);
    codec.byte(&mut rank.aborted, 5);
    for field in [
        &mut rank.promised,
        &mut rank.epoch,
        &mut rank.fenced,
        &mut rank.started,
        &mut rank.next,
        &mut rank.invocation,
    ] {
        codec.byte(field, 3);
    }
    for view in &mut rank.views {
        for field in [&mut view.first, &mut view.epoch, &mut view.mask] {
            codec.byte(field, 3);
        }
    }
    for used in &mut rank.used[..usize::from(model.calls)] {
        for field in [&mut used.epoch, &mut used.mask, &mut used.invocation] {
            codec.byte(field, 3);
        }
    }
}
