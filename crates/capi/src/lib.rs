//! The C ABI: opaque handles, plain structs, a status from every function. `include/warpverbs.h` is rendered from here.
//!
//! `status` holds what every function shares: no panic crosses the boundary, an error leaves its words for
//! [`wv_last_error`]. `team` opens a team and its device memory, `moe` makes layers and calls, `placement` says where their
//! experts are, `phases` launches, `staging` is the memory of zero-copy combines.

#![expect(
    non_camel_case_types,
    reason = "names as C programs write them, since they are exported"
)]

mod moe;
mod phases;
mod placement;
mod staging;
mod status;
mod team;

pub use moe::*;
pub use phases::*;
pub use placement::*;
pub use staging::*;
pub use status::*;
pub use team::*;
