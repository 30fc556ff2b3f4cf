//! Doorbells that a host thread rings, for GPUs into which the doorbell registers cannot be mapped.
//!
//! Each QP has a mailbox: a line of 64 bytes in host memory that kernels reach. A kernel stores the 64-bit index after the last WQE in it,
//! by an atomic maximum, so that a late store does no harm. A thread of the host looks at all mailboxes in turn. If an index has grown, the
//! thread stores to that QP's register.
//!
//! The thread looks at a mailbox only while its QP is in Rts. [`Qp::ready_to_send`](crate::verbs::Qp::ready_to_send) enters the mailbox.
//! [`Qp::reset`](crate::verbs::Qp::reset) and the QP's drop remove it before they do anything else, and neither returns while the thread is
//! at that QP.

// UNSAFETY: words of host memory that the caller gave.
#![expect(unsafe_code, reason = "words in host memory")]

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::OwnThread;
use crate::sys;
use crate::verbs::error::VerbsError;
use crate::verbs::uar::DoorbellRegister;

/// The number of bytes of a mailbox: a line that no other QP's kernels write.
pub const MAILBOX_BYTES: u64 = 64;
/// The number of rounds without a doorbell in which the thread looks again at once.
const SPINS: u32 = 2_000;
/// The number of further rounds without a doorbell, after each of which the thread yields.
const YIELDS: u32 = 200;
/// The time for which the thread sleeps between all later rounds without a doorbell.
const SLEEP: Duration = Duration::from_micros(50);

/// A thread that rings for QPs with [`Doorbell::Mailbox`](crate::verbs::Doorbell). It ends when the last such QP and the caller have
/// dropped this.
pub struct DoorbellProxy {
    shared: Arc<Shared>,
    thread: Option<OwnThread>,
    /// The owner of the mailboxes, if the caller gave one. It is dropped last, after the thread has ended.
    _owner: Option<Box<dyn Any + Send + Sync>>,
}

/// The state that the thread and its users share.
struct Shared {
    /// The address of the first mailbox in this process.
    host_addr: u64,
    /// The address of the first mailbox for kernels.
    addr: u64,
    table: Mutex<Table>,
    /// The number of callers that wait for `table`. The thread lets them go first.
    waiting: AtomicU32,
    stop: AtomicBool,
    doorbells: AtomicU64,
    /// A function that the thread calls after each doorbell.
    kick: Option<extern "C" fn()>,
    /// True if the thread is to panic.
    #[cfg(test)]
    broken: AtomicBool,
}

#[derive(Default)]
struct Table {
    /// Mailboxes that no QP has.
    free: Vec<u64>,
    /// Mailboxes at which the thread looks.
    active: Vec<Active>,
}

/// The mailbox of a QP in Rts.
struct Active {
    slot: u64,
    qpn: u32,
    register: Arc<DoorbellRegister>,
    rung: Arc<Rung>,
}

/// The last index rung for a QP, and the number of its doorbells.
#[derive(Debug, Default)]
struct Rung {
    index: AtomicU64,
    doorbells: AtomicU64,
}

