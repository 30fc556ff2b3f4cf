//! What no kernel of Warpverbs ever asks of an HCA, and programs of others do: shared receive queues, XRC domains, memory
//! windows, keys that stand for lists of other keys, and the null key.
//!
//! The judges of the tests (pyverbs, perftest, Linux's Soft-RoCE at the other end) use all of it. It stands apart so that
//! whoever reads how an RC write finds its memory does not meet it: the rest of the device names these types where a queue
//! pair or a key may have one of them, and calls in here for everything else.

pub(crate) mod null;
pub(crate) mod srq;
pub(super) mod srq_commands;
pub(crate) mod translation;
pub(crate) mod umr;
mod windows;
pub(crate) mod xrcd;
