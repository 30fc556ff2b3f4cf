//! Models of the project's protocols, and the search that visits every state of a model.
//!
//! `explore` is the search, `posting` a model of the posting protocol, `moe` has four of the MoE protocol, `engine` those of the
//! host engine. What is checked, with how many states, and what mutants must break, is in `tests/`. The rules of membership are
//! modelled where they are, in `src/membership/rules/model` of the runtime, on the same search.

pub mod engine;
pub mod explore;
pub mod moe;
pub mod posting;
