//! `wv bench`: its command line.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! bench.rs     the commands, and what runs each
//! device.rs engine.rs fill.rs group.rs moe.rs others.rs p2p.rs regions.rs rejoin.rs   a command each
//! post.rs      `wv bench post`
//! serve.rs     `--serve`, and where memory of the ends is
//! finish.rs inside.rs   the end of a command; software HCAs in this program
//! ```

mod bench;
mod device;
mod engine;
mod fill;
mod finish;
mod group;
mod inside;
mod moe;
mod others;
mod p2p;
mod post;
mod regions;
mod rejoin;
mod serve;

pub use bench::{BenchCommand, run};
