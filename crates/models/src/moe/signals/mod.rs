//! A model of words, slots, credits, skips and deadlines: every interleaving of a few ranks that run one order of phases.
//!
//! Each (sender, receiver, kind, set) has one FIFO (the QP) and one payload slot. It has one signal in the receiver's memory: data word
//! (call, count), credits, calls not sent. Messages are delivered in order inside a FIFO and in any order between FIFOs. The rules are A1
//! to A12. Of A11 it has the part without buffers; the model `buffers` has the rest. Module `turn` has one function for each phase. Calls count
//! from 1, and 0 means no call, as in the kernels.

mod configuration;
mod moves;
pub mod pattern;
mod state;
mod steps;
mod turn;

pub use configuration::{Clock, Cut, Mutant, Signals, Skips};
