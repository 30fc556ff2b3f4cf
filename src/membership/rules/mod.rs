//! The rules of membership on evidence: pure functions over what a rank has seen. The driver does what they say, and `model` runs
//! these very functions in every order. Nothing here reads a clock, waits, or touches a store.
//!
//! No conclusion is final by one rank's word. A rank's clocks run only in time that it has observed. A rank that is expelled has
//! ended, or another rank has seconded that. If two ranks do not reach each other, the pair parts and neither is expelled.
//! Newcomers hold no call.
//!
//! One turn of a rank is: look ([`evidence::Look`]), renew the lease, [`observe`](named::Rules::observe), connect with
//! [`to_connect`](named::Rules::to_connect), write [`row`](named::Rules::row) if it has changed, do
//! [`next`](named::Rules::next).
//!
//! | module | rules |
//! |---|---|
//! | `slots` | sets of ranks and of pairs |
//! | `members` | ranks and their generations |
//! | `record` | the record, proposals and what of them is refused; P5 |
//! | `clocks` | bounds, gaps, pace, turns (P9), waits after failures (P6, P7) |
//! | `evidence` | signs of life, rows, seconded |
//! | `choice` | the ranks that the larger side does not reach |
//! | `newcomers` | which of several generations of one slot comes in; P6 |
//! | `steps` | P1 to P8, P10, leaves |
//! | `anew` | a store that has lost the record |
//! | `named` | each rule by its name |

pub(super) mod anew;
mod choice;
pub(super) mod clocks;
pub(super) mod evidence;
pub(super) mod members;
#[cfg(test)]
mod model;
pub(super) mod named;
pub(super) mod newcomers;
pub(super) mod record;
pub(super) mod slots;
pub(super) mod steps;
