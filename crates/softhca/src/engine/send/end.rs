//! The ends of connections.

/// One end of a connection: HCA number and QP number.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct End {
    pub(in crate::engine) hca: usize,
    pub(in crate::engine) qpn: u32,
}
