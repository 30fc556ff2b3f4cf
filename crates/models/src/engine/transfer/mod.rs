//! A model of one striped transfer: workers, each with a QP of its own, pull slices from one account word.
//!
//! The workers post chains, reap completions, retry flushed slices and finish slices. A user cancels at any moment and polls. The thread
//! whose read-modify-write settles the account concludes the transfer: it writes cause and status, and sends the notice. The cause goes
//! through a store buffer, so it may become visible late. A QP fails at any moment, and an HCA may refuse part of a chain. Packets of a
//! failed QP may land until both ends have reset the pair.
//!
//! The reference implementation has a model in Python with the same states, except for two rules ([`Mutant::AsTheReference`]). That model
//! has no deadlines, no QP that stalls, no worker that panics and no lost peer. It has no second QP that fails and no pair that is used
//! again.
//!
//! Module `hca` has the steps of HCAs, wire and peer, `worker` the steps of a worker, and `user` the steps of the user and of the engine's
//! clock. `control` has the steps of the connection's own thread when a worker has panicked.

mod configurations;
mod control;
mod hca;
mod moves;
mod property;
mod state;
mod steps;
mod user;
mod worker;

pub use configurations::{Transfer, configurations, harmless, larger, mutants};
pub use moves::Step;
pub use property::{Mutant, Property};
pub use state::State;
