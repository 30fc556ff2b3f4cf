//! Listeners, by which engines and their programs let others connect.
//!
//! A Unix socket is a file that only its user may write to. A socket that a process has left over is replaced. A socket at which
//! a process listens is not. Each process of this library locks the directory while it looks and replaces.

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

/// The most connections that wait to be accepted. The system may allow fewer.
const BACKLOG: i32 = 1024;
/// Time after which a listener that could take no connection asks the system again. It doubles each time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for another process that has locked the same directory.
const LOCK: Duration = Duration::from_secs(5);
/// Time between two looks at the lock.
const LOCK_LOOK: Duration = Duration::from_millis(5);

/// A listener to which others connect, until it is dropped. Its Unix socket goes with it.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: EngineAddress,
    /// The file of a Unix socket.
    bound: Option<Bound>,
}

/// A connection that another program has made.
#[derive(Debug)]
pub struct Accepted {
    /// The connection.
    pub stream: Stream,
    /// The name of the other end in messages.
    pub from: String,
}

/// The pauses of a listener while the system has no descriptor, thread or memory for another connection. The shortage passes when
/// other connections end.
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
    /// Listens at `address`. The system chooses a port in the place of port 0.
    ///
    /// # Errors
    /// [`HostError::Listen`]: a process listens there, a file that is no socket is there, the absolute path is too long, or the
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

    /// Returns the address at which it listens, with the port that it has, or with the path from the root on.
    #[must_use]
    pub const fn address(&self) -> &EngineAddress {
        &self.address
    }

    /// Takes a connection, without a wait. Returns None if no program has connected, or a program that may not connect; then the log says
    /// why. The descriptor is readable once a program has connected.
    ///
    /// # Errors
    /// The system has no descriptor or no memory for a connection: see [`Shortage`].
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
    /// Returns how long the listener is to wait before it asks again, even if connections come meanwhile. Returns None without a shortage.
    #[must_use]
    pub const fn pause(&self) -> Option<Duration> {
        self.pause
    }

    /// Notes the result of taking a connection. Returns the error if a shortage begins with it, so that the caller reports it once.
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
            if id(&fs::symlink_metadata(path.as_path())?) == *file {
                fs::remove_file(path.as_path())
            } else {
                // The file is another socket's, since a process has removed this one's.
                Ok(())
            }
        };
        if let Err(error) = remove()
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("the socket {path} is left over: {error}");
        }
    }
}

/// Listens at `path`. Returns the socket, and the device and inode of its file.
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
    // The file gets the mode of the socket. It never has another mode.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((socket, id(&fs::symlink_metadata(path)?)))
}

/// Refuses a socket at which a process listens.
fn check_left_over(path: &Path) -> io::Result<()> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A socket whose queue of connections is full is in use too.
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

/// Locks a directory, so that no other process looks at its sockets while this process holds the result.
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
