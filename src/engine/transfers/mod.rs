//! The transfers of an engine, as submitters, workers and waiters share them. This part names no provider.
//!
//! A transfer has a slot. The submitter writes its body before workers learn of the transfer, and workers only read the body. The account
//! is the one word that changes while the transfer runs. The next transfer in the slot uses its memory again. So a transfer allocates no
//! memory once its slot has had a similar one.
//!
//! # Rooms
//!
//! ```text
//! begin.rs concluded.rs   how a transfer begins; its conclusion as a future
//! transfers.rs   `Transfers`: the slots and the run queues, and what workers and waiters ask of a transfer
//! conclude.rs pull.rs   how slices finish and a transfer ends; how workers take slices
//! copiers.rs place.rs   which GPU copies; a slot with its body
//! failures.rs prepared.rs   slices that have failed; transfers as programs describe them
//! queue.rs waiting.rs   what workers have to do; who waits for conclusions and slots
//! ```

mod begin;
mod conclude;
pub(in crate::engine) mod concluded;
mod copiers;
mod failures;
mod place;
mod prepared;
mod pull;
pub(in crate::engine) mod queue;
#[cfg(test)]
mod tests;
#[expect(clippy::module_inception, reason = "the file of the type `Transfers`")]
mod transfers;
pub(in crate::engine) mod waiting;

pub(super) use failures::Lost;
pub(super) use place::By;
pub(super) use prepared::{How, Moves};
pub use prepared::{Options, Prepared};
pub(super) use pull::{Pulled, Room};
pub(super) use transfers::{Sizes, Transfers};
