//! Barriers and fences that a kernel has, and that the checker treats as missing.
//!
//! By this a test asks whether the checker would notice the absence of each of them, without a broken copy of the kernel. The kernel runs
//! as it is, so its bytes are right, and only the order is judged.

use super::entries::with_state;
use super::omission::Omission;

/// An omission. Until it is dropped, launches of a kernel are checked as if they lacked an operation.
#[derive(Debug)]
#[must_use = "what is omitted comes back when this is dropped"]
pub struct Omitted {
    number: u64,
}

/// Treats `what` of `kernel` as missing, in all launches of this process. The name is that of [`LaunchConfig`](crate::LaunchConfig).
pub fn omit(kernel: &str, what: Omission) -> Omitted {
    let number = with_state(|state| state.omissions().add(kernel, what));
    Omitted { number }
}

impl Omitted {
    /// Returns whether a launch had the operation, so that it was treated as missing.
    #[must_use]
    pub fn applied(&self) -> bool {
        with_state(|state| state.omissions().was_applied(self.number))
    }
}

impl Drop for Omitted {
    fn drop(&mut self) {
        with_state(|state| state.omissions().remove(self.number));
    }
}
