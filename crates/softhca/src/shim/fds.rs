//! Which file descriptors are ours.
//!
//! A descriptor is recognised by the (device, inode) of its file. So it stays ours through `dup`, `fcntl` and whatever else the
//! kernel does with it. In front of that lies a table of marks, one byte per descriptor. Calls on the others, which are nearly
//! all, cost one load. A mark only says "look closely": that look finds a mark that is left over because the descriptor was
//! closed past this library.

// UNSAFETY: fstat on descriptors.
#![expect(unsafe_code, reason = "fstat")]

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use libc::c_int;

use super::raw;
use crate::errno::Errno;

/// Descriptors below this have a mark of their own; the others share one.
const MARKS: usize = 1 << 16;

static MARKED: [AtomicU8; MARKS] = [const { AtomicU8::new(0) }; MARKS];
/// How many descriptors at or above `MARKS` are ours.
static MARKED_ABOVE: AtomicUsize = AtomicUsize::new(0);
/// The process that the table belongs to; 0 before anything is in it.
static OWNER: AtomicI32 = AtomicI32::new(0);
static FILES: LazyLock<Mutex<Files>> = LazyLock::new(Mutex::default);

/// The object behind a descriptor of ours. Dropping the last one closes it.
pub(crate) trait File: Send + Sync {
    /// `ioctl` on the descriptor; the default is what the kernel says to files without ioctls.
    ///
    /// # Errors
    ///
    /// The `errno` of the call.
    fn ioctl(&self, _request: u64, _argument: u64) -> Result<c_int, Errno> {
        Err(Errno::ENOTTY)
    }

    /// Returns the character device that `fstat` shows, as `st_rdev`; `None` shows what the descriptor really is.
    fn character_device(&self) -> Option<u64> {
        None
    }

    /// The last descriptor was closed. Called once, without locks held.
    fn closed(&self);
}

/// (`st_dev`, `st_ino`).
type Identity = (u64, u64);

#[derive(Default)]
struct Files {
    by_identity: HashMap<Identity, Entry>,
}

struct Entry {
    file: Arc<dyn File>,
    fds: Vec<c_int>,
}

/// Returns whether a call on `fd` needs a closer look. The fast path: one load.
pub(super) fn marked(fd: c_int) -> bool {
    match usize::try_from(fd).map(|fd| MARKED.get(fd)) {
        // Relaxed: a thread that uses a descriptor got its number from the thread that made it.
        Ok(Some(mark)) => mark.load(Ordering::Relaxed) != 0,
        Ok(None) => MARKED_ABOVE.load(Ordering::Relaxed) != 0,
        Err(_) => false,
    }
}

/// Makes `fd` one of ours, with `file` behind it.
///
/// # Errors
///
/// `EBADF` if `fd` is not open.
pub(crate) fn insert(fd: c_int, file: Arc<dyn File>) -> Result<(), Errno> {
    let identity = identity(fd).ok_or(Errno::EBADF)?;
    OWNER.store(raw::process_id(), Ordering::Relaxed);
    let replaced = {
        let mut files = lock();
        let left = files.forget(fd);
        files.by_identity.insert(
            identity,
            Entry {
                file,
                fds: vec![fd],
            },
        );
        mark(fd, true);
        left
    };
    closed(replaced);
    Ok(())
}

/// Returns the file behind `fd`, if it is ours. For the slow path: one `fstat` and a lock.
pub(super) fn find(fd: c_int) -> Option<Arc<dyn File>> {
    if !mine() {
        return None;
    }
    let identity = identity(fd)?;
    let (found, left) = {
        let mut files = lock();
        match files.by_identity.get_mut(&identity) {
            Some(entry) => {
                // A duplicate that was made past this library.
                if !entry.fds.contains(&fd) {
                    entry.fds.push(fd);
                    mark(fd, true);
                }
                (Some(Arc::clone(&entry.file)), None)
            }
            None => (None, files.forget(fd)),
        }
    };
    closed(left);
    found
}

/// `copy` was made from `original`: the same file is behind it.
pub(super) fn duplicated(original: c_int, copy: c_int) {
    if copy != original && mine() && (marked(original) || marked(copy)) {
        // The old file of `copy` (dup2) is closed; its new one is found by its identity.
        let left = lock().forget(copy);
        let _ = find(copy);
        closed(left);
    }
}

