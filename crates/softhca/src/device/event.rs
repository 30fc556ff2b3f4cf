//! Events that a device reports by itself.

/// An event that the device reports by itself. The engine thread delivers it while it holds no lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// A CQ has an entry after the index that it was armed with.
    CqCompletion(u32),
    /// A CQ has overrun.
    CqError(u32),
    /// A QP went to the error state without a completion that says so: its responder refused a request.
    QpRequestError(u32),
    /// A QP went to the error state like `QpRequestError`, because of a key.
    QpAccessError(u32),
    /// A QP went to the error state like `QpRequestError`, because the device could not go on with the QP.
    QpFatal(u32),
    /// A QP that is not ready to send yet has received its first packet.
    QpEstablished(u32),
    /// The send queue of a QP is drained.
    QpSqDrained(u32),
    /// A QP in the error state has taken its last WQE from its SRQ.
    QpLastWqe(u32),
    /// An SRQ holds fewer WQEs than the limit that was set.
    SrqLimit(u32),
    /// An SRQ cannot be used any more.
    SrqError(u32),
    /// A port went up.
    PortActive(u8),
    /// A port went down.
    PortDown(u8),
    /// The whole device has failed.
    DeviceFatal,
}
