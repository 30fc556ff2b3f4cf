//! What the model remembers: ranks, the store, and what disturbs them.

use std::collections::BTreeMap;

use membership_rules::clocks::Span;
use membership_rules::look::{Own, Row};
use membership_rules::record::{Promise, Proposal, Record};
use membership_rules::slots::Slots;

use super::configuration::Budget;

/// The number of ticks after which a lease lapses.
pub(super) const LEASE: u8 = 2;

/// A time of the model, in ticks of half a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticks(pub(super) u8);

impl Span for Ticks {
    fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Unborn,
    Alive,
    Dead,
    Over,
    Left,
}

/// A write that a rank has decided, and that has not landed in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    Propose(Proposal),
    Promise(Promise),
    Commit(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    pub(super) life: Life,
    pub(super) own: Own<Ticks>,
    /// The device: its next call, its views (first call, epoch), and the epoch of each call that it ran.
    pub(super) next: u32,
    pub(super) views: Vec<(u32, u32)>,
    pub(super) ran: Vec<u32>,
    pub(super) pending: Option<Pending>,
    /// Ticks since the rank's last turn.
    pub(super) passed: u8,
    /// `stood`: the rank stood still since that turn. `waited`: the store did.
    pub(super) stood: bool,
    pub(super) waited: bool,
    /// Ranks whose takings have grown since the rank's last look.
    pub(super) wrote: Slots,
    /// True if the rank has just revoked its lease.
    pub(super) revoked: bool,
    /// By slot: ticks since something was heard of the rank, if contact is old.
    pub(super) silence: Vec<u8>,
}

/// What disturbs the ranks. Sets of ranks and of pairs are bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct World {
    pub(super) up: bool,
    pub(super) paused: u8,
    /// Ticks for which one rank stands still. Below 0 it went on, and the others have not looked yet.
    pub(super) alone: i8,
    pub(super) down: u8,
    pub(super) cut: u8,
    pub(super) far: u8,
    /// Ranks that have calls to make from before the view.
    pub(super) behind: u8,
    /// Ranks that were disturbed while the others were not.
    pub(super) disturbed: u8,
    pub(super) budget: Budget,
    pub(super) junkrow: bool,
    pub(super) junkask: bool,
}

/// A state of the model: ranks, store and world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) ranks: Vec<Rank>,
    /// By slot: ticks since the lease was renewed.
    pub(super) lease: Vec<u8>,
    pub(super) rows: Vec<Row>,
    pub(super) promises: BTreeMap<u32, Promise>,
    pub(super) said: BTreeMap<u32, u32>,
    pub(super) record: Record,
    /// Members of each view, for T; empty without calls.
    pub(super) history: Vec<u8>,
    pub(super) world: World,
}

/// Returns the bit of a rank.
pub(super) fn bit(rank: u32) -> u8 {
    1 << rank
}

/// Returns the bit of a pair.
pub(super) fn pair(a: u32, b: u32) -> u8 {
    let (low, high) = (a.min(b), a.max(b));
    1 << (high * (high - 1) / 2 + low)
}
