//! Streams over which engines and their programs speak: TCP, or Unix sockets of one user.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};

use crate::config::{EngineAddress, SocketPath, host_and_port};
use crate::engine::error::HostError;
use crate::engine::wire::credentials::Credentials;

/// The time without a packet after which the kernel asks the other end of a TCP connection whether it lives.
const KEEP_IDLE: Duration = Duration::from_secs(5);
/// The time between two such questions.
const KEEP_BETWEEN: Duration = Duration::from_secs(2);
/// The number of questions without an answer that end the connection: 15 s after the last packet.
const KEEP_COUNT: u32 = 5;

/// A stream to another program.
#[derive(Debug)]
pub struct Stream(Socket);

/// What tells an end of a stream from a program that passes on what the end says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Whereabouts {
    Tcp(SocketAddr),
    /// A process, as the kernel has seen it connect or listen.
    Process(i32),
}

impl Stream {
    /// Connects to the program that listens at `place`, as `host:port` or `unix:PATH`. It tries each address of a host for `most`
    /// at most.
    ///
    /// # Errors
    /// [`HostError::Connection`]: no program listens there, or a program of another user.
    pub fn connect(place: &str, most: Duration) -> Result<Self, HostError> {
        let failed = |reason: String| HostError::Connection {
            peer: place.to_owned(),
            reason,
        };
        if let Some(path) = EngineAddress::path_of(place) {
            let path = path.map_err(|error| failed(error.to_string()))?;
            let connected = connect_unix(&path, most);
            return connected.map_err(|error| failed(error.to_string()));
        }
        let Some((host, port)) = host_and_port(place) else {
            return Err(failed("it is no HOST:PORT".to_owned()));
        };
        let addresses = format!("{host}:{port}").to_socket_addrs();
        let addresses = addresses.map_err(|error| failed(error.to_string()))?;
        let mut reason = "the name has no address".to_owned();
        for address in addresses {
            match TcpStream::connect_timeout(&address, most) {
                Ok(stream) => return Ok(stream.into()),
                // A name may stand for several addresses, so the error names the address that was tried. A `place` that is an address needs
                // no such name.
                Err(error) if address.to_string() == place => reason = error.to_string(),
                Err(error) => reason = format!("{address}: {error}"),
            }
        }
        Err(failed(reason))
    }

    /// Returns a second descriptor of the stream.
    ///
    /// # Errors
    /// The error of the system.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sets the longest wait of a read. None: a read has no time limit.
    ///
    /// # Errors
    /// The error of the system.
    pub fn set_read_timeout(&self, most: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(most)
    }

    /// Sets the longest wait of a write. None: a write has no time limit.
    ///
    /// # Errors
    /// The error of the system.
    pub fn set_write_timeout(&self, most: Option<Duration>) -> io::Result<()> {
        self.0.set_write_timeout(most)
    }

    /// Lets small writes be sent at once.
    ///
    /// # Errors
    /// The error of the system.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self.own_address()? {
            Some(_) => self.0.set_tcp_nodelay(true),
            // Over a Unix socket they are always sent at once.
            None => Ok(()),
        }
    }

    /// Ends one direction of the stream or both.
    ///
    /// # Errors
    /// The error of the system.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// Returns the address of this end of a TCP stream. None: it is a Unix socket.
    ///
    /// # Errors
    /// The error of the system.
    pub fn own_address(&self) -> io::Result<Option<SocketAddr>> {
        Ok(self.0.local_addr()?.as_socket())
    }

    /// Returns the name of the other end in messages: its address, or its process.
    #[must_use]
    pub fn peer(&self) -> String {
        match self.both() {
            Ok([_, Whereabouts::Tcp(address)]) => address.to_string(),
            Ok([_, Whereabouts::Process(process)]) => format!("process {process}"),
            Err(error) => error.to_string(),
        }
    }

    pub(in crate::engine) fn set_nonblocking(&self, is_set: bool) -> io::Result<()> {
        self.0.set_nonblocking(is_set)
    }

    /// Returns where this end and the other end are.
    pub(in crate::engine) fn both(&self) -> io::Result<[Whereabouts; 2]> {
        let own = self.0.local_addr()?.as_socket();
        let theirs = self.0.peer_addr()?.as_socket();
        match own.zip(theirs) {
            Some((own, theirs)) => Ok([own, theirs].map(Whereabouts::Tcp)),
            None => {
                let own = std::process::id().try_into().unwrap_or_default();
                let theirs = Credentials::of(&self.0)?.process;
                Ok([own, theirs].map(Whereabouts::Process))
            }
        }
    }

    /// Makes the kernel probe a silent peer. A machine that has failed cannot end its connections itself.
    pub(in crate::engine) fn keep_alive(&self) -> io::Result<()> {
        if self.own_address()?.is_none() {
            // If the process ends, the kernel ends the connection.
            return Ok(());
        }
        let often = TcpKeepalive::new()
            .with_time(KEEP_IDLE)
            .with_interval(KEEP_BETWEEN)
            .with_retries(KEEP_COUNT);
        self.0.set_tcp_keepalive(&often)?;
        // If bytes were sent and are not acknowledged, the kernel sends them again, for the same time.
        let most = KEEP_IDLE + KEEP_BETWEEN * KEEP_COUNT;
        self.0.set_tcp_user_timeout(Some(most))
    }
}

impl From<Socket> for Stream {
    fn from(socket: Socket) -> Self {
        Self(socket)
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Self(stream.into())
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Self {
        Self(stream.into())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // If the other end is gone, this returns an error. A signal would end a program in C.
        self.0.send_with_flags(bytes, libc::MSG_NOSIGNAL)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn connect_unix(path: &SocketPath, most: Duration) -> io::Result<Stream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The kernel waits so long until the other end has room for one more connection.
    socket.set_write_timeout(Some(most))?;
    let connected = socket.connect(&SockAddr::unix(path.as_path())?);
    connected.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(
            io::ErrorKind::TimedOut,
            format!("timeout: it accepts no connection within {most:?}"),
        ),
        _ => error,
    })?;
    socket.set_write_timeout(None)?;
    Credentials::of(&socket)?.check()?;
    Ok(Stream(socket))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use rustix::net::sockopt;

    use super::*;

    #[test]
    fn the_kernel_asks_a_silent_peer_and_gives_it_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let stream = Stream::connect(&place, KEEP_IDLE).unwrap();
        stream.keep_alive().unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEP_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), KEEP_BETWEEN);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), KEEP_COUNT);
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 15_000);
    }
}
