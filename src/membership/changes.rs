//! The number of changes of a group that a program acts on, and an eventfd that wakes the program's event loop.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

/// The number of changes, and an eventfd that is readable from a change until it is cleared. The caller holds the lock of
/// [`Shared`](super::shared::Shared).
#[derive(Debug, Default)]
pub(super) struct Changes {
    number: u64,
    eventfd: Option<OwnedFd>,
}

impl Changes {
    /// Returns the number of changes so far.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Counts one change, and makes the eventfd readable.
    pub(super) fn add(&mut self) {
        self.number += 1;
        let Some(eventfd) = &self.eventfd else {
            return;
        };
        match write(eventfd, &1u64.to_ne_bytes()) {
            // The eventfd's counter is at its maximum, so the eventfd is readable already.
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => tracing::error!("a change is not signalled by its descriptor: {error}"),
        }
    }

    /// Returns the eventfd. It is readable when it is first asked for, because the program has not read the state yet.
    pub(super) fn eventfd(&mut self) -> io::Result<OwnedFd> {
        if let Some(made) = &self.eventfd {
            return made.try_clone();
        }
        let made = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let own = made.try_clone()?;
        self.eventfd = Some(own);
        Ok(made)
    }

    /// Makes the eventfd unreadable, and returns the number of changes so far.
    pub(super) fn clear(&self) -> u64 {
        if let Some(eventfd) = &self.eventfd {
            let mut count = [0; size_of::<u64>()];
            match read(eventfd, &mut count) {
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(error) => tracing::error!("a descriptor of changes is not cleared: {error}"),
            }
        }
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn readable(eventfd: &OwnedFd) -> bool {
        let mut polled = [PollFd::new(eventfd, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec::default())).unwrap() == 1
    }

    #[test]
    fn a_descriptor_is_readable_from_a_change_until_it_is_cleared() {
        let mut changes = Changes::default();
        assert_eq!((changes.number(), changes.clear()), (0, 0));
        changes.add();
        let one = changes.eventfd().unwrap();
        assert!(readable(&one), "nobody has looked yet");
        assert_eq!(changes.clear(), 1);
        assert!(!readable(&one));
        let same = changes.eventfd().unwrap();
        assert!(!readable(&same), "the second is not told again");
        for _ in 0..3 {
            changes.add();
        }
        assert!(readable(&one) && readable(&same));
        assert_eq!(changes.clear(), 4);
        assert!(!readable(&one) && !readable(&same));
        assert_eq!(changes.clear(), 4, "it does not wait");
        // The other descriptors stay valid when the owner of one closes it.
        drop(one);
        changes.add();
        assert!(readable(&same));
    }

    #[test]
    fn a_descriptor_that_is_not_cleared_stays_readable() {
        let mut changes = Changes::default();
        let eventfd = changes.eventfd().unwrap();
        // Sets the eventfd's counter almost to its maximum.
        write(&eventfd, &(u64::MAX - 2).to_ne_bytes()).unwrap();
        changes.add();
        assert!(readable(&eventfd));
        assert_eq!(changes.clear(), 1);
        assert!(!readable(&eventfd));
    }
}
