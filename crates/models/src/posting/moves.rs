//! Who takes a step of the model.

use std::fmt;

use super::state::At;

/// The mover of a step. Threads have the numbers that they had before the step, because states keep threads sorted.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// The NIC takes this step.
    Nic(&'static str),
    /// The host takes this step.
    Host(&'static str),
    /// A thread goes on from here.
    Thread(usize, At),
    /// A store of a thread to this word becomes visible.
    Store(usize, u8),
    /// A lane of a thread's warp writes its WQE.
    Lane(usize, i32),
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nic(does) => write!(f, "the NIC {does}"),
            Self::Host(does) => write!(f, "the host {does}"),
            Self::Thread(number, at) => write!(f, "thread {number} at {at:?}"),
            Self::Store(number, word) => {
                write!(f, "a store of thread {number} to word {word} is visible")
            }
            Self::Lane(number, lane) => write!(f, "lane {lane} of thread {number} writes"),
        }
    }
}
