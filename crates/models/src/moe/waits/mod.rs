//! A model of the waits of a phase at one rank: what the waiting thread looks at, when it looks at the clock, and when and to whom it
//! beats.
//!
//! All waits of a phase have one deadline, and come one after another. Each waits for one thing: a word in memory, or a completion that
//! others precede. That thing comes at any moment or never. Time passes at any moment, also while a thread stands still. So a wait may
//! begin after its deadline, because an earlier wait has waited for a late rank.
//!
//! A newcomer comes in at any moment. It is a member of the newest view, but not of the view of the call. A call that the host holds back
//! waits for the host's word before its phase begins.

mod configuration;
mod state;
mod steps;

pub use configuration::{Kind, Mutant, Waits};
