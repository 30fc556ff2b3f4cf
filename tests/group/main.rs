//! Ranks that die, leave and come back while the others dispatch and combine: real layers on software HCAs and simt.

mod deaths;
mod fleet;
mod joins;
mod store;
#[expect(dead_code, reason = "no test file uses all of this")]
#[path = "../moe/support.rs"]
mod support;
