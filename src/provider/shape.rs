//! The sizes of what a rail makes.

/// The sizes of what a rail makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RailShape {
    /// log2 of the WQEBBs of a QP.
    pub(crate) log_depth: u8,
    /// log2 of the receive WQEs of a QP: at least 4, and less than `log_depth`.
    pub(crate) log_receives: u8,
    /// log2 of the entries of each worker's first CQ for sends.
    pub(crate) log_entries: u8,
    /// The number of workers, at most 256.
    pub(crate) workers: u32,
    /// True if all workers share their CQs. If not, each worker has its own.
    pub(crate) shares_cqs: bool,
    /// The partition key. None: the first key of the port.
    pub(crate) pkey: Option<u16>,
    /// The port of a bond that QPs send by. 0: the QPs to a peer use the ports in turn.
    pub(crate) lag_port: u8,
    /// The most local ranges of a WQE, and the most bytes that a WQE carries. Not for `mlx5`, whose WQEs are as long as each needs.
    pub(crate) ranges: u32,
    pub(crate) inline: u32,
}
