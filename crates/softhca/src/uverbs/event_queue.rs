//! A descriptor that events are read from.
//!
//! It is the reading end of a pipe; [`EventQueue`] holds the other end. A pipe keeps records whole, since they are shorter than
//! `PIPE_BUF`. When it is full, events are dropped, as the kernel does beyond its limit.
//!
//! When an object is destroyed, its caller is told how many of its events have been read, and libibverbs waits until the
//! program has acknowledged just as many. So the events that were not read yet are taken out of the pipe again.

// UNSAFETY: splice and FIONREAD on descriptors of ours.
#![expect(unsafe_code, reason = "splice and ioctl on a pipe")]

use std::fs::File as Pipe;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Context;
use crate::device::Context as DeviceContext;
use crate::errno::Errno;
use crate::shim::{self, File};

/// What is read from a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Asynchronous events of verbs: 16 bytes, number and type.
    Asynchronous,
    /// Completion channel: 8 bytes, the completion queue's user handle.
    Completions,
    /// DevX events: a cookie, and behind it the entry of the event queue unless it is left out.
    Devx { omit_data: bool },
    /// Answers to DevX queries: a number of the caller's, and the command's output behind it.
    DevxCommands,
}

impl Purpose {
    /// Records have no fixed length: one read gives one record, however long a buffer it has.
    fn has_packets(self) -> bool {
        matches!(self, Self::Devx { .. } | Self::DevxCommands)
    }
}

/// The writing end, and a private copy of the reading one.
pub(super) struct EventQueue {
    device: DeviceContext,
    /// The reading end's number in this process, while it is open.
    pub(super) fd: RawFd,
    pub(super) purpose: Purpose,
    /// Gone when reader or context are: the reader then finds the end of the file.
    ends: Mutex<Option<Ends>>,
}

struct Ends {
    reader: OwnedFd,
    writer: Pipe,
}

/// Opens a descriptor for events and has `publish` tell the caller its number.
pub(super) fn open(
    context: &Context,
    purpose: Purpose,
    publish: impl FnOnce(u32) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let device = context.device()?.clone();
    let (reader, writer) = if purpose.has_packets() {
        packet_pipe()?
    } else {
        pipe()?
    };
    // Before the descriptor is known: what is copied later counts as open.
    let copy = reader.try_clone().map_err(|_| Errno::EMFILE)?;
    let queue = Arc::new(EventQueue {
        device: device.clone(),
        fd: reader.as_raw_fd(),
        purpose,
        ends: Mutex::new(Some(Ends {
            reader: copy,
            writer,
        })),
    });
    device.count_event_fd(true);
    // From here on, closing the descriptor ends the queue.
    if let Err(error) = shim::insert(reader.as_raw_fd(), queue.clone()) {
        queue.closed();
        return Err(error);
    }
    let number = u32::try_from(reader.as_raw_fd()).map_err(|_| Errno::EMFILE)?;
    publish(number)?; // on failure `reader` closes here
    context.subscriptions().add(queue);
    let _given_to_the_caller = reader.into_raw_fd();
    Ok(())
}

/// A pipe whose writing end does not block.
fn pipe() -> Result<(OwnedFd, Pipe), Errno> {
    let (reader, writer) = std::io::pipe().map_err(|_| Errno::EMFILE)?;
    let writer: OwnedFd = writer.into();
    shim::set_nonblocking(&writer)?;
    Ok((reader.into(), writer.into()))
}

/// The same, and one read gives what one write gave. Each write takes a page.
fn packet_pipe() -> Result<(OwnedFd, Pipe), Errno> {
    /// What a pipe of any user may be enlarged to.
    const BYTES: libc::c_int = 1 << 20;
    let mut fds = [-1; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_DIRECT) } != 0 {
        return Err(Errno::last());
    }
    // SAFETY: just opened, and nobody else's.
    let [reader, writer] = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    // O_DIRECT stays: it is the same word of flags.
    // SAFETY: flags of a descriptor of ours; where a larger pipe is refused, it holds fewer records.
    unsafe {
        libc::fcntl(
            writer.as_raw_fd(),
            libc::F_SETFL,
            libc::O_NONBLOCK | libc::O_DIRECT,
        );
        libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, BYTES);
    }
    Ok((reader, writer.into()))
}

