//! WQEs that no kernel of Warpverbs posts, and programs of others do: datagrams (UD), with the header in front of what is
//! received, receive WQEs of shared queues, and UMR WQEs, which bind memory windows and make indirect keys.
//!
//! The judges of the tests (pyverbs, perftest, Linux's Soft-RoCE at the other end) use all of it. It stands apart so that
//! whoever follows an RC write does not meet it; the types are in the [device's part](crate::device::for_judges).

pub(super) mod datagram;
pub(super) mod grh;
pub(super) mod srq;
pub(super) mod umr;
