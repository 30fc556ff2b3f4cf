//! What a QP sends: the engine runs what the doorbell allows, in order, for a bounded time.
//!
//! | file | duty |
//! |---|---|
//! | `turn` | the turn of a QP: which WQE goes on, and the way of its operation: by memory or by the wire |
//! | `express` | the fast path: a turn lets it run common WQEs first, and takes the other WQEs one by one |
//! | `begin` | makes a WQE an operation; `umr` carries out WQEs that change keys |
//! | `loopback`, `datagram` | carry an operation to a QP of this process: of a connection, and to any QP |
//! | `pending` | for devices that put off the bytes of writes |
//! | `overlap` | for the checker |
//! | `end` | names a QP of a fabric |

mod begin;
pub(super) mod datagram;
mod end;
mod express;
mod loopback;
pub(crate) mod overlap;
mod pending;
mod turn;
mod umr;

pub(super) use end::End;
pub(super) use turn::{TurnOutcome, turn};
