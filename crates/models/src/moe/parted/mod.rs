//! A model of a parted pair with two living ends: what J2 must do with words, credits and slots where both ranks live on.
//!
//! Two ranks run calls with each other. The QPs between them fail, at each end at another time, with words in flight. A view parts the
//! ranks: each end fences its QP before it promises, and applies the view at its own time. When the calls before that view have ended, an
//! end clears what both have sent each other. It makes its QP anew and connects; tries are repeated. When both say that they are connected,
//! another view unites them. From its first call on they send to each other as if they had never met. `kernels/moe` defines what kernels
//! keep of a peer and what they do with it. Call numbers have 8 bits here instead of 32 (`numbers`), and all limits on them are in
//! proportion.
//!
//! Data goes to the other end when the HCA has carried the last data of its kind and set. To a suspect it goes when the HCA has carried all
//! data (A11).
//!
//! Module `device` has the phases of a call, `host` the change of views and the connection, and `network` the packets. It is taken as
//! proved by `epoch` that ranks agree: a view begins after every call that has started.

mod configuration;
mod device;
mod host;
mod moves;
mod network;
mod numbers;
mod program;
mod state;
mod steps;

pub use configuration::{Mutant, Parted};
