//! The state of a peer: the life of the QPs to the peer, what this rank knows of the peer, and why another life is being made.

use std::time::Instant;

use super::attempts::Reunion;
use crate::fabric::{Identity, Reach};
use crate::team::hello::Offer;
use crate::team::limits::VERSION;
use crate::team::qps::set::{Qps, Way};
use crate::team::windows::shown::WindowOffer;

/// The state of one peer: what changes of the QPs to it.
#[derive(Debug, Default)]
pub(in crate::team) struct PeerState {
    pub(in crate::team) qps: Qps,
    /// The number of lives of the QPs before this one, as kernels see it: it counts recoveries and replacements.
    pub(in crate::team) life: u32,
    /// The number of recoveries since the QPs were connected with this generation. Both ends count the same.
    pub(in crate::team) recoveries: u32,
    /// The reason why another life is being made, if one is.
    pub(in crate::team) making: Option<Making>,
    /// The state of the reunion with the peer.
    pub(in crate::team) reunion: Reunion,
    /// The time when the probes of the attempt were posted.
    pub(in crate::team) probed: Option<Instant>,
    /// The generation for which QPs and keys of this life were published; 0: none yet.
    pub(in crate::team) told: u32,
    /// The generation with which the QPs are connected; 0: none yet.
    pub(in crate::team) connected: u32,
    /// The host has given the generation up, and has begun to connect no other.
    pub(in crate::team) failed: bool,
    /// The time when the QPs were connected with a newcomer, until the first proof has succeeded.
    pub(in crate::team) introduced: Option<Instant>,
    /// The way in which kernels reach the windows of the peer.
    pub(in crate::team) reach: Reach,
    /// The generation that may store into windows of this rank, until it is over.
    pub(in crate::team) visitor: Option<Visitor>,
    /// The ways to the newest generation whose hello was read.
    pub(in crate::team) contact: Option<Contact>,
    /// The records of the peer must be read again, since QPs that were connected by them have failed.
    pub(in crate::team) doubted: bool,
    /// The windows of the peer as its records were read again, by window and rail. They are written in the next grace period.
    pub(in crate::team) places: Option<Vec<(u64, u32)>>,
    /// The last record that this rank has written for one generation of the peer. It is kept until kernels post to that generation,
    /// since another writer may change the record meanwhile.
    pub(in crate::team) said: Option<Said>,
}

/// A record that this rank has written for one generation of a peer.
#[derive(Clone, Debug)]
pub(in crate::team) struct Said {
    pub(in crate::team) generation: u32,
    pub(in crate::team) key: String,
    pub(in crate::team) text: Vec<u8>,
}

/// The reason why another life of the QPs to a peer is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::team) enum Making {
    /// A recovery, for the same generation.
    Recovery,
    /// An attempt of a reunion, for the same generation, with the number of the attempt.
    Reunion(u64),
    /// A connection with another generation, which has this number.
    Peer(u32),
}

/// The ways in which a generation of a peer is reached.
#[derive(Clone, Debug)]
pub(in crate::team) struct Contact {
    pub(in crate::team) generation: u32,
    pub(in crate::team) identity: Identity,
    pub(in crate::team) reach: Reach,
    /// The way to each rail of the peer.
    pub(in crate::team) ways: Vec<Way>,
}

/// A generation of a peer that may store into windows of this rank.
#[derive(Clone, Debug)]
pub(in crate::team) struct Visitor {
    pub(in crate::team) generation: u32,
    pub(in crate::team) identity: Identity,
}

impl PeerState {
    /// Returns the offer to generation `told` of `peer`.
    pub(in crate::team) fn offer(&self, peer: u32, windows: Vec<WindowOffer>) -> Offer {
        Offer {
            version: VERSION,
            rank: peer,
            generation: self.told,
            qps: self.qps.offers(),
            windows,
        }
    }

    /// Returns whether the QPs are connected with `generation` and work, for all that this rank knows.
    pub(in crate::team) fn is_connected_with(&self, generation: u32) -> bool {
        let present = self.connected == generation && self.told == generation;
        present && self.making.is_none() && !self.failed
    }

    /// Returns whether the QPs are connected with the generation that they are for, and work.
    pub(in crate::team) fn is_connected(&self) -> bool {
        self.connected != 0 && self.is_connected_with(self.told)
    }

    /// Returns whether a life is being made for another generation.
    pub(in crate::team) fn is_for_another(&self) -> bool {
        matches!(self.making, Some(Making::Peer(_)))
    }

    /// Returns the number of the life that is being made.
    pub(in crate::team) fn next_life(&self) -> u32 {
        self.life.wrapping_add(1)
    }
}
