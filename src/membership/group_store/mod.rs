//! The keys that a group keeps in the store, and a look that reads all keys that have changed.
//!
//! ```text
//! group/config            bounds that all ranks have alike
//! group/record            the group, changed by compare-and-set only
//! group/member/S.G        lease of slot S, generation G: its process, and whether it asks to be taken in
//! group/row/S.G           what it says of the others
//! group/promise/P/S.G     its promise for proposal P
//! group/leaves/S.G        it wants to leave: its view, and the last call that it starts in it
//! group/over/S.G          it has ended, by its own word
//! group/taken/S.G         it has, or had, its group
//! group/had/S.G           the newest record that it has had, while the store has lost it
//! generation/S/G          generation G of slot S was drawn
//! ```
//!
//! A key of another form, or with a value that cannot be read, counts as missing and is reported once, by name. This module repeats
//! no call: the thread that follows the rules looks again, and knows how long each call took.

mod calls;
mod enter;
mod kept;
mod look;
mod store;
#[cfg(test)]
mod tests;

pub use enter::newest_view;
pub(super) use look::LookAt;
pub(super) use store::{GroupStore, Replaced};
