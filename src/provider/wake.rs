//! How threads wake a thread that sleeps. A wake costs one load if that thread is awake.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};

use super::error::ProviderError;

/// A descriptor that a sleeper watches besides its own.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// The descriptor. The sleeper wakes when it is readable.
    pub fd: BorrowedFd<'a>,
    /// The sleeper also wakes when the descriptor is writable.
    pub is_written: bool,
}

impl<'a> Watched<'a> {
    /// Watches until `fd` is readable.
    #[must_use]
    pub const fn read(fd: BorrowedFd<'a>) -> Self {
        Self {
            fd,
            is_written: false,
        }
    }
}

/// What one thread sleeps on, and any other thread wakes it by.
#[derive(Debug)]
pub struct Wake {
    fd: OwnedFd,
    is_asleep: AtomicBool,
    /// The number of sleeps that have ended.
    wakes: AtomicU64,
}

impl Wake {
    /// Returns a new wake, on which no thread sleeps yet.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> Result<Self, ProviderError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags).map_err(|errno| ProviderError::system("eventfd", errno))?;
        Ok(Self {
            fd,
            is_asleep: AtomicBool::new(false),
            wakes: AtomicU64::new(0),
        })
    }

    /// Wakes the sleeper. Before the call, the caller stores what the sleeper is to see, with `SeqCst`.
    pub fn wake(&self) {
        // SeqCst: either this sees the sleeper, or the sleeper, which looks once more, sees what was stored.
        if self.is_asleep.load(Ordering::SeqCst) {
            // A write fails if the count of the eventfd is full, and then the eventfd is readable already.
            let _ = write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Announces a sleep: from now on [`Wake::wake`] writes. The sleeper then looks once more for work, and calls [`Wake::sleep`].
    pub fn begin(&self) {
        self.is_asleep.store(true, Ordering::SeqCst);
        // No load of that look is taken before the store above.
        fence(Ordering::SeqCst);
    }

    /// Notes that the sleeper is awake.
    pub fn end(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
        self.wakes.fetch_add(1, Ordering::Relaxed);
        let mut count = [0; 8];
        let _ = read(&self.fd, &mut count);
    }

    /// Returns how often the sleeper has woken.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }

    /// Returns the descriptor of this wake, which a wake makes readable. A sleeper on another `Wake` can watch it.
    pub(super) fn watched(&self) -> Watched<'_> {
        Watched::read(self.fd.as_fd())
    }

    /// Sleeps until a thread wakes it, `other` is ready, or the time is over.
    ///
    /// # Errors
    /// An error of the system.
    pub fn sleep(
        &self,
        other: Option<Watched<'_>>,
        most: Option<Duration>,
    ) -> Result<(), ProviderError> {
        let own = self.watched();
        self.sleep_beside([other.unwrap_or(own), own], most)
    }

    /// Sleeps until a thread wakes it, one of `others` is ready, or the time is over.
    ///
    /// # Errors
    /// An error of the system.
    pub(super) fn sleep_beside(
        &self,
        others: [Watched<'_>; 2],
        most: Option<Duration>,
    ) -> Result<(), ProviderError> {
        let [first, second] = others;
        let mut polled = [self.watched(), first, second].map(|it| {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, it.is_written);
            PollFd::from_borrowed_fd(it.fd, flags)
        });
        let most = most.map(|most| {
            Timespec::try_from(most).unwrap_or(Timespec {
                tv_sec: i64::from(i32::MAX),
                tv_nsec: 0,
            })
        });
        match poll(&mut polled, most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(ProviderError::system("poll", errno)),
        }
    }
}
