//! What `wv` does: `src/bin/wv.rs` parses, [`cmd`] runs, [`mod@bench`] measures.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

pub mod bench;
pub mod cmd;
