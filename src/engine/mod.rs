//! The host engine: a program on the CPU moves memory, striped over QPs and NICs, and learns what became of it.
//!
//! So far here is the part of a transfer that touches no HCA. `account` counts its slices in one atomic word, from which workers
//! pull; `slots` has the ids of transfers, which outlive them. The models of both (`models::engine`) run on these words. `cut` and
//! `plan` make slices of a vector of operations.

mod account;
mod cut;
mod error;
mod plan;
mod slots;

pub use account::{Account, AtomicAccount, Change, Close, MOST_SLICES, Outcome};
pub use cut::{Cut, LEAST_BLOCK, MOST_SLICE_BYTES};
pub use error::{EngineError, Side};
pub use plan::{
    Kind, Local, MOST_GATHER, MOST_OPERATIONS, MOST_PIECES, Operation, Plan, Region, Regions, Slice,
};
pub use slots::{MOST_SLOTS, SlotWord, Slots, Status, TransferId};