impl DoorbellProxy {
    /// Starts the thread, with as many mailboxes as fit into `bytes` bytes, which lie at `addr` for kernels and at `host_addr` for this
    /// process. The thread calls `kick` after each doorbell. The default is the function of a preloaded software HCA, or none.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for memory that does not begin at a line or is shorter than one; [`VerbsError::Thread`].
    ///
    /// # Safety
    ///
    /// The memory stays mapped at `host_addr`, writable, until the result is dropped, or until `owner` is dropped if it is given.
    /// All code accesses it by atomics only.
    pub unsafe fn start(
        addr: u64,
        host_addr: u64,
        bytes: usize,
        kick: Option<extern "C" fn()>,
        owner: Option<Box<dyn Any + Send + Sync>>,
    ) -> Result<Arc<Self>, VerbsError> {
        let length = bytes as u64;
        let aligned = addr.is_multiple_of(MAILBOX_BYTES) && host_addr.is_multiple_of(MAILBOX_BYTES);
        if !aligned || length < MAILBOX_BYTES || host_addr.checked_add(length).is_none() {
            return Err(VerbsError::argument(
                "memory for mailboxes",
                format!("{bytes} bytes at {host_addr:#x}, for kernels at {addr:#x}"),
                format!("at least {MAILBOX_BYTES} bytes at a multiple of {MAILBOX_BYTES}"),
            ));
        }
        // Mailboxes are taken from the end of the list, so the first QP gets the first mailbox.
        let free = (0..length / MAILBOX_BYTES).rev().collect();
        let shared = Arc::new(Shared {
            host_addr,
            addr,
            table: Mutex::new(Table {
                free,
                active: Vec::new(),
            }),
            waiting: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            doorbells: AtomicU64::new(0),
            kick: kick.or_else(sys::softhca_kick),
            #[cfg(test)]
            broken: AtomicBool::new(false),
        });
        let seen = Arc::clone(&shared);
        // The end of this thread wakes no other, since none waits for the proxy: kernels have deadlines, and callers check the proxy
        // before they use it.
        let thread = OwnThread::spawn("wv-doorbells", move || seen.run(), |_| {})?;
        Ok(Arc::new(Self {
            shared,
            thread: Some(thread),
            _owner: owner,
        }))
    }

    /// Returns the number of doorbells rung so far.
    #[must_use]
    pub fn doorbells(&self) -> u64 {
        self.shared.doorbells.load(Ordering::Relaxed)
    }

    /// Checks that the thread runs.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Panicked`]: then nothing that is posted with a mailbox runs any more.
    pub fn check(&self) -> Result<(), VerbsError> {
        let checked = self.thread.as_ref().map_or(Ok(()), OwnThread::check);
        Ok(checked?)
    }

    /// Takes a mailbox.
    pub(super) fn mailbox(self: &Arc<Self>) -> Result<Mailbox, VerbsError> {
        self.check()?;
        let slot = self.shared.lock().free.pop();
        let slot = slot.ok_or_else(|| {
            let limit = "a proxy with a free mailbox: 64 bytes of its memory for each QP";
            VerbsError::argument("mailbox", "none left", limit)
        })?;
        let mailbox = Mailbox {
            proxy: Arc::clone(self),
            slot,
            rung: Arc::default(),
        };
        mailbox.set(0);
        Ok(mailbox)
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

impl Drop for DoorbellProxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl fmt::Debug for DoorbellProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.shared.lock();
        f.debug_struct("DoorbellProxy")
            .field("addr", &format_args!("{:#x}", self.shared.addr))
            .field("ringing", &table.active.len())
            .field("free", &table.free.len())
            .field("doorbells", &self.shared.doorbells)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Returns the table to a caller, before the thread takes it again.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let table = self.locked();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        table
    }

    fn locked(&self) -> MutexGuard<'_, Table> {
        // No code panics half-way through a change of the table.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word(&self, slot: u64) -> &AtomicU64 {
        // Truncation is impossible: the end of the memory is an address of this process.
        let addr = usize::try_from(self.host_addr + slot * MAILBOX_BYTES).unwrap_or(usize::MAX);
        // SAFETY: slots are those of the memory that `start` was given, on lines of 64 bytes. It stays mapped while `self` is
        // used, and all code accesses it by atomics only.
        unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(addr)) }
    }

    fn run(&self) {
        let mut idle = 0;
        while !self.stop.load(Ordering::Acquire) {
            // Callers are few and brief. But if the thread took the table again at once, they would wait for long.
            if self.waiting.load(Ordering::Relaxed) != 0 {
                std::thread::yield_now();
                continue;
            }
            if self.sweep() {
                idle = 0;
                continue;
            }
            idle = (idle + 1).min(SPINS + YIELDS);
            match idle {
                ..SPINS => std::hint::spin_loop(),
                _ if idle < SPINS + YIELDS => std::thread::yield_now(),
                _ => std::thread::park_timeout(SLEEP),
            }
        }
    }

    /// Rings for every QP whose index has grown. Returns whether there was one.
    fn sweep(&self) -> bool {
        let mut any = false;
        #[cfg(test)]
        assert!(!self.broken.load(Ordering::Relaxed), "planted");
        for active in &self.locked().active {
            // Acquire: pairs with the kernel's release fence, so that WQEs and record are visible before the doorbell.
            let index = self.word(active.slot).load(Ordering::Acquire);
            if index <= active.rung.index.load(Ordering::Relaxed) {
                continue;
            }
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the HCA counts modulo 2^16"
            )]
            active.register.ring(active.qpn, index as u16);
            active.rung.index.store(index, Ordering::Relaxed);
            active.rung.doorbells.fetch_add(1, Ordering::Relaxed);
            self.doorbells.fetch_add(1, Ordering::Relaxed);
            any = true;
        }
        if let Some(kick) = self.kick
            && any
        {
            kick();
        }
        any
    }
}

