//! What a rail has room for.

/// What a rail has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RailShape {
    /// log2 of the WQEBBs of a QP.
    pub(crate) log_depth: u8,
    /// log2 of the receive WQEs of a QP: at least 4, and less than that of its WQEBBs.
    pub(crate) log_receives: u8,
    /// log2 of the entries of the first CQ of sends of a worker.
    pub(crate) log_entries: u8,
    /// Workers, at most 256.
    pub(crate) workers: u32,
    /// All workers have the same CQs; else each has its own.
    pub(crate) shares_cqs: bool,
    /// Partition key; none: the port's first.
    pub(crate) pkey: Option<u16>,
    /// Port of a bond; 0: the QPs to a peer leave by each in turn.
    pub(crate) lag_port: u8,
}
