//! What dispatch and combine do when ranks are late, die, or their words are reordered.

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
#[path = "../common/small.rs"]
mod small;
mod staging;
#[expect(dead_code, reason = "no test file uses all of this")]
#[path = "../moe/support.rs"]
mod support;
mod views;
mod wrap;
