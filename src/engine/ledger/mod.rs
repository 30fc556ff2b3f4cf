//! A transfer in numbers: its slots, its plan of slices, its account. This part has no thread and no HCA.

pub(in crate::engine) mod account;
pub(in crate::engine) mod cut;
pub(in crate::engine) mod overlap;
pub(in crate::engine) mod plan;
pub(in crate::engine) mod report;
pub(in crate::engine) mod slots;
pub(in crate::engine) mod tally;
