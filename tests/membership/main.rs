//! Ranks that die, leave and come back while the others dispatch and combine: real layers on software HCAs and simt.

mod availability;
mod caller;
mod calls;
mod deaths;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "etcd")]
mod etcd_ill;
mod events;
mod fleet;
mod graph;
mod joins;
mod links;
mod log;
mod named;
mod nic;
mod places;
mod proof;
mod records;
mod spoiled;
mod store;
mod successors;
mod windows;
