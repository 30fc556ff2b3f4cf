//! The measurements of `wv bench`.
//!
//! `post` measures posting alone, on rings in device memory. In place of a NIC they have a sink: a block of the same kernel that answers
//! doorbells with CQEs. It needs neither NIC nor software HCA, and its numbers say nothing about either. On simt the same code runs with
//! the same checks, but the times are those of a simulation. The report says so and shows none as speed. `others` measures the posting
//! functions of other projects in the same way.
//!
//! `primitives` measures single operations of a device. `registers` shows the memory types as which a page of registers can be mapped,
//! and `facts` has the properties that the device reports.
//!
//! `moe` counts what a MoE step puts on the wire, on software HCAs. `rejoin` measures what a returning rank costs the others. `group`
//! counts what a group of ranks asks of its store, over a simulated fabric. `p2p` measures the host engine, over lanes without an HCA or
//! on software HCAs, and `engine` what the engine adds to them. `local` measures the engine's copies between processes of one machine.
//! `fill` measures how fast the engine writes pages to random places, and `patterns` moves what programs move, to one peer or several.
//! For `fill` and `patterns` the other end may be on another machine (`served`). `regions` measures what registering memory costs,
//! and what finding a region costs. For `fill`, `patterns` and `regions` the ends have memory of the host or of a GPU (`memory`).
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! command.rs       the command line of `wv bench`
//! ranks/           a MoE step, a rank that returns, a group and its store
//! device/ host/    posts and operations of a device, without an HCA; the host engine
//! error.rs         why a measurement has no result
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

mod command;
pub mod device;
mod error;
pub mod host;
pub mod ranks;

pub use command::{BenchCommand, run};
pub use device::KERNELS;
pub use error::BenchError;
