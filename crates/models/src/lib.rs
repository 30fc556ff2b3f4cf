//! Models of the project's protocols, and the search that visits every state of a model.
//!
//! `explore` is the search, `posting` a model of the posting protocol, `moe` has four of the MoE protocol, `engine` those of the
//! host engine. `membership` runs the rules of crate `membership-rules`, of which it has no second copy. What is checked, with how many
//! states, and what mutants must break, is in `tests/`.

pub mod engine;
pub mod explore;
pub mod membership;
pub mod moe;
pub mod posting;
