//! Runs the rules in every order, with bad evidence. Leases lapse while their holders live. The store is slow without failing. Hosts stand
//! still, alone or all at once. Ports and paths go and come back. Ranks die and leave, a newcomer dies, and no rank can read some keys.
//!
//! A tick is half a lease. A lease lapses 2 ticks after its renewal, and a rank that took no turn for a whole tick has a gap. A
//! healthy rank that reaches the store takes at least one turn in each tick, and any number in any order. A turn renews the lease
//! and follows [`Rules`](membership_rules::evidence::Rules); the model holds no second copy of them. Where the rules do not fix what a
//! rank sees, the world may show it anything.
//!
//! Checked properties:
//!
//! - E2: no rank is dropped or parted that a member of the new view has not fenced.
//! - E3: a call runs in one view.
//! - E6: no fenced rank is kept whole.
//! - VT: a device finds its view.
//! - A1: once nothing is disturbed, all living ranks serve in one view in every state of a cycle, with no pair parted and no QP broken.
//! - A2: only a rank that was disturbed alone is expelled.
//! - A3: no cycle holds a proposal.
//! - A4: no member closes for a newcomer that has not promised.
//! - A5: a rank that is disturbed for good does not stay while others are well.
//! - N: a newcomer comes in whole with members only where both ends have proven their QPs, and with more than half of them.
//! - T: a rank that has left was part of every call that another ran in a view with it, and of no other call.
//!
//! An earlier prototype in Python has the same worlds. If neither leases nor calls differ, the numbers of states are the same: deaths
//! 4,896, of 4 ranks 8,283; the store stands still twice 1,845. Five things differ here. A rank learns only by its own look of a lost
//! lease, of a leaver that has died and of a newer proposal. A dropped newcomer does not come back. A leaver ends when all ranks have made
//! its last call. The record names the ranks that have left. These differences move most numbers by up to a quarter. If leases lapse one by
//! one, each observer has one more state between the taking of a lease and the look that finds it. That makes up to 2.5 times the states.
//!
//! The model leaves out:
//!
//! - words across a pair that is parted and connected anew; `moe::parted` has them;
//! - turns (P9) and waits after failures, which cost time and decide nothing;
//! - how the pace of the store stretches bounds.
//!
//! Module `steps` has the steps of the model of a configuration, `state` what it remembers, and `world` time and disturbances. `turn` has
//! what a rank does, `check` the properties, and `left_out` the rules that may be left out. Configurations are in `tests/`. The numbers
//! of epochs (without calls) and of proposals are kept small, because only their order counts.
//!
//! Two smaller models stand by themselves: [`successors`] has two processes that take one place, and [`anew`] a store that has lost the
//! record.

pub mod anew;
mod check;
mod code;
mod configuration;
mod left_out;
mod model;
mod state;
mod steps;
pub mod successors;
mod turn;
mod world;

pub use configuration::{Budget, Config, ENDLESS, NONE};
pub use left_out::{LeftOut, Rule};
pub use model::{Label, Model};
pub use state::State;
