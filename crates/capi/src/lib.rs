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
//! `engine` is the host engine with its regions and peers, `transfer` what a program on the CPU moves by it.

#![expect(
    non_camel_case_types,
    reason = "names as C programs write them, since they are exported"
)]

mod cause;
mod engine;
mod event;
mod group;
mod handle;
mod launch;
mod moe;
mod peer;
mod phases;
mod placement;
mod settings;
mod sized;
mod staging;
mod status;
mod team;
mod transfer;
mod window;

pub use engine::*;
pub use event::*;
pub use group::*;
pub use launch::*;
pub use moe::*;
pub use peer::*;
pub use phases::*;
pub use placement::*;
pub use staging::*;
pub use status::*;
pub use team::*;
pub use transfer::*;
pub use window::*;
