//! Runs the rules of [`membership_rules::anew`] in every order. The store loses everything, or is back as it was at an earlier moment.
//! Ranks die, or are cut off from the store for a while or for long. A newcomer draws its generation at any moment.
//!
//! There are three members, 0 to 2, and place 3, which is free. A rank that reaches the store looks, proposes, promises and commits as the
//! record lets it. It may drop any rank that has ended or does not reach the store, as the rules of evidence might at worst. When every
//! rank that reaches the store has said all that it has to say, a lease without a new word may be over.
//!
//! Checked properties:
//!
//! - V: two living ranks that have applied a view of one number have applied the same view.
//! - N: two living ranks that have had a proposal of one number, in one view, have had the same proposal.
//! - G: no two processes that live and have applied a view have one slot and generation.
//! - R: the record can always be there again, and a proposal in it of ranks that live can become a view. Three cases are excepted: ranks
//!   wait for a rank that is cut off; no living member of the record was in touch; or a process has ended whose name another process has
//!   drawn again.

mod configuration;
mod left_out;
mod state;
mod steps;
mod world;

pub use configuration::Config;
pub use left_out::AnewRule;
pub use state::State;
pub use world::World;
