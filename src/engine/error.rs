//! The errors of the host engine.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::{fmt, io};

use rendezvous::StoreError;

use crate::config::EngineAddress;
use crate::engine::ids::TransferId;
use crate::engine::kind::{Kind, Rights};
use crate::engine::limits::{
    LEAST_BLOCK, MOST_COUNTERS, MOST_ENGINES, MOST_GATHER, MOST_NOTICE_BYTES, MOST_OPERATIONS,
    MOST_PIECES, MOST_RAILS, MOST_REGIONS, MOST_SLICE_BYTES, MOST_SLICES, MOST_SLOTS, OVERHEAD,
};
use crate::error::{Error, Part, ThreadPanicked};
use crate::provider::ProviderError;
use crate::verbs::VerbsError;

/// One end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The memory of this side.
    Local,
    /// The memory of the peer.
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

/// An error of the host engine. A call that returns one has done nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A number of slots that is 0 or too large.
    #[error("{count} transfers at a time; they must be 1 to {MOST_SLOTS}")]
    Slots {
        /// The number asked for.
        count: u32,
    },
    /// An id of a transfer of another engine.
    #[error("transfer {id:?} is not of engine {engine}: ask the engine that it was submitted to")]
    ForeignId {
        /// The id that the caller gave.
        id: TransferId,
        /// The engine that was asked.
        engine: u32,
    },
    /// A release of a transfer that still runs.
    #[error("transfer {id:?} is not concluded yet: wait for it, or cancel it and wait")]
    Pending {
        /// The id of the transfer that still runs.
        id: TransferId,
    },
    /// Slices too short or too long.
    #[error("slices of {block} bytes; they must be {LEAST_BLOCK} to {MOST_SLICE_BYTES}")]
    Block {
        /// The bytes of a slice.
        block: u32,
    },
    /// A fragment that is longer than a slice.
    #[error("a fragment of {fragment} bytes; it must be 0 to {block}, the bytes of a slice")]
    Fragment {
        /// The bytes of the fragment.
        fragment: u32,
        /// The bytes of a slice.
        block: u32,
    },
    /// A last slice that is longer than a message of the port.
    #[error(
        "slices of {block} bytes and a fragment of {fragment}; they must be at most {most} bytes together, as the port's messages have"
    )]
    SliceBytes {
        /// The bytes of a slice.
        block: u32,
        /// The bytes of the fragment.
        fragment: u32,
        /// The most bytes of a message.
        most: u32,
    },
    /// A number of local ranges of a slice that is 0 or too large.
    #[error("{gather} local ranges for a slice; they must be 1 to {MOST_GATHER}")]
    Gather {
        /// Local ranges of a slice, as asked for.
        gather: u32,
    },
    /// A number of operations that is 0 or too large.
    #[error("{count} operations in a transfer; they must be 1 to {MOST_OPERATIONS}")]
    Operations {
        /// Operations of the transfer.
        count: usize,
    },
    /// Operations that cross too many borders of registrations.
    #[error(
        "operations that cross borders of registrations into more than {MOST_PIECES} pieces: submit them in several transfers"
    )]
    Pieces,
    /// A transfer with more slices than its account can count.
    #[error(
        "a transfer of more than {MOST_SLICES} slices of {block} bytes: submit it in several, or with longer slices"
    )]
    Slices {
        /// Bytes of a slice.
        block: u32,
    },
    /// A range that ends after the last address.
    #[error(
        "operation {operation}: {bytes} {side} bytes at {address:#x} end behind the last address"
    )]
    Wraps {
        /// Index of the operation, from 0 on.
        operation: u32,
        /// The end whose memory it is.
        side: Side,
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// A READ into memory from which a READ of the same transfer reads.
    #[error(
        "operation {operation} reads into {address:#x}, which operation {reader} of the transfer reads: submit them apart"
    )]
    ReadIntoItself {
        /// Index of the operation, from 0 on.
        operation: u32,
        /// The operation that reads that memory, from 0 on. It may be `operation` itself.
        reader: u32,
        /// Address of the first byte that the two operations have in common.
        address: u64,
    },
    /// A transfer for which no slot is free. Nothing was done. It may be submitted again after another transfer was released.
    #[error("all {slots} slots have a transfer: release those that are concluded, or wait")]
    WouldBlock {
        /// The number of slots.
        slots: usize,
    },
    /// A notice that is too long.
    #[error("a notice of {bytes} bytes; it must be at most {MOST_NOTICE_BYTES}")]
    NoticeBytes {
        /// Length of the notice in bytes.
        bytes: usize,
    },
    /// A notice for which the peer's inbox has no room, since the peer's program has not taken earlier notices. Nothing was done. The
    /// notice may be sent again after the program has taken some.
    #[error(
        "the inbox of {peer} has {most} bytes, of which {used} are taken: a notice of {bytes}, and {OVERHEAD} more for each, has no room before its program takes some"
    )]
    InboxFull {
        /// Name of the peer.
        peer: String,
        /// Bytes of the notice.
        bytes: usize,
        /// Bytes that are taken.
        used: u64,
        /// Bytes of the inbox.
        most: u64,
    },
    /// A transfer that was released, so that its id is unknown.
    #[error("transfer {id:?} was released")]
    Released {
        /// The id that the caller gave.
        id: TransferId,
    },
    /// A connection that has ended.
    #[error("the connection to {peer} has ended: connect again")]
    PeerGone {
        /// Name of the peer.
        peer: String,
    },
    /// A panic of a worker with QPs of the connection.
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
        /// The life that the descriptor names.
        found: u64,
        /// The life of the peer.
        peer: u64,
    },
    /// A range that overlaps a region and is not wholly inside it.
    #[error("{bytes} bytes at {address:#x} overlap a region that does not have all of them")]
    Overlap {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// Memory that is longer than a region of a device can be. Programs register it in parts.
    #[error(
        "{bytes} bytes of memory as one region; {device} takes at most {most} (max_mr_size): register it in parts"
    )]
    RegionBytes {
        /// Length of the memory.
        bytes: u64,
        /// The most bytes of a region of the device.
        most: u64,
        /// The name of the device.
        device: String,
    },
    /// A range that overlaps a region whose memory was freed. Its address names other bytes now.
    #[error(
        "{bytes} bytes at {address:#x} are of region {region}, whose memory has been freed and whose address was given to other memory: \
         deregister that region first"
    )]
    Freed {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u64,
        /// The number of the region.
        region: u64,
    },
    /// Memory that is registered as memory of the other kind, host or GPU.
    #[error(
        "{bytes} bytes at {address:#x} are registered as memory of {registered}; they must be registered as that, or after it was deregistered"
    )]
    OtherKind {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u64,
        /// The kind of memory as which they are registered.
        registered: &'static str,
    },
    /// A region that the engine does not have: its number was never given, or the region was taken away.
    #[error(
        "region {number} was never registered, or was taken away: give what `register` has returned"
    )]
    UnknownRegion {
        /// The number that the caller gave.
        number: u64,
    },
    /// A region of another engine.
    #[error(
        "region {number} names engine {named} of this process, and engine {engine} was asked: ask the engine that has registered it"
    )]
    ForeignRegion {
        /// The number that the caller gave.
        number: u64,
        /// The engine that it names.
        named: u32,
        /// The engine that was asked.
        engine: u32,
    },
    /// A region for which no number is left.
    #[error(
        "the engine has registered {MOST_REGIONS} regions, and gives no number twice: start the engine anew"
    )]
    RegionNumbers,
    /// An engine for which no number is left.
    #[error(
        "this process has made {MOST_ENGINES} engines, and gives no number twice: start the process anew"
    )]
    EngineNumbers,
    /// A region that transfers or grants use.
    #[error(
        "{users} uses of region {number} by running transfers and grants: wait for them, or revoke the grants"
    )]
    Busy {
        /// The number of the region that is in use.
        number: u64,
        /// Running transfers and grants that use it.
        users: u32,
    },
    /// A prepared transfer for another peer, or for an earlier life of this one.
    #[error("a transfer prepared for incarnation {found:#x}: the peer is {peer:#x}")]
    ForeignPrepared {
        /// The life for which it is.
        found: u64,
        /// The peer that was asked.
        peer: u64,
    },
    /// A transfer that another engine has prepared, of its own memory.
    #[error(
        "a transfer that engine {by} of this process has prepared is posted by engine {engine}: prepare it anew with a peer of the engine that posts it"
    )]
    PreparedElsewhere {
        /// The engine that has prepared it.
        by: u32,
        /// The engine that was asked.
        engine: u32,
    },
    /// A value of the configuration outside its limits.
    #[error("{what} is {value}; it must be {limit}")]
    Knob {
        /// The name of the value.
        what: &'static str,
        /// The value.
        value: u64,
        /// The limit, in words.
        limit: String,
    },
    /// A number of devices that is 0 or too large.
    #[error("an engine on {count} RDMA devices; they must be 1 to {MOST_RAILS}")]
    Devices {
        /// The number of devices that were named.
        count: usize,
    },
    /// A device that was named twice.
    #[error("the engine has RDMA device {name} twice: name each port once")]
    SameDevice {
        /// The name that the configuration has twice.
        name: String,
    },
    /// Devices of which libfabric drives some and others not.
    #[error(
        "libfabric drives {by_libfabric} of the {count} devices: it must drive all devices of an engine, or none, since a connection has one wire"
    )]
    MixedWires {
        /// The number of devices that libfabric drives.
        by_libfabric: usize,
        /// The number of devices.
        count: usize,
    },
    /// A number of QPs that leaves some device of the engine without a QP in each connection.
    #[error(
        "a connection has {qps} QPs for {devices} RDMA devices; they must be at least {devices} (WARPVERBS_ENGINE_QPS)"
    )]
    FewQps {
        /// QPs of a connection.
        qps: u32,
        /// Devices of the engine.
        devices: usize,
    },
    /// Bytes that are no grant.
    #[error("invalid grant: {what}")]
    Grant {
        /// What is wrong.
        what: &'static str,
    },
    /// A grant to another engine, or to an earlier life of this one.
    #[error("a grant to incarnation {found:#x}: this engine is {own:#x}")]
    ForeignGrant {
        /// The life for which it is.
        found: u64,
        /// This engine.
        own: u64,
    },
    /// A range that cannot be granted.
    #[error(
        "a grant of {bytes} bytes at {address:#x}; it must be at least one, all of one registration"
    )]
    GrantRange {
        /// Address of the first byte.
        address: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// A grant without a time.
    #[error("a grant with a time to live of 0; it must be more, or no limit")]
    TimeToLive,
    /// A grant for which no addresses are left.
    #[error(
        "a grant of {bytes} bytes: {given} of the addresses of grants are taken, and none is given twice: start the engine anew"
    )]
    GrantSpace {
        /// The number of addresses that are taken.
        given: u64,
        /// The number of addresses that were asked for.
        bytes: u64,
    },
    /// A grant that the engine has not made.
    #[error("grant {number} is not of this engine")]
    UnknownGrant {
        /// The number that the caller gave.
        number: u64,
    },
    /// An operation that the peer has not allowed.
    #[error("operation {operation} is a {kind}: the peer has granted {rights} on this region")]
    Right {
        /// Index of the operation, from 0 on.
        operation: u32,
        /// The direction of the operation.
        kind: Kind,
        /// The rights that the peer has granted.
        rights: Rights,
    },
    /// A counter that no engine has.
    #[error("counter {id}; it must be 0 to {last}", last = MOST_COUNTERS - 1)]
    Counter {
        /// The number of the counter.
        id: u32,
    },
    /// A word that a counter cannot be mirrored to.
    #[error("a word at {address:#x}; it must be at a multiple of 8")]
    Word {
        /// The address that the caller gave.
        address: u64,
    },
    /// A READ in a transfer that is to count at the peer: only WRITEs count.
    #[error("operation {operation} is a READ: only WRITEs count at the peer, submit it apart")]
    CountedRead {
        /// Index of the operation, from 0 on.
        operation: u32,
    },
    /// An operation that is to count and that one WRITE cannot carry.
    #[error(
        "operation {operation} of {bytes} bytes is to count; it must be 1 to {MOST_SLICE_BYTES} in one registration at the peer, and at most {gather} local ranges"
    )]
    CountedParts {
        /// Index of the operation, from 0 on.
        operation: u32,
        /// Length of the operation in bytes.
        bytes: u64,
        /// The most local ranges.
        gather: u32,
    },
    /// A counted post of a transfer that was prepared without counting.
    #[error("a transfer is to count that was prepared without: prepare it with `prepare_counting`")]
    PreparedUncounted,
    /// A call on an engine that is being closed.
    #[error("the engine is being closed")]
    Closing,
    /// A peer that must be reached within the machine and cannot be.
    #[error(
        "{peer} is not reached within this machine, and WARPVERBS_ENGINE_PATH is local: {reason}"
    )]
    NotLocal {
        /// Name of the peer.
        peer: String,
        /// The cause, in words.
        reason: String,
    },
    /// Memory of a GPU that no copy within the machine reaches.
    #[error(
        "the {side} memory of the transfer is a GPU's, no GPU of this engine reaches both ends of it, and WARPVERBS_ENGINE_PATH is local; it must be auto or nic"
    )]
    LocalGpu {
        /// The end whose memory it is.
        side: Side,
    },
    /// A range with a byte that is in no registered region.
    #[error("operation {operation}: the {side} byte at {address:#x} is in no registered region")]
    NotRegistered {
        /// Index of the operation, from 0 on.
        operation: u32,
        /// The end whose memory it is.
        side: Side,
        /// Address of the first byte that no region has.
        address: u64,
    },
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Self::new(Part::Engine, error)
    }
}

