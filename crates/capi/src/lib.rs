//! The C ABI: opaque handles, plain structs, a status from every function. `include/warpverbs.h` is rendered from here.
//!
//! `status` holds what every function shares: no panic crosses the boundary, an error leaves its words for
//! [`wv_last_error`]; `cause` says which status an error of the library is. `sized` reads and fills structs of programs that were
//! compiled with an older or a newer header, `handle` knows which handles live.
//!
//! `team` opens a team and its device memory, `window` makes memory that peers reach, `launch` starts kernels by name, `peer` ends
//! and renews the QPs to one rank. `moe` makes layers and calls, `placement` says where their experts are, `phases` launches,
//! `staging` is the memory of zero-copy combines. `group` lets ranks go and come while calls go on, `event` tells of it.
//!
//! `engine` is the host engine with its regions and peers, `transfer` what a program on the CPU moves by it, `notice` what it tells, `counter` what counts there,
//! `memory` what engines of one machine share, `statistics` what an engine has done.

#![expect(
    non_camel_case_types,
    reason = "names as C programs write them, since they are exported"
)]

mod cause;
mod counter;
mod engine;
mod event;
mod grant;
mod group;
mod handle;
mod launch;
mod memory;
mod moe;
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
pub use grant::*;
pub use group::*;
pub use launch::*;
pub use memory::*;
pub use moe::*;
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
