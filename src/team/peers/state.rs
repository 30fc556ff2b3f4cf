//! How far a peer is: the life of the QPs to it, what this rank knows of it, and why another life is being made.

use std::time::Instant;

use super::attempts::Reunion;
use crate::fabric::{Identity, Reach};
use crate::team::hello::Offer;
use crate::team::limits::VERSION;
use crate::team::qps::set::{Qps, Way};
use crate::team::windows::shown::WindowOffer;

/// What changes of the QPs to one peer.
#[derive(Debug, Default)]
pub(in crate::team) struct PeerState {
    pub(in crate::team) qps: Qps,
    /// Lives of the QPs before this one: recoveries and replacements, as kernels see them.
    pub(in crate::team) life: u32,
    /// Recoveries since the QPs were connected with this generation: both ends count the same.
    pub(in crate::team) recoveries: u32,
    /// Why another life is being made.
    pub(in crate::team) making: Option<Making>,
    /// How often a reunion was tried.
    pub(in crate::team) reunion: Reunion,
    /// When the probes of its attempt were posted.
    pub(in crate::team) probed: Option<Instant>,
    /// The generation for which QPs and keys of this life were published; 0: none yet.
    pub(in crate::team) told: u32,
    /// The generation whose QPs these are connected with; 0: none yet.
    pub(in crate::team) connected: u32,
    /// The host has given the generation up, and no other was begun with.
    pub(in crate::team) failed: bool,
    /// Since when the QPs are connected with a newcomer, until the first proof has succeeded.
    pub(in crate::team) introduced: Option<Instant>,
    /// How kernels get at its windows.
    pub(in crate::team) reach: Reach,
    /// The generation that may store into windows of this rank, until it is over.
    pub(in crate::team) visitor: Option<Visitor>,
    /// The newest generation whose hello was read: how its rails are reached.
    pub(in crate::team) known: Option<Known>,
    /// What its records say is to be read again, since QPs that were connected by them have failed.
    pub(in crate::team) doubted: bool,
    /// Its windows as they were read again, by window and rail, for the next grace period.
    pub(in crate::team) places: Option<Vec<(u64, u32)>>,
    /// What this rank has written for a generation of it last, until kernels post to that generation: another writer may change it
    /// meanwhile.
    pub(in crate::team) said: Option<Said>,
}

/// A record for one generation of a peer, as this rank has written it.
#[derive(Clone, Debug)]
pub(in crate::team) struct Said {
    pub(in crate::team) generation: u32,
    pub(in crate::team) key: String,
    pub(in crate::team) text: Vec<u8>,
}

/// Why another life of the QPs to a peer is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::team) enum Making {
    /// For the same generation.
    Recovery,
    /// For the same generation, in this attempt of a reunion.
    Reunion(u64),
    /// For this generation.
    Peer(u32),
}

/// How a generation of a peer is reached.
#[derive(Clone, Debug)]
pub(in crate::team) struct Known {
    pub(in crate::team) generation: u32,
    pub(in crate::team) identity: Identity,
    pub(in crate::team) reach: Reach,
    /// By rail.
    pub(in crate::team) ways: Vec<Way>,
}

/// A generation of a peer that may store into windows of this rank.
#[derive(Clone, Debug)]
pub(in crate::team) struct Visitor {
    pub(in crate::team) generation: u32,
    pub(in crate::team) identity: Identity,
}

impl PeerState {
    /// Returns what is offered to generation `told` of `peer`.
    pub(in crate::team) fn offer(&self, peer: u32, windows: Vec<WindowOffer>) -> Offer {
        Offer {
            version: VERSION,
            rank: peer,
            generation: self.told,
            qps: self.qps.offers(),
            windows,
        }
    }

    /// Returns whether they are connected with this generation and work, for all that this rank knows.
    pub(in crate::team) fn is_connected_with(&self, generation: u32) -> bool {
        let present = self.connected == generation && self.told == generation;
        present && self.making.is_none() && !self.failed
    }

    /// Returns whether they are connected with the generation that they are for, and work.
    pub(in crate::team) fn is_connected(&self) -> bool {
        self.connected != 0 && self.is_connected_with(self.told)
    }

    /// Returns whether a life is being made for another generation.
    pub(in crate::team) fn is_for_another(&self) -> bool {
        matches!(self.making, Some(Making::Peer(_)))
    }

    /// Returns the life that is being made.
    pub(in crate::team) fn next_life(&self) -> u32 {
        self.life.wrapping_add(1)
    }
}
