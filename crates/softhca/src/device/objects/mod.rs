//! Objects that software makes by commands, and the state that the device keeps of each. The objects are queue pairs and the WQEs that they
//! have under way, completion queues and the events for their entries, SRQs, XRC domains, and pages of doorbell registers. A
//! [`Table`](super::table::Table) gives them numbers. [`path`] makes the wire's configuration from a QP's address path. [`watch`] says
//! which pages to look at for doorbells.
//!
//! Objects do not refer to each other: commands check them against each other, and the engine runs them.

pub(crate) mod arming;
pub(crate) mod cq;
pub(crate) mod path;
pub(crate) mod qp;
pub(crate) mod qp_state;
pub(crate) mod srq;
pub(crate) mod uar;
pub(crate) mod watch;
pub(crate) mod work;
pub(crate) mod xrcd;
