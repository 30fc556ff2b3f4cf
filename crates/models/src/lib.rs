//! Models of the project's protocols, every state of which is visited.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

pub mod explore;
