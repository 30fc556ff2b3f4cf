//! Measurements.
//!
//! [`post`] measures posting alone: rings in device memory whose NIC is a sink, a block of the same kernel that answers
//! doorbells with CQEs. It needs neither NIC nor software HCA, and its numbers say nothing about either. On simt everything
//! runs the same and is checked the same, but the times are those of a simulation: the report says so and shows none as speed.
//! [`others`] does the same with the posting functions of other projects.
//!
//! [`primitives`] measures single operations of a device, [`registers`] as what a page of registers can be mapped, and [`facts`] is
//! what the device says of itself.
//!
//! [`moe`] counts what a MoE step puts on the wire, on software HCAs; [`rejoin`] what it costs the others that a rank comes back.
//! [`group`] counts what a group of ranks asks of its store, over a simulated fabric. [`p2p`] measures the host engine, over lanes
//! without an HCA or on software HCAs; [`fill`] how fast it writes pages to random places.

mod error;
pub mod facts;
pub mod fill;
pub mod group;
pub mod moe;
pub mod others;
pub mod p2p;
pub mod post;
pub mod primitives;
mod ranks;
pub mod registers;
pub mod rejoin;
mod report;
mod ring;

pub use error::BenchError;
pub use report::{Report, Row};
