//! The C ABI: opaque handles, plain structs, a status from every function. `include/warpverbs.h` is rendered from here.
//!
//! `status` holds the parts that every function shares: no panic crosses the boundary, and an error leaves its words for
//! [`wv_last_error`]. `cause` maps errors of the library to statuses. `sized` reads and fills structs of programs that were
//! compiled with an older or a newer header. `handle` knows which handles live.
//!
//! `team` opens a team and its device memory, `window` makes memory that peers reach, and `launch` starts kernels by name. `peer`
//! ends and renews the QPs to one rank. `moe` makes layers and calls, `placement` places their experts, `phases` launches them, and
//! `staging` is the memory of zero-copy combines. `group` lets ranks go and come while calls go on, and `event` reports it.
//!
//! `engine` is the host engine with its regions and peers. `transfer` has its transfers, `notice` its notices, `counter` its
//! counters. `memory` is memory that engines of one machine share, and `statistics` has the counts of an engine.

#![expect(
    non_camel_case_types,
    reason = "names as C programs write them, since they are exported"
)]

mod cause;
mod counter;
mod engine;
mod event;
mod gpu_memory;
mod grant;
mod group;
mod handle;
mod launch;
mod memory;
mod moe;
mod name;
mod notice;
mod peer;
mod phases;
mod placement;
mod settings;
mod sized;
mod staging;
mod statistics;
mod status;
mod team;
mod transfer;
mod window;

pub use counter::*;
pub use engine::*;
pub use event::*;
pub use gpu_memory::*;
pub use grant::*;
pub use group::*;
pub use launch::*;
pub use memory::*;
pub use moe::*;
pub use name::*;
pub use notice::*;
pub use peer::*;
pub use phases::*;
pub use placement::*;
pub use staging::*;
pub use statistics::*;
pub use status::*;
pub use team::*;
pub use transfer::*;
pub use window::*;
