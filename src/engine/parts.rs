//! Parts of a transfer, and an engine over any provider. Only the tests and measurements of this workspace need them.

pub use super::host::{sleeps_on, wakes, ways};
pub use super::ledger::account::{Account, AtomicAccount, Change, Close};
pub use super::ledger::cut::Cut;
pub use super::ledger::plan::{Local, Plan, Region, Regions, Slice};
pub use super::ledger::slots::{SlotWord, Slots};
pub use super::limits::{
    LEAST_BLOCK, MOST_GATHER, MOST_PIECES, MOST_SLICE_BYTES, MOST_SLICES, MOST_SLOTS,
};
pub use super::memory::table::RegionTable;
pub use super::over::over;
pub use crate::provider::sink::SinkFault;
