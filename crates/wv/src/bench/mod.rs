//! Measurements.
//!
//! [`post`] measures posting alone: rings in device memory whose NIC is a sink, a block of the same kernel that answers doorbells
//! with CQEs. It needs neither NIC nor software HCA, and its numbers say nothing about either. On simt everything runs the same
//! and is checked the same, but the times are those of a simulation. The report says so and shows none as speed. [`others`] does
//! the same with the posting functions of other projects.
//!
//! [`primitives`] measures single operations of a device. [`registers`] shows as what a page of registers can be mapped, and
//! [`facts`] has the properties that the device reports.
//!
//! [`moe`] counts what a MoE step puts on the wire, on software HCAs. [`rejoin`] measures what a returning rank costs the others.
//! [`group`] counts what a group of ranks asks of its store, over a simulated fabric. [`p2p`] measures the host engine, over
//! lanes without an HCA or on software HCAs, and [`engine`] what it adds to them. [`local`] measures its copies between processes of one machine, and [`fill`] how
//! fast it writes pages to random places. [`patterns`] moves what programs do, to one peer or several. The other end
//! of the latter two may be on another machine ([`served`]). [`regions`] measures what registering memory costs, and what it costs to find a region.
//! Ends of the latter three have memory of the host or of a GPU ([`memory`]).

mod clock;
pub mod engine;
mod error;
pub mod facts;
pub mod fill;
pub mod group;
pub mod local;
pub mod memory;
pub mod moe;
pub mod others;
pub mod p2p;
pub mod patterns;
pub mod post;
pub mod primitives;
mod ranks;
pub mod regions;
pub mod registers;
pub mod rejoin;
mod report;
mod resident;
mod ring;
pub mod served;
mod spread;

pub use error::BenchError;
pub use report::{Report, Row};
