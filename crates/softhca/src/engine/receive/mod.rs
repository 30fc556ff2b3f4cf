//! Requests of peers to a QP. [`responder`] finds the memory that they name by rkey and carries out their writes, reads and [`atomics`].
//! Requests come from the wire or from an HCA of the same process.
//!
//! A message of a peer needs a receive WQE, which [`message`] takes, fills and completes. The WQE comes from the QP's [`own`] queue, from
//! the QP's [SRQ](srq), or from the SRQ that an XRC packet names. A datagram has a [header](grh) in front of it.

mod atomics;
pub(super) mod grh;
mod message;
mod own;
mod refusal;
mod responder;
mod srq;
