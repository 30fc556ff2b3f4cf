//! Commands. A command is bytes in and bytes out, and any bytes may come in.
//!
//! The kernel lets a user process send commands of five kinds only, each through a call of its own; [`Class`] names the kinds. Status and
//! syndrome of a refusal go into the output. A command whose buffers are too short for a header is refused before it counts as executed.

mod call;
mod capabilities;
mod cq;
mod execute;
mod mkey;
mod passed_on;
mod qp;
mod qp_modify;
mod queries;
mod srq;
pub mod syndrome;

pub(super) use call::Class;
pub(super) use capabilities::general as general_capabilities;
pub(super) use cq::remove_cq;
pub(super) use execute::{destroy_input, execute};
pub(super) use qp::remove_qp;
pub(super) use srq::remove_srq;
