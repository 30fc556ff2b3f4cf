//! Models of the project's protocols, and the search that visits every state of a model.
//!
//! `explore` is the search. `posting` is a model of the posting protocol, `moe` has models of the MoE protocol, and `engine` has models of
//! the host engine. `membership` runs the rules of crate `membership-rules` themselves, without a second copy of them. What is checked,
//! with how many states, and what mutants must break, is in `tests/`.

pub mod engine;
pub mod explore;
pub mod membership;
pub mod moe;
pub mod posting;