/// A copy of the caller's eventfd.
pub(super) fn copy_eventfd(fd: u32) -> Result<Pipe, Errno> {
    let known = std::fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::EBADF)?;
    if known.as_os_str() != "anon_inode:[eventfd]" {
        return Err(Errno::EINVAL);
    }
    let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: copies a descriptor that the caller named; the copy is ours.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 {
        return Err(Errno::last());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) }.into())
}

impl File for EventQueue {
    fn closed(&self) {
        self.end();
        self.device.count_event_fd(false);
    }
}

impl EventQueue {
    fn ends(&self) -> MutexGuard<'_, Option<Ends>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reader finds the end of the file.
    pub(super) fn end(&self) {
        self.ends().take();
    }

    pub(super) fn is_open(&self) -> bool {
        self.ends().is_some()
    }

    /// Adds a record; whether there was room for it, and a reader.
    pub(super) fn push(&self, record: &[u8]) -> bool {
        match &*self.ends() {
            Some(Ends { writer, .. }) => (&mut &*writer)
                .write(record)
                .is_ok_and(|written| written == record.len()),
            None => false,
        }
    }

    /// Takes out the records of `bytes` bytes that begin with `start`; how many there were.
    pub(super) fn withdraw(&self, bytes: usize, start: &[u8]) -> usize {
        let ends = self.ends();
        let Some(ends) = &*ends else {
            return 0;
        };
        let unread = ends.drain();
        let (gone, kept): (Vec<_>, Vec<_>) = unread
            .chunks(bytes)
            .partition(|record| record.starts_with(start));
        if !kept.is_empty() {
            // There is room: it was there before.
            let _ = (&mut &ends.writer).write_all(&kept.concat());
        }
        gone.len()
    }
}

impl Ends {
    /// Everything that has not been read, taken out. It does not wait: the bytes go through a pipe of our own, since a
    /// reader may be at the same time.
    fn drain(&self) -> Vec<u8> {
        let mut unread = Vec::new();
        while let Some(bytes) = waiting_bytes(&self.reader) {
            let Ok((between, entry)) = pipe() else {
                break; // no descriptor left: what is unread stays and is delivered
            };
            // SAFETY: two open pipes; null stands for "no offset".
            let moved = unsafe {
                libc::splice(
                    self.reader.as_raw_fd(),
                    ptr::null_mut(),
                    entry.as_raw_fd(),
                    ptr::null_mut(),
                    bytes,
                    libc::SPLICE_F_NONBLOCK,
                )
            };
            if moved <= 0 {
                break; // a reader was faster
            }
            drop(entry);
            if Pipe::from(between).read_to_end(&mut unread).is_err() {
                break;
            }
        }
        unread
    }
}

/// Bytes that wait to be read; `None` if there are none.
fn waiting_bytes(reader: &OwnedFd) -> Option<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request stores one int.
    let result = unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| result == 0 && *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> Ends {
        let (reader, writer) = pipe().unwrap();
        Ends { reader, writer }
    }

    #[test]
    fn an_empty_pipe_is_drained_at_once() {
        assert_eq!(ends().drain(), []);
    }

    #[test]
    fn one_read_gives_one_packet() {
        let (reader, writer) = packet_pipe().unwrap();
        for record in [&b"first"[..], b"second, longer", b"third"] {
            (&mut &writer).write_all(record).unwrap();
        }
        let mut reader = Pipe::from(reader);
        let mut buffer = [0; 64];
        for expected in [&b"first"[..], b"second, longer", b"third"] {
            let bytes = reader.read(&mut buffer).unwrap();
            assert_eq!(&buffer[..bytes], expected);
        }
    }

    #[test]
    fn only_an_eventfd_is_copied_as_one() {
        assert_eq!(copy_eventfd(0x7fff_ffff).unwrap_err(), Errno::EBADF);
        let (reader, _writer) = pipe().unwrap();
        let fd = u32::try_from(reader.as_raw_fd()).unwrap();
        assert_eq!(copy_eventfd(fd).unwrap_err(), Errno::EINVAL);
    }

    #[test]
    fn everything_unread_is_drained() {
        let ends = ends();
        for number in 0..5000u64 {
            (&mut &ends.writer)
                .write_all(&number.to_ne_bytes())
                .unwrap();
        }
        let mut first = [0; 8];
        Pipe::from(ends.reader.try_clone().unwrap())
            .read_exact(&mut first)
            .unwrap();
        let drained = ends.drain();
        let expected: Vec<u8> = (1..5000u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!(drained, expected);
        assert_eq!(waiting_bytes(&ends.reader), None);
    }
}
