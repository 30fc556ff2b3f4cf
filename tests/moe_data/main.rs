//! What dispatch and combine make of data: formats, layouts, shapes, against the oracles.

mod combine;
mod layouts;
mod sizes;
mod slots;
#[path = "../moe/support.rs"]
mod support;
