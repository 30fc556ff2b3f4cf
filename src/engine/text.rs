//! Text of a peer on its way to terminals and logs.

use rendezvous::Foreign;

pub(super) use rendezvous::is_plain;
pub use rendezvous::printable;

/// Returns why the other end has ended a connection, in its words.
pub(super) fn refusal(reason: &Foreign) -> String {
    format!("it refuses: {reason}")
}
