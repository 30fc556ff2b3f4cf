//! Formats of the mlx5 programmer's reference manual (PRM): commands, contexts, WQEs, CQEs, doorbells.
//!
//! Formats only: no memory is touched, nothing is executed. Structures of the command interface are `layout!` byte arrays with
//! accessors that carry the manual's bit offsets. Segments and completion entries are `#[repr(C)]` structs of big-endian
//! integers. Names are those of `mlx5_ifc.h` in CamelCase. Numbers that a device or peer chooses are open enums: every value is
//! representable.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

pub mod be;
pub mod cmd;
pub mod cq;
pub mod cqe;
pub mod doorbell;
pub mod hca_cap;
pub mod layout;
pub mod mkey;
mod open_enum;
pub mod q_counter;
pub mod qp;
pub mod qpc;
pub mod roce;
pub mod srq;
pub mod umr;
pub mod wqe;
