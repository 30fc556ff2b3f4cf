//! Devices, queues and regions by libibverbs alone, for any NIC with QPs of type RC: no DevX, no libmlx5.
//!
//! The NIC's provider in libibverbs builds the WQEs and rings the doorbells. Objects of this folder are used from any thread: providers
//! lock what they share.
//!
//! # Rooms
//!
//! ```text
//! qp.rs         a QP: states, posts
//! cq.rs         CQs, which many QPs share
//! region.rs path.rs requests.rs channel.rs  registered memory; the way to a peer's port; lists of requests; events of CQs
//! domain.rs     protection domains
//! context.rs    an open device and its limits
//! ```

pub(in crate::verbs) mod channel;
pub(in crate::verbs) mod context;
pub(in crate::verbs) mod cq;
pub(in crate::verbs) mod domain;
mod path;
pub(in crate::verbs) mod qp;
pub(in crate::verbs) mod region;
pub(in crate::verbs) mod requests;
