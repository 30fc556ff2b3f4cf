//! WQEs that no kernel of Warpverbs posts, and other programs do. They are datagrams (UD), with the header in front of received
//! bytes, and receive WQEs of shared queues. UMR WQEs, which bind memory windows and make indirect keys, are here too.
//!
//! The judges of the tests (pyverbs, perftest, Linux's Soft-RoCE at the other end) use all of it. It stands apart from the code
//! of an RC write; the types are in the [device's part](crate::device::for_judges).

pub(super) mod datagram;
pub(super) mod grh;
pub(super) mod srq;
pub(super) mod umr;
