//! The rules of membership on evidence: pure functions over what a rank has seen, which the driver takes next.
//!
//! Today `rules`, `suspicion`, `presence` and `choose` decide; they draw each conclusion alone and for good. Here nothing is
//! final: a rank's clocks run only in time that it has observed, whoever goes is seconded or has ended, pairs that do not reach
//! each other part without anybody going, and newcomers hold nobody. These modules are compiled for tests only until the
//! driver's steps are theirs: `model` runs these very functions in every order. Nothing here reads a clock, waits, or touches a
//! store.
//!
//! One turn of a rank is: renew the lease, look ([`evidence::Look`]), [`observe`](rules::Rules::observe), connect with
//! [`to_connect`](rules::Rules::to_connect), write [`row`](rules::Rules::row) if it has changed, do
//! [`next`](rules::Rules::next).
//!
//! | module | rules |
//! |---|---|
//! | `slots` | sets of ranks and of pairs |
//! | `record` | the record, proposals and what of them is refused; P5 |
//! | `clocks` | bounds, gaps, pace, turns (P9), waits after failures (P6, P7) |
//! | `evidence` | signs of life, rows, seconded |
//! | `choice` | whom the larger side does not reach |
//! | `steps` | P1 to P8, P10, leaves |
//! | `rules` | each rule by its name |

mod choice;
mod clocks;
mod evidence;
mod model;
mod record;
mod rules;
mod slots;
mod steps;
