//! Ranks that die, leave and come back while the others dispatch and combine: real layers on software HCAs and simt.

mod calls;
mod deaths;
#[cfg(feature = "etcd")]
mod etcd;
mod events;
mod fleet;
mod graph;
mod joins;
mod named;
mod nic;
mod records;
#[path = "../common/small.rs"]
mod small;
mod store;
#[expect(dead_code, reason = "no test file uses all of this")]
#[path = "../moe/support.rs"]
mod support;
mod windows;
