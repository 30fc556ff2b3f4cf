//! Models of the project's protocols, every state of which is visited.

pub mod explore;
pub mod moe;
pub mod posting;
