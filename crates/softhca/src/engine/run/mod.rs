//! When the engine works: one thread for all HCAs of the process, in turns that never block.
//!
//! [`thread`] gives turn after turn and sleeps in between. [`pace`] decides how long, and by [`wake`] software ends a sleep of
//! the engine and the engine one of software. A [`turn`](mod@turn) looks at every HCA once; a simulation calls it without the
//! thread.

mod pace;
pub(super) mod thread;
pub(super) mod turn;
pub(super) mod wake;
