//! A model of send buffers that an HCA may still read: every order of the steps of one sender with a healthy peer H and sick peers X and Y.
//!
//! The sender makes calls without end. A call takes a buffer, fills it, and posts one item to each peer that may get data. The item goes on
//! the QP of the call's set. An HCA reads the buffer when it sends the item, and again whenever it repeats it. It stops when the item is
//! done, or when it has flushed the QP. HCAs may be patient for ever. So an item on a link that is not up ends only if the link comes back
//! or the host ends the QP. The host ends QPs on certain evidence, or because a view parts the two ranks, but never by a clock.
//!
//! Model `signals` has the same rules with the words of all ranks, `parted` has them across two lives of a pair, and `epoch` says who may
//! end a QP. These models have no buffers: three ranks with buffers have too many states, and no rule about buffers needs the words of
//! other ranks.

mod configuration;
mod peer;
mod send;
mod state;
mod steps;

pub use configuration::{Buffers, Link, Rows, Rule};
