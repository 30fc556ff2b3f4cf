//! The settings that are chosen by a word, and the words of their variables.

use std::fmt;

/// The threads that post on a QP at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Any thread of any kernel.
    #[default]
    Shared,
    /// One thread or one warp at a time: no flags, no atomics.
    Exclusive,
    /// The threads of one block: flags and atomics of block scope.
    Cta,
}

/// How the HCA hears of posted work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Doorbell {
    /// A record in memory says up to which WQE the HCA may run. Then the poster stores to the register.
    #[default]
    Record,
    /// No record in memory: the value stored to the register says up to which WQE the HCA may run. Needs the capability
    /// `send_dbr_mode_no_dbr_ext`. No other QP uses the register's page.
    NoRecord,
    /// A record in memory, and then a word of host memory. A thread of the host reads that word and stores to the register. For GPUs into
    /// which the register cannot be mapped.
    Mailbox,
}

/// In which memory send queue, doorbell records, CQEs and receive queue lie. Indices and flags always lie in device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Queues {
    /// In the control heap, with everything else.
    #[default]
    Device,
    /// In a second heap, of host memory that kernels reach: for devices whose memory the HCA cannot reach. Kernels then need fences of
    /// system scope.
    Host,
}

/// In which memory windows lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// In device memory.
    Device,
    /// In pinned host memory that kernels reach: for devices whose memory the HCA cannot reach.
    Host,
}

/// How send completions are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CqKind {
    /// One entry, overwritten by each completion.
    #[default]
    Collapsed,
    /// An entry for each WQEBB of the send queue, so that the first error is never overwritten.
    Wide,
}

/// How a signal is kept after the data that it announces. The ways are in the order of their cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignalOrder {
    /// The signal is an inline write on the same QP. For devices that place writes in order.
    Inline,
    /// The signal is an atomic swap on the same QP. For devices that execute atomics after what was posted before.
    Swap,
    /// The signal is posted when the data has completed. For all devices.
    Flush,
}

/// Words of `WARPVERBS_SHARING`.
pub(super) const SHARING: [(&str, Sharing); 3] = [
    ("shared", Sharing::Shared),
    ("exclusive", Sharing::Exclusive),
    ("cta", Sharing::Cta),
];

/// Words of `WARPVERBS_DOORBELL`.
pub(super) const DOORBELL: [(&str, Option<Doorbell>); 4] = [
    ("auto", None),
    ("record", Some(Doorbell::Record)),
    ("no-record", Some(Doorbell::NoRecord)),
    ("mailbox", Some(Doorbell::Mailbox)),
];

/// Words of `WARPVERBS_QUEUES`.
pub(super) const QUEUES: [(&str, Option<Queues>); 3] = [
    ("auto", None),
    ("device", Some(Queues::Device)),
    ("host", Some(Queues::Host)),
];

/// Words of `WARPVERBS_MEMORY`.
pub(super) const MEMORY: [(&str, Option<Memory>); 3] = [
    ("auto", None),
    ("device", Some(Memory::Device)),
    ("host", Some(Memory::Host)),
];

/// Words of `WARPVERBS_CQ`.
pub(super) const CQ: [(&str, CqKind); 2] =
    [("collapsed", CqKind::Collapsed), ("wide", CqKind::Wide)];

/// Words of `WARPVERBS_MOE_ORDER`.
pub(super) const MOE_ORDER: [(&str, Option<SignalOrder>); 4] = [
    ("auto", None),
    ("inline", Some(SignalOrder::Inline)),
    ("swap", Some(SignalOrder::Swap)),
    ("flush", Some(SignalOrder::Flush)),
];

/// How transfers of an engine go to peers of its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EnginePath {
    /// By copies within the machine if that is possible, otherwise by the NIC.
    #[default]
    Auto,
    /// By the NIC, also to peers of this machine.
    Nic,
    /// By copies within the machine. A peer for which that is not possible is not connected.
    Local,
}

impl fmt::Display for EnginePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = ENGINE_PATH.iter().find(|(_, path)| path == self);
        f.write_str(word.map_or("", |(word, _)| word))
    }
}

/// Which rails of an engine meet which rails of its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EnginePairing {
    /// QP `n` leaves by rail `n` and enters by rail `n`.
    #[default]
    Place,
    /// All rails of both ends meet, as far as the connection has QPs. A slice takes a rail near the peer's memory, if the engine
    /// knows one that works. If either end asks for this, both do it.
    Near,
}

/// The CQs in which the QPs of an engine complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EngineCq {
    /// Each worker has its own, and takes no lock.
    #[default]
    Worker,
    /// The workers of a NIC share one. Each worker that looks takes what has completed, for the other workers too.
    Nic,
}

/// Words of `WARPVERBS_ENGINE_PATH`.
pub(super) const ENGINE_PATH: [(&str, EnginePath); 3] = [
    ("auto", EnginePath::Auto),
    ("nic", EnginePath::Nic),
    ("local", EnginePath::Local),
];

/// Words of `WARPVERBS_ENGINE_PAIRING`.
pub(super) const ENGINE_PAIRING: [(&str, EnginePairing); 2] = [
    ("place", EnginePairing::Place),
    ("near", EnginePairing::Near),
];

/// Words of `WARPVERBS_ENGINE_CQ`.
pub(super) const ENGINE_CQ: [(&str, EngineCq); 2] =
    [("worker", EngineCq::Worker), ("nic", EngineCq::Nic)];

/// Words of `WARPVERBS_ENGINE_DEPTH`.
pub(super) const ENGINE_DEPTH: [(&str, u8); 8] = [
    ("256", 8),
    ("512", 9),
    ("1024", 10),
    ("2048", 11),
    ("4096", 12),
    ("8192", 13),
    ("16384", 14),
    ("32768", 15),
];

/// When packets have a global route header on InfiniBand. RoCE packets always have their addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrhUse {
    /// If the subnets of both ports differ, or one of the ports demands it.
    #[default]
    Auto,
    /// Every packet has one, even within a subnet.
    Always,
    /// No packet has one. A peer that needs one is refused.
    Never,
}

/// Words of `WARPVERBS_GRH`.
pub(super) const GRH: [(&str, GrhUse); 3] = [
    ("auto", GrhUse::Auto),
    ("always", GrhUse::Always),
    ("never", GrhUse::Never),
];

/// Words of `WARPVERBS_MTU`.
pub(super) const MTU: [(&str, Option<u16>); 6] = [
    ("auto", None),
    ("256", Some(256)),
    ("512", Some(512)),
    ("1024", Some(1024)),
    ("2048", Some(2048)),
    ("4096", Some(4096)),
];

/// Words of `WARPVERBS_READ_DEPTH`.
pub(super) const READ_DEPTH: [(&str, Option<u8>); 9] = [
    ("auto", None),
    ("1", Some(1)),
    ("2", Some(2)),
    ("4", Some(4)),
    ("8", Some(8)),
    ("16", Some(16)),
    ("32", Some(32)),
    ("64", Some(64)),
    ("128", Some(128)),
];
