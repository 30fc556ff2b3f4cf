//! What dispatch and combine make of data: formats, layouts, shapes, against the oracles.

mod cell;
mod combine;
mod covering;
mod device;
mod formats;
mod grid;
mod layouts;
mod limits;
mod raw;
mod sizes;
mod slots;
#[expect(dead_code, reason = "no test file uses all of this")]
#[path = "../moe/support.rs"]
mod support;
mod workspace;
