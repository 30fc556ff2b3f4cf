//! How a thread that sleeps is woken by others, at the cost of one load where it is awake.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, read, write};

use super::error::ProviderError;

/// What a sleeper watches besides.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// It wakes when it is readable.
    pub fd: BorrowedFd<'a>,
    /// It wakes when it is writable, too.
    pub is_written: bool,
}

impl<'a> Watched<'a> {
    /// Until it is readable.
    #[must_use]
    pub const fn read(fd: BorrowedFd<'a>) -> Self {
        Self {
            fd,
            is_written: false,
        }
    }
}

/// One thread sleeps on it, any other wakes it.
#[derive(Debug)]
pub struct Wake {
    fd: OwnedFd,
    is_asleep: AtomicBool,
    /// How often a sleep has ended.
    wakes: AtomicU64,
}

impl Wake {
    /// A new wake, on which no thread sleeps yet.
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

    /// Wakes the sleeper after what the caller has stored for it, by a store of `SeqCst`.
    pub fn wake(&self) {
        // SeqCst: either this sees the sleeper, or the sleeper, which looks once more, sees what was stored.
        if self.is_asleep.load(Ordering::SeqCst) {
            // Full is as good as written.
            let _ = write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// From here on [`Wake::wake`] wakes. The sleeper looks once more for work, then calls [`Wake::sleep`].
    pub fn begin(&self) {
        self.is_asleep.store(true, Ordering::SeqCst);
        // No load of that look is taken before the store.
        fence(Ordering::SeqCst);
    }

    /// The sleeper is awake.
    pub fn end(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
        self.wakes.fetch_add(1, Ordering::Relaxed);
        let mut count = [0; 8];
        let _ = read(&self.fd, &mut count);
    }

    /// Returns how often its sleeper has woken.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }

    /// Readable while it wakes, for a sleeper that has another one to sleep on.
    pub(super) fn watched(&self) -> Watched<'_> {
        Watched::read(self.fd.as_fd())
    }

    /// Sleeps until it is woken, `other` is ready, or the time is over.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn sleep(
        &self,
        other: Option<Watched<'_>>,
        most: Option<Duration>,
    ) -> Result<(), ProviderError> {
        let own = self.watched();
        self.sleep_beside([other.unwrap_or(own), own], most)
    }

    /// Sleeps until it is woken, one of `others` is ready, or the time is over.
    ///
    /// # Errors
    /// What the system refuses.
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
