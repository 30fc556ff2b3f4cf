//! The rules of membership on evidence: pure functions over what a rank has seen. A group does what they say, and a model runs these
//! very functions in every order. Nothing here reads a clock, starts a thread, waits, or touches a store.
//!
//! No conclusion is final by one rank's word. A rank's clocks run only in time that it has observed. A rank that is expelled has ended, or
//! another rank has seconded the finding. If two ranks do not reach each other, the pair parts and neither is expelled. Newcomers hold no
//! call.
//!
//! One turn of a rank is: look ([`look::Look`]), renew the lease, [`observe`](evidence::Rules::observe), connect with
//! [`to_connect`](evidence::Rules::to_connect), write [`row`](evidence::Rules::row) if it has changed, do
//! [`next`](evidence::Rules::next).
//!
//! | module | rules |
//! |---|---|
//! | `steps` | P1 to P8, P10, leaves |
//! | `choice` | the ranks that the larger side does not reach |
//! | `evidence` | signs of life, rows, seconded |
//! | `anew` | a store that has lost the record |
//! | `rulebook` | each rule that a model may leave out |
//! | `newcomers` | which of several generations of one slot comes in; P6 |
//! | `look` | what a rank knows, tells, and sees |
//! | `clocks` | bounds, gaps, pace, turns (P9), waits after failures (P6, P7) |
//! | `record` | the record, proposals and what of them is refused; P5 |
//! | `members` | ranks and their generations |
//! | `slots` | sets of ranks and of pairs |

#![forbid(unsafe_code)]

pub mod anew;
pub mod choice;
pub mod clocks;
pub mod evidence;
pub mod look;
pub mod members;
pub mod newcomers;
pub mod record;
pub mod rulebook;
pub mod slots;
pub mod steps;