/// `fd` is about to be closed by its owner.
pub(super) fn closing(fd: c_int) {
    if mine() {
        let left = lock().forget(fd);
        closed(left);
    }
}

impl Files {
    /// Drops `fd`; the file comes back if that was its last descriptor.
    fn forget(&mut self, fd: c_int) -> Option<Arc<dyn File>> {
        if !marked(fd) {
            return None;
        }
        let identity = self
            .by_identity
            .iter()
            .find_map(|(identity, entry)| entry.fds.contains(&fd).then_some(*identity))?;
        mark(fd, false);
        let entry = self.by_identity.get_mut(&identity)?;
        entry.fds.retain(|&other| other != fd);
        if entry.fds.is_empty() {
            return self.by_identity.remove(&identity).map(|entry| entry.file);
        }
        None
    }
}

fn closed(file: Option<Arc<dyn File>>) {
    if let Some(file) = file {
        file.closed();
    }
}

/// Returns whether this process owns the table. The child of a fork (or of a vfork, which shares our memory) has the parent's
/// descriptors. It must not close the parent's objects, nor wait for the parent's locks.
fn mine() -> bool {
    OWNER.load(Ordering::Relaxed) == raw::process_id()
}

fn lock() -> MutexGuard<'static, Files> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn mark(fd: c_int, on: bool) {
    match usize::try_from(fd).map(|fd| MARKED.get(fd)) {
        Ok(Some(mark)) => mark.store(u8::from(on), Ordering::Relaxed),
        Ok(None) if on => {
            MARKED_ABOVE.fetch_add(1, Ordering::Relaxed);
        }
        Ok(None) => {
            MARKED_ABOVE.fetch_sub(1, Ordering::Relaxed);
        }
        Err(_) => {}
    }
}

fn identity(fd: c_int) -> Option<Identity> {
    let mut out = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `out` is writable for one `struct stat`.
    if unsafe { raw::stat_fd(fd, out.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so the kernel filled it.
    let out = unsafe { out.assume_init() };
    Some((out.st_dev, out.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File as DiskFile;
    use std::os::fd::{AsRawFd, OwnedFd};

    #[derive(Default)]
    struct Probe {
        closed: AtomicUsize,
    }

    impl File for Probe {
        fn closed(&self) {
            self.closed.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn pipe() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = std::io::pipe().unwrap();
        (reader.into(), writer.into())
    }

    #[test]
    fn a_file_closes_with_its_last_duplicate() {
        let (reader, _writer) = pipe();
        let probe = Arc::new(Probe::default());
        insert(reader.as_raw_fd(), probe.clone()).unwrap();
        let copy = reader.try_clone().unwrap(); // through our own fcntl
        assert!(marked(copy.as_raw_fd()));
        drop(reader);
        assert_eq!(probe.closed.load(Ordering::SeqCst), 0);
        assert!(find(copy.as_raw_fd()).is_some());
        drop(copy);
        assert_eq!(probe.closed.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_descriptor_that_was_closed_past_us_is_not_taken_for_ours() {
        let (reader, _writer) = pipe();
        let probe = Arc::new(Probe::default());
        let fd = reader.as_raw_fd();
        insert(fd, probe.clone()).unwrap();
        let null = DiskFile::open("/dev/null").unwrap();
        assert_eq!(raw::dup3(null.as_raw_fd(), fd, libc::O_CLOEXEC), fd);
        assert!(marked(fd));
        assert!(find(fd).is_none(), "fd now refers to /dev/null");
        assert_eq!(probe.closed.load(Ordering::SeqCst), 1);
        assert!(!marked(fd));
    }

    #[test]
    fn a_duplicate_that_was_made_past_us_is_recognised() {
        let (reader, _writer) = pipe();
        let probe = Arc::new(Probe::default());
        insert(reader.as_raw_fd(), probe.clone()).unwrap();
        let copy = raw::dup(reader.as_raw_fd());
        assert!(copy >= 0);
        assert!(!marked(copy));
        assert!(find(copy).is_some());
        drop(reader);
        assert_eq!(probe.closed.load(Ordering::SeqCst), 0);
        closing(copy);
        assert_eq!(probe.closed.load(Ordering::SeqCst), 1);
        raw::close(copy);
    }

    #[test]
    fn descriptors_out_of_range_are_not_ours() {
        assert!(!marked(-1));
        assert!(!marked(c_int::MIN));
        assert!(find(c_int::MAX).is_none());
    }
}