/// The mailbox of one QP. Its drop gives the mailbox back.
pub(super) struct Mailbox {
    proxy: Arc<DoorbellProxy>,
    slot: u64,
    rung: Arc<Rung>,
}

impl Mailbox {
    /// Returns the address of the mailbox for kernels.
    pub(super) fn addr(&self) -> u64 {
        self.proxy.shared.addr + self.slot * MAILBOX_BYTES
    }

    /// Returns the number of doorbells rung for this mailbox.
    pub(super) fn doorbells(&self) -> u64 {
        self.rung.doorbells.load(Ordering::Relaxed)
    }

    /// Sets the index from which on the thread rings, for a mailbox at which it does not look yet.
    pub(super) fn set(&self, base: u64) {
        let shared = &self.proxy.shared;
        shared.word(self.slot).store(base, Ordering::Release);
        self.rung.index.store(base, Ordering::Relaxed);
    }

    /// Asks the thread to ring up to `index`, as a kernel asks.
    pub(super) fn ring(&self, index: u64) {
        let word = self.proxy.shared.word(self.slot);
        // Release: pairs with the acquire of the thread, which rings after all that was written before.
        word.fetch_max(index, Ordering::Release);
        self.proxy.wake();
    }

    /// Makes the thread ring for `qpn` from now on, also for an index that is in the mailbox already.
    pub(super) fn open(&self, qpn: u32, register: &Arc<DoorbellRegister>) {
        self.close();
        self.proxy.shared.lock().active.push(Active {
            slot: self.slot,
            qpn,
            register: Arc::clone(register),
            rung: Arc::clone(&self.rung),
        });
        self.proxy.wake();
    }

    /// Makes the thread stop ringing for the mailbox, and returns when it has stopped. Returns whether it rang before.
    pub(super) fn close(&self) -> bool {
        let active = &mut self.proxy.shared.lock().active;
        let before = active.len();
        active.retain(|other| other.slot != self.slot);
        active.len() != before
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.close();
        self.proxy.shared.lock().free.push(self.slot);
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mailbox({} at {:#x})", self.slot, self.addr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_proxy_whose_thread_has_panicked_says_so_and_gives_no_mailbox() {
        #[repr(align(64))]
        struct Line([AtomicU64; 8]);
        let line = Box::leak(Box::new(Line(Default::default())));
        let addr = line.0.as_ptr().expose_provenance() as u64;
        // SAFETY: the line lives for ever, and all code accesses it by atomics only.
        let proxy = unsafe { DoorbellProxy::start(addr, addr, 64, None, None) }.unwrap();
        drop(proxy.mailbox().unwrap());
        proxy.check().unwrap();
        proxy.shared.broken.store(true, Ordering::Relaxed);
        let until = Instant::now() + Duration::from_secs(60);
        while proxy.check().is_ok() && Instant::now() < until {
            std::thread::yield_now();
        }
        for refused in [proxy.check(), proxy.mailbox().map(drop)] {
            let Err(VerbsError::Panicked(panicked)) = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(panicked.thread, "wv-doorbells");
            assert_eq!(panicked.message, "planted");
        }
    }
}
