//! Objects that software makes by commands, and what the device remembers of each. These are queue pairs and the WQEs that they
//! have under way, completion queues and the events for their entries, and pages of doorbell registers. A [`table`] gives them
//! numbers.
//!
//! Objects know nothing of each other: commands check them against each other, and the engine runs them.

pub(crate) mod arming;
pub(crate) mod cq;
pub(crate) mod qp;
pub(crate) mod qp_state;
pub(crate) mod table;
pub(crate) mod uar;
pub(crate) mod work;
