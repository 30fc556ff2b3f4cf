//! Seven models of the MoE protocol: its signals, its membership, the ends of calls, its rejoin, two ranks that part and unite again, send
//! buffers in flight, and waits.
//!
//! `signals` has part A of the protocol: words, slots, credits, skips and deadlines of 2 and 3 ranks in seven orders of phases. `epoch` has
//! part B: the device's call counter against hosts that prepare, promise, commit and apply a change of members. `ends` has what the host
//! waits for before it overwrites a view: calls that are combined, abandoned or left. `rejoin` has part J: what a survivor clears before a
//! slot is used by a new generation. `parted` has the clearing between two ends that both live on. `buffers` has what a sender may do while
//! an HCA still reads what the sender has posted. `waits` has looks, clocks and beats.

pub mod buffers;
pub mod ends;
pub mod epoch;
mod limits;
pub mod parted;
mod property;
pub mod rejoin;
pub mod signals;
pub mod waits;

pub use property::Property;
