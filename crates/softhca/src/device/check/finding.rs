//! The kinds of findings.

use std::fmt;

/// A kind of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Finding {
    /// The slot of the WQE that is due holds a WQE with another index.
    WqeIndex,
    /// A WQE names another QP than the one whose ring it is in.
    WqeQpn,
    /// A WQE's length is 0 or more than its ring.
    WqeLength,
    /// A WQE is longer than what the doorbell record has handed over.
    WqeBeyondDoorbell,
    /// A WQE cannot be decoded.
    WqeSegment,
    /// The bytes of a WQE were changed between its doorbell and the fetch. Only with [`super::CheckConfig::wqe_bytes`].
    WqeChangedBeforeFetch,
    /// The bytes of a WQE were changed between the fetch and its completion. Only with [`super::CheckConfig::wqe_bytes`].
    WqeChangedBeforeCompletion,
    /// A doorbell record went back.
    DoorbellBackwards,
    /// A doorbell record is further ahead than its ring is long.
    DoorbellBeyondRing,
    /// A slot was filled again before its WQE was complete.
    RingReusedEarly,
    /// A doorbell was rung in a register that the QP it names does not use.
    DoorbellStray,
    /// A doorbell is ahead of its doorbell record.
    DoorbellWithoutRecord,
    /// A doorbell record moved and no doorbell came.
    RecordWithoutDoorbell,
    /// A CQ had no room.
    CqOverrun,
    /// An lkey does not give what a WQE asks of it.
    LocalKey,
    /// A WQE asks for a change of a key that is not possible.
    KeyChange,
    /// An rkey does not give what a peer asks of it.
    RemoteKey,
    /// A key was used after its end.
    KeyEnded,
    /// A QP does not allow what its peer asks, or has no queue for it.
    RemoteRight,
    /// The ends of a connection do not agree on sequence numbers.
    PsnMismatch,
    /// The receive counter of a doorbell record is further ahead than its ring is long.
    ReceiveBeyondRing,
    /// The list of an SRQ leads to no WQE.
    SrqList,
    /// A datagram has the wrong Q_Key.
    QueueKey,
    /// Two QPs write to one remote range at once. Only with [`super::CheckConfig::overlap`].
    Overlap,
    /// The HCA's socket does not work.
    Socket,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WqeIndex => "wqe-index",
            Self::WqeQpn => "wqe-qpn",
            Self::WqeLength => "wqe-length",
            Self::WqeBeyondDoorbell => "wqe-beyond-doorbell",
            Self::WqeSegment => "wqe-segment",
            Self::WqeChangedBeforeFetch => "wqe-changed-before-fetch",
            Self::WqeChangedBeforeCompletion => "wqe-changed-before-completion",
            Self::DoorbellBackwards => "doorbell-backwards",
            Self::DoorbellBeyondRing => "doorbell-beyond-ring",
            Self::RingReusedEarly => "ring-reused-early",
            Self::DoorbellStray => "doorbell-stray",
            Self::DoorbellWithoutRecord => "doorbell-without-record",
            Self::RecordWithoutDoorbell => "record-without-doorbell",
            Self::CqOverrun => "cq-overrun",
            Self::LocalKey => "local-key",
            Self::KeyChange => "key-change",
            Self::RemoteKey => "remote-key",
            Self::KeyEnded => "key-ended",
            Self::RemoteRight => "remote-right",
            Self::PsnMismatch => "psn-mismatch",
            Self::ReceiveBeyondRing => "receive-beyond-ring",
            Self::SrqList => "srq-list",
            Self::QueueKey => "queue-key",
            Self::Overlap => "overlap",
            Self::Socket => "socket",
        })
    }
}