/// Why two engines do not trust each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Distrust {
    /// The other end has a key.
    #[error("it asks for a key, and this engine has none: set WARPVERBS_ENGINE_KEY_FILE")]
    Keyed,
    /// The other end has no key.
    #[error("it speaks without a key: this engine connects only with those that have its own")]
    Clear,
    /// Bytes that were not made with the key, or not for this connection.
    #[error("its key is another, or what it has sent was changed on its way or sent before")]
    Wrong,
}

/// An error of an engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The engine has refused the call, and nothing was done.
    #[error(transparent)]
    Refused(#[from] EngineError),
    /// The HCA or the system has failed or refused.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// An element of a list that is done as a whole or not at all. Nothing was done.
    #[error("element {element} of the list: {error}")]
    Listed {
        /// The index of the element, from 0 on.
        element: usize,
        /// The error of the element.
        error: Box<HostError>,
    },
    /// A peer that cannot be connected.
    #[error("{peer}: {reason}")]
    Connection {
        /// The address of the peer, as host:port or unix:PATH.
        peer: String,
        /// The cause, in words.
        reason: String,
    },
    /// An address that other machines reach, for an engine without a key.
    #[error(
        "other machines reach {address}, and this engine asks no peer for a key: give it one by WARPVERBS_ENGINE_KEY_FILE, listen on loopback or on unix:PATH, or set `insecure`"
    )]
    Insecure {
        /// The address that was to be listened at.
        address: SocketAddr,
    },
    /// A peer that has not shown that it has this engine's key, or that asks for one.
    #[error("{peer}: {distrust}")]
    Distrusted {
        /// The address of the peer, as host:port or unix:PATH.
        peer: String,
        /// The difference of the keys.
        distrust: Distrust,
    },
    /// A key file that is not taken.
    #[error("the key file {}: {problem}", file.display())]
    KeyFile {
        /// Path of the file that holds the key.
        file: PathBuf,
        /// The reason why it is not taken, in words.
        problem: String,
    },
    /// An error of the store, or a name that the store does not take.
    #[error("engine '{name}' in the store: {error}")]
    Store {
        /// The name that was looked for or published.
        name: String,
        /// The error of the store.
        error: StoreError,
    },
    /// A name that no engine has published.
    #[error("no engine has published the name '{name}' in the store")]
    UnknownName {
        /// The name that was looked for.
        name: String,
    },
    /// A name that another engine has published.
    #[error(
        "another engine has published the name '{name}' in the store: take another name, or end that engine"
    )]
    NameTaken {
        /// The name that was to be published.
        name: String,
    },
    /// An address to which no peer can connect.
    #[error(
        "the address {address} is published; it must be one of this machine with its port, or unix: and an absolute path"
    )]
    NoAddress {
        /// The address that was to be published.
        address: EngineAddress,
    },
    /// An address at which this process cannot listen.
    #[error("{address}: this process cannot listen there: {source}")]
    Listen {
        /// The address that was to be listened at.
        address: EngineAddress,
        /// The reason of the system, or why the file that is there is not replaced.
        source: io::Error,
    },
}

impl From<VerbsError> for HostError {
    fn from(error: VerbsError) -> Self {
        Self::Provider(error.into())
    }
}

/// Why an engine has no room for its transfers.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum TransfersError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Provider(#[from] ProviderError),
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
