//! Six models of the host engine: a striped transfer, the ids of its slots, notices in two ways, keys of peers, and counters.
//!
//! `transfer` has workers that pull slices from one account word, post chains, reap, retry and fail, while a user cancels and polls.
//! `slots` has a slot that is used again while an old id is polled. `notices` has a ring of records over a connection that breaks and is
//! made again. `stream` has notices on control streams, as the engine sends them. `keys` has a key of a peer's own, which ends while the
//! peer still reads, and keys of other peers that get its number. `counting` has WRITEs that count at the receiver. `account` is the word
//! of a transfer. The model of a transfer runs with any type that has the transitions of that word.

pub mod account;
pub mod counting;
pub mod keys;
mod limits;
pub mod notices;
pub mod slots;
pub mod stream;
pub mod transfer;
