//! Random WQE programs for two connected QPs, a sequential model of what they mean, and the device that runs them.
//!
//! ```text
//! seed ──> generate ──> Program ─┬─> reference: executes WQEs one after the other ──┐
//!                                └─> replay: rings, doorbells, engine turns ────────┴─> same completions, same memory?
//! ```
//!
//! The reference knows nothing of packets, turns or rings: it is what the specification says about one QP at a time.

mod atomics;
pub(crate) mod cases;
mod encode;
mod fences;
mod generate;
mod program;
mod reference;
mod replay;
mod shrink;

pub(crate) use generate::{Flavour, generate};
pub(crate) use program::Program;
pub(crate) use replay::{Outcome, replay};
pub(crate) use shrink::shrink;
