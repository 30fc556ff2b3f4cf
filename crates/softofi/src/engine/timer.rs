//! A descriptor that becomes readable at a time.

// UNSAFETY: two system calls that rustix has behind a feature which the workspace does not build.
#![expect(unsafe_code, reason = "timerfd")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Timer {
    descriptor: OwnedFd,
    set: Option<Instant>,
}

impl Timer {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: it takes two numbers.
        let descriptor = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor of ours.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self {
            descriptor,
            set: None,
        })
    }

    /// Readable from `at` on, or not at all. What was set before no longer holds.
    pub(crate) fn set(&mut self, at: Option<Instant>, now: Instant) {
        // One that comes before is left: a turn too many costs less than the call. One that has run out is readable until it is set.
        let is_early = |set: Instant| set > now && at.is_none_or(|at| set <= at);
        if self.set.map_or(at.is_none(), is_early) {
            return;
        }
        self.set = at;
        // Zero would mean never.
        let left = at.map(|at| at.saturating_duration_since(now).as_nanos().max(1));
        let left = left.unwrap_or(0);
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(left / 1_000_000_000).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::try_from(left % 1_000_000_000).unwrap_or(0),
        };
        let value = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: time,
        };
        // SAFETY: a descriptor of a timer, and a structure that lives here.
        unsafe {
            libc::timerfd_settime(
                self.descriptor.as_raw_fd(),
                0,
                &raw const value,
                std::ptr::null_mut(),
            )
        };
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
