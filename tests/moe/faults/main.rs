//! What dispatch and combine do when ranks are late, die, or their words are reordered.

mod abandon;
mod alone;
mod availability;
mod clear;
mod clocks;
mod deaths;
mod group;
mod held;
mod masks;
mod moves;
mod order;
mod records;
mod recovery;
mod situations;
mod staging;
mod views;
mod wrap;
