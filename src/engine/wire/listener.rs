//! Where engines and their programs let others connect.
//!
//! A Unix socket is a file that only its user may write to. One that a process has left over is replaced, and one at which a process
//! listens is not. Processes of this library look and replace one after the other: each locks the directory meanwhile.

use std::fs::{self, File, Metadata, TryLockError};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;
use std::{io, thread};

use rustix::fs::{Mode, fchmod};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::config::{EngineAddress, SocketPath};
use crate::deadline::Looks;
use crate::engine::error::HostError;
use crate::engine::wire::credentials::Credentials;
use crate::engine::wire::streams::Stream;

/// Most connections that wait to be accepted; the system may have less.
const BACKLOG: i32 = 1024;
/// After so long a listener asks the system again that could take no connection, and after twice as long each time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for another process that looks at the same directory.
const LOCK: Duration = Duration::from_secs(5);
/// Between two looks whether it has ended.
const LOCK_LOOK: Duration = Duration::from_millis(5);

/// Lets others connect, until it is dropped. Then its Unix socket is gone, too.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: EngineAddress,
    /// Of a Unix socket.
    bound: Option<Bound>,
}

/// One that has connected.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub stream: Stream,
    /// What it is called in messages.
    pub from: String,
}

/// Of a listener to whom the system gives no descriptor, thread or memory for a connection. It passes when others end.
#[derive(Debug, Default)]
pub struct Shortage {
    pause: Option<Duration>,
}

/// The file of a Unix socket.
#[derive(Debug)]
struct Bound {
    path: SocketPath,
    file: (u64, u64),
}

impl Listener {
    /// Listens at `address`, where port 0 is any.
    ///
    /// # Errors
    /// [`HostError::Listen`]: a process listens there, a file is there that is no socket, the absolute path is too long, or what the
    /// system refuses.
    pub fn bind(address: &EngineAddress) -> Result<Self, HostError> {
        let failed = |source: io::Error| HostError::Listen {
            address: address.clone(),
            source,
        };
        match address {
            EngineAddress::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted).map_err(failed)?;
                listener.set_nonblocking(true).map_err(failed)?;
                let address = listener.local_addr().map_err(failed)?.into();
                Ok(Self {
                    socket: listener.into(),
                    address,
                    bound: None,
                })
            }
            EngineAddress::Unix(path) => {
                let path = path.absolute().map_err(io::Error::other).map_err(failed)?;
                let (socket, file) = bind_unix(path.as_path()).map_err(failed)?;
                Ok(Self {
                    socket,
                    address: EngineAddress::Unix(path.clone()),
                    bound: Some(Bound { path, file }),
                })
            }
        }
    }

    /// Where it listens: the port is known, and the path begins at the root.
    #[must_use]
    pub const fn address(&self) -> &EngineAddress {
        &self.address
    }

    /// One that has connected; it waits for none. None: none has connected, or one that may not, and the log says why. The
    /// descriptor says when one has.
    ///
    /// # Errors
    /// The system has no descriptor or no memory for one: see [`Shortage`].
    pub fn accept(&self) -> io::Result<Option<Accepted>> {
        let (socket, _) = loop {
            match self.socket.accept() {
                Ok(accepted) => break accepted,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    io::ErrorKind::WouldBlock => return Ok(None),
                    _ => return Err(error),
                },
            }
        };
        if self.bound.is_some()
            && let Err(error) = Credentials::of(&socket).and_then(Credentials::check)
        {
            tracing::warn!("not connected by {}: {error}", self.address);
            return Ok(None);
        }
        let stream = Stream::from(socket);
        let from = match self.bound {
            None => stream.peer(),
            Some(_) => format!("{} by {}", stream.peer(), self.address),
        };
        Ok(Some(Accepted { stream, from }))
    }
}

impl Shortage {
    /// How long the listener is to wait before it asks again, whoever comes meanwhile; none: it is not short of anything.
    #[must_use]
    pub const fn pause(&self) -> Option<Duration> {
        self.pause
    }

    /// What has become of a connection: the error with which a shortage begins, which is to be told.
    pub fn after(&mut self, taken: io::Result<()>) -> Option<io::Error> {
        let before = self.pause;
        let error = taken.err();
        self.pause = error
            .as_ref()
            .map(|_| before.map_or(SHORTEST_PAUSE, |pause| (2 * pause).min(LONGEST_PAUSE)));
        error.filter(|_| before.is_none())
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(Bound { path, file }) = &self.bound else {
            return;
        };
        let remove = || {
            let _locked = lock_directory(path.as_path())?;
            match id(&fs::symlink_metadata(path.as_path())?) == *file {
                true => fs::remove_file(path.as_path()),
                // Of another: somebody has removed this one's.
                false => Ok(()),
            }
        };
        if let Err(error) = remove()
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("the socket {path} is left over: {error}");
        }
    }
}

/// Listens at `path`: the socket, and what its file is.
fn bind_unix(path: &Path) -> io::Result<(Socket, (u64, u64))> {
    let _locked = lock_directory(path)?;
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file is there that is no socket",
            ));
        }
        Ok(_) => {
            check_left_over(path)?;
            fs::remove_file(path)?;
        }
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The file gets the rights of the socket, and never has others.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((socket, id(&fs::symlink_metadata(path)?)))
}

/// Refuses a socket at which a process listens.
fn check_left_over(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // One that has no room for more is in use, too.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("whether a process listens there is not known: {error}"),
        )),
        _ => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "a process listens there",
        )),
    }
}

/// Only one process at a time looks at sockets of a directory, for as long as it has this.
fn lock_directory(path: &Path) -> io::Result<File> {
    let directory = File::open(path.parent().unwrap_or(Path::new("/")))?;
    for left in Looks::within(LOCK) {
        match directory.try_lock() {
            Ok(()) => return Ok(directory),
            Err(TryLockError::WouldBlock) => thread::sleep(left.min(LOCK_LOOK)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("timeout: another process has locked the directory for {LOCK:?}"),
    ))
}

fn id(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_told_once_and_its_pauses_grow_up_to_the_longest() {
        let short = || Err(io::ErrorKind::OutOfMemory.into());
        let mut shortage = Shortage::default();
        for _ in 0..2 {
            assert_eq!(shortage.pause(), None);
            assert!(shortage.after(short()).is_some());
            for times in [1, 2, 4, 8, 16, 32, 64, 100, 100] {
                assert_eq!(shortage.pause(), Some(times * SHORTEST_PAUSE));
                assert!(shortage.after(short()).is_none());
            }
            assert!(shortage.after(Ok(())).is_none());
        }
    }
}
