//! Objects that no kernel of Warpverbs uses, and other programs do. They are shared receive queues, XRC domains, memory windows,
//! keys that stand for lists of other keys, and the null key.
//!
//! The judges of the tests (pyverbs, perftest, Linux's Soft-RoCE at the other end) use all of it. It stands apart from the code
//! by which an RC write finds its memory. The rest of the device names these types where a queue pair or a key may have one of
//! them. It calls in here for everything else.

pub(crate) mod null;
pub(crate) mod srq;
pub(super) mod srq_commands;
pub(crate) mod translation;
pub(crate) mod umr;
mod windows;
pub(crate) mod xrcd;
