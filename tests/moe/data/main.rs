//! What dispatch and combine make of data: formats, layouts, shapes, against the oracles.

mod cell;
mod combine;
mod device;
mod formats;
mod grid;
mod layouts;
mod limits;
mod raw;
mod sizes;
mod slots;
mod workspace;
