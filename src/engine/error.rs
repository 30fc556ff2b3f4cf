//! What the host engine refuses.

use std::fmt;
use std::net::SocketAddr;

use super::account::MOST_SLICES;
use super::cut::{LEAST_BLOCK, MOST_SLICE_BYTES};
use super::notices::{MOST_NOTICE_BYTES, OVERHEAD};
use super::plan::{MOST_GATHER, MOST_OPERATIONS, MOST_PIECES};
use super::slots::{MOST_SLOTS, TransferId};
use super::transfers::TransfersError;
use crate::error::{Error, Part, ThreadPanicked};
use crate::provider::ProviderError;
use crate::verbs::VerbsError;

/// One end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Here.
    Local,
    /// At the peer.
    Remote,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Remote => "remote",
        })
    }
}

/// An error of the host engine. Nothing has been done where one is returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No slots, or too many.
    #[error("{count} transfers at a time: expected 1 to {MOST_SLOTS}")]
    Slots {
        /// How many.
        count: u32,
    },
    /// An id of another engine.
    #[error("transfer {id:?} is not of engine {engine}: ask the engine that it was submitted to")]
    ForeignId {
        /// The id.
        id: TransferId,
        /// The engine that was asked.
        engine: u32,
    },
    /// A transfer that is to be released runs.
    #[error("transfer {id:?} is not concluded yet: wait for it, or cancel it and wait")]
    Pending {
        /// The id.
        id: TransferId,
    },
    /// Slices too short or too long.
    #[error("slices of {block} bytes: expected {LEAST_BLOCK} to {MOST_SLICE_BYTES}")]
    Block {
        /// Their bytes.
        block: u32,
    },
    /// A fragment that is longer than a slice.
    #[error("a fragment of {fragment} bytes: expected 0 to {block}, the bytes of a slice")]
    Fragment {
        /// Its bytes.
        fragment: u32,
        /// Bytes of a slice.
        block: u32,
    },
    /// A last slice that no message carries.
    #[error(
        "slices of {block} bytes and a fragment of {fragment}: expected at most {most} bytes together, as the port's messages have"
    )]
    SliceBytes {
        /// Bytes of a slice.
        block: u32,
        /// Bytes of the fragment.
        fragment: u32,
        /// Most bytes of a message.
        most: u32,
    },
    /// No local ranges for a slice, or too many.
    #[error("{gather} local ranges for a slice: expected 1 to {MOST_GATHER}")]
    Gather {
        /// How many.
        gather: u32,
    },
    /// No operations, or too many.
    #[error("{count} operations in a transfer: expected 1 to {MOST_OPERATIONS}")]
    Operations {
        /// How many.
        count: usize,
    },
    /// Operations that cross too many borders of registrations.
    #[error(
        "operations that cross borders of registrations into more than {MOST_PIECES} pieces: submit them in several transfers"
    )]
    Pieces,
    /// More bytes than a transfer's account can count slices of.
    #[error(
        "a transfer of more than {MOST_SLICES} slices of {block} bytes: submit it in several, or with longer slices"
    )]
    Slices {
        /// Bytes of a slice.
        block: u32,
    },
    /// A range that ends behind the last address.
    #[error(
        "operation {operation}: {bytes} {side} bytes at {address:#x} end behind the last address"
    )]
    Wraps {
        /// Which operation, from 0 on.
        operation: u32,
        /// Which end of it.
        side: Side,
        /// First byte.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// A READ to where a READ of the same transfer reads from.
    #[error(
        "operation {operation} reads into {address:#x}, which operation {reader} of the transfer reads: submit them apart"
    )]
    ReadIntoItself {
        /// Which operation, from 0 on.
        operation: u32,
        /// The one that reads there; may be the same.
        reader: u32,
        /// The first byte that both have.
        address: u64,
    },
    /// All slots are taken. Nothing was done; it may be submitted again when a transfer was released.
    #[error("all {slots} slots have a transfer: release those that are concluded, or wait")]
    WouldBlock {
        /// How many there are.
        slots: usize,
    },
    /// A notice that is too long.
    #[error("a notice of {bytes} bytes: expected at most {MOST_NOTICE_BYTES}")]
    NoticeBytes {
        /// Its bytes.
        bytes: usize,
    },
    /// The peer's program has not taken the notices that it has. Nothing was done; it may be sent again when it has.
    #[error(
        "the inbox of {peer} has {most} bytes, of which {used} are taken: a notice of {bytes}, and {OVERHEAD} more for each, has no room before its program takes some"
    )]
    InboxFull {
        /// The peer.
        peer: String,
        /// Bytes of the notice.
        bytes: usize,
        /// Bytes that are taken.
        used: u64,
        /// Bytes of the inbox.
        most: u64,
    },
    /// A transfer whose id says nothing any more.
    #[error("transfer {id:?} was released")]
    Released {
        /// The id.
        id: TransferId,
    },
    /// The connection has ended.
    #[error("the connection to {peer} has ended: connect again")]
    PeerGone {
        /// The peer.
        peer: String,
    },
    /// A worker with QPs of the connection has panicked.
    #[error("{0}: close the engine")]
    WorkerPanicked(#[from] ThreadPanicked),
    /// Bytes that are no descriptor of a region.
    #[error("invalid region descriptor: {what}")]
    Descriptor {
        /// What is wrong.
        what: &'static str,
    },
    /// A descriptor of another engine, or of an earlier life of this one.
    #[error("a descriptor of incarnation {found:#x}: the peer is {peer:#x}")]
    Incarnation {
        /// That of the descriptor.
        found: u64,
        /// The peer's.
        peer: u64,
    },
    /// A range that overlaps a region in part.
    #[error("{bytes} bytes at {address:#x} overlap a region that does not have all of them")]
    Overlap {
        /// First byte.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// A region that the engine does not have.
    #[error("region {number} is not of this engine, or was taken away")]
    UnknownRegion {
        /// Its number.
        number: u64,
    },
    /// A region that transfers use.
    #[error("{users} uses of region {number} by running transfers: wait for them")]
    Busy {
        /// Its number.
        number: u64,
        /// How many.
        users: u32,
    },
    /// A prepared transfer for another peer, or for an earlier life of this one.
    #[error("a transfer prepared for incarnation {found:#x}: the peer is {peer:#x}")]
    ForeignPrepared {
        /// For which it is.
        found: u64,
        /// The peer that was asked.
        peer: u64,
    },
    /// A configuration outside its limits.
    #[error("{what} is {value}: expected {limit}")]
    Knob {
        /// Which value.
        what: &'static str,
        /// What it is.
        value: u64,
        /// What it may be.
        limit: String,
    },
    /// More devices than an engine has.
    #[error("an engine on {count} RDMA devices: name one")]
    Devices {
        /// How many were named.
        count: usize,
    },
    /// The engine is being closed.
    #[error("the engine is being closed")]
    Closing,
    /// A byte of a range that no registration has.
    #[error("operation {operation}: the {side} byte at {address:#x} is in no registered region")]
    NotRegistered {
        /// Which operation, from 0 on.
        operation: u32,
        /// Which end of it.
        side: Side,
        /// The first byte that is in none.
        address: u64,
    },
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Self::new(Part::Engine, error)
    }
}

/// An error of an engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// Nothing was done.
    #[error(transparent)]
    Refused(#[from] EngineError),
    /// The HCA or the system.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// A peer that cannot be connected.
    #[error("{peer}: {reason}")]
    Connection {
        /// Its place.
        peer: String,
        /// Why.
        reason: String,
    },
    /// An address that is not loopback.
    #[error(
        "other machines reach {address}, and this engine asks no peer for a key: listen on loopback, or set `insecure`"
    )]
    Insecure {
        /// Which.
        address: SocketAddr,
    },
    /// A store.
    #[error("engine '{name}' in the store: {reason}")]
    Store {
        /// The name that was looked for or told.
        name: String,
        /// Why.
        reason: String,
    },
}

impl From<VerbsError> for HostError {
    fn from(error: VerbsError) -> Self {
        Self::Provider(error.into())
    }
}

impl From<TransfersError> for HostError {
    fn from(error: TransfersError) -> Self {
        match error {
            TransfersError::Engine(error) => error.into(),
            TransfersError::Provider(error) => error.into(),
        }
    }
}

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        Self::new(Part::Engine, error)
    }
}
