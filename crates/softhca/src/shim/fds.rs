//! The table of the file descriptors that belong to this library.
//!
//! This library recognises its descriptors by the (device, inode) of their files. So it still recognises a descriptor after `dup`, `fcntl`
//! and whatever else the kernel does with it. A table of marks, one byte per descriptor, is looked at first. Nearly all descriptors have no
//! mark, and a call on such a descriptor costs one load. A mark only says "look closely". That closer look also finds a mark that was left
//! over because the descriptor was closed without this library.

// UNSAFETY: fstat on descriptors.
#![expect(unsafe_code, reason = "fstat")]

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use libc::c_int;

use super::raw;
use crate::errno::Errno;

/// The number of marks. Each descriptor below this number has a mark of its own; all higher descriptors share a counter.
const MARKS: usize = 1 << 16;

static MARKED: [AtomicU8; MARKS] = [const { AtomicU8::new(0) }; MARKS];
/// The number of descriptors at or above `MARKS` that belong to this library.
static MARKED_ABOVE: AtomicUsize = AtomicUsize::new(0);
/// The process that the table belongs to; 0 while nothing was ever put into the table.
static OWNER: AtomicI32 = AtomicI32::new(0);
static FILES: LazyLock<Mutex<Files>> = LazyLock::new(Mutex::default);

/// The object behind a descriptor of this library. Closing the last descriptor of an object closes the object.
pub(crate) trait File: Send + Sync {
    /// Runs an `ioctl` on the descriptor. The default is what the kernel says of files without ioctls.
    ///
    /// # Errors
    ///
    /// The `errno` of the call.
    fn ioctl(&self, _request: u64, _argument: u64) -> Result<c_int, Errno> {
        Err(Errno::ENOTTY)
    }

    /// Returns the number of the character device that `fstat` shows, as `st_rdev`. With `None`, `fstat` shows what the descriptor really
    /// is.
    fn character_device(&self) -> Option<u64> {
        None
    }

    /// Tells the object that its last descriptor was closed. Called once, without locks held.
    fn closed(&self);
}

/// The identity of a file: (`st_dev`, `st_ino`).
type Identity = (u64, u64);

#[derive(Default)]
struct Files {
    by_identity: HashMap<Identity, Entry>,
}

struct Entry {
    file: Arc<dyn File>,
    fds: Vec<c_int>,
}

/// Returns whether a call on `fd` needs a closer look. This is the fast path: one load.
pub(super) fn marked(fd: c_int) -> bool {
    match usize::try_from(fd).map(|fd| MARKED.get(fd)) {
        // Relaxed: a thread that uses a descriptor got the number of that descriptor from the thread that made it.
        Ok(Some(mark)) => mark.load(Ordering::Relaxed) != 0,
        Ok(None) => MARKED_ABOVE.load(Ordering::Relaxed) != 0,
        Err(_) => false,
    }
}

/// Puts `fd` into the table, with `file` behind it.
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

/// Returns the file behind `fd`, if `fd` belongs to this library. This is the slow path: one `fstat` and a lock.
pub(super) fn find(fd: c_int) -> Option<Arc<dyn File>> {
    if !mine() {
        return None;
    }
    let identity = identity(fd)?;
    let (found, left) = {
        let mut files = lock();
        match files.by_identity.get_mut(&identity) {
            Some(entry) => {
                // A descriptor that the table lacks is a duplicate that was made without this library.
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

/// Notes that `copy` was made from `original`: both have the same file behind them.
pub(super) fn duplicated(original: c_int, copy: c_int) {
    if copy != original && mine() && (marked(original) || marked(copy)) {
        // `dup2` has closed the old file of `copy`. The new file of `copy` is found by its identity.
        let left = lock().forget(copy);
        let _ = find(copy);
        closed(left);
    }
}

/// Notes that the caller is about to close `fd`.
pub(super) fn closing(fd: c_int) {
    if mine() {
        let left = lock().forget(fd);
        closed(left);
    }
}

impl Files {
    /// Removes `fd` from the table. Returns the file behind `fd` if `fd` was the last descriptor of that file.
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

/// Returns whether this process owns the table. The child of a fork (or of a vfork, which shares memory with its parent) has the parent's
/// descriptors. The child must not close the parent's objects, nor wait for the parent's locks.
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
    // SAFETY: the call succeeded, so the kernel has filled `out`.
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
        let copy = reader.try_clone().unwrap(); // through the fcntl of this library
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
