//! When the engine works: one thread for all HCAs of the process, in turns that never block.
//!
//! [`thread`] runs turn after turn and sleeps in between. [`pace`] decides how long it sleeps. By [`wake`] software ends a sleep of the
//! engine, and the engine ends a sleep of software. A [`turn`](mod@turn) looks at every HCA once; a simulation calls it without the thread.

mod pace;
pub(super) mod thread;
pub(super) mod turn;
pub(super) mod wake;
