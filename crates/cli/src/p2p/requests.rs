//! The messages of client and server: lines of JSON of bounded length. Each wait for a line has a deadline, and lines are encrypted if the
//! ends have a key.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use warpverbs::deadline::Looks;
use warpverbs::engine::{EngineKey, KeyedStream, Stream, printable};

use super::error::P2pError;

/// The version of these messages.
pub(super) const VERSION: u32 = 1;
/// The bytes with which an end that has a key begins.
const KEYED: &[u8] = b"WVEN";
/// The most bytes of a line.
const MOST_LINE: usize = 4096;

/// A message from client to server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// The first message, with the version of the client.
    Hello(u32),
    /// The client will send a file of so many bytes.
    Put { name: String, bytes: u64 },
    /// The client wants a file.
    Get { name: String },
    /// This slot of the window has the bytes of the file from `offset` on.
    Filled(Chunk),
    /// The client has read the bytes of this slot.
    Read { slot: u64 },
    /// The client has sent the whole file, with this sum.
    End { sum: u64 },
}

/// A message from server to client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The address at which the server's engine listens.
    Engine(String),
    /// The window for this request: its descriptor, as bytes. For a get also the number of bytes of the file.
    Window { descriptor: Vec<u8>, bytes: u64 },
    /// This slot of the window has the bytes of the file from `offset` on.
    Filled(Chunk),
    /// The server has taken the bytes of this slot.
    Taken { slot: u64 },
    /// The server has sent the whole file, with this sum.
    End { sum: u64 },
    /// The file now exists under its name.
    Kept,
    /// The request is refused.
    Refused(String),
}

/// A part of a file in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Chunk {
    pub(super) slot: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The role of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

/// A stream that goes both ways.
trait Both: Read + Write + Send {}

impl<T: Read + Write + Send> Both for T {}

/// A connection, with a second handle of it.
pub(super) struct Connection {
    stream: Stream,
    handle: Arc<Handle>,
}

/// A second handle of a connection. It sets the limits of the connection's waits, and another thread can end them by it.
pub(super) struct Handle {
    stream: Stream,
    heard: Mutex<Instant>,
}

impl Connection {
    /// # Errors
    /// The system has no descriptor left for the handle.
    pub(super) fn new(stream: Stream) -> io::Result<Self> {
        let handle = Arc::new(Handle {
            stream: stream.try_clone()?,
            heard: Mutex::new(Instant::now()),
        });
        Ok(Self { stream, handle })
    }

    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Returns the address of this end, or None for a Unix socket.
    pub(super) fn address(&self) -> io::Result<Option<SocketAddr>> {
        self.stream.own_address()
    }
}

impl Handle {
    /// Returns when the other end last said something, or connected.
    pub(super) fn heard(&self) -> Instant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hears(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Ends every wait for the other end. The other end can still be told why.
    pub(super) fn end(&self) {
        // If the connection is gone, the waits have ended, too.
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    fn wait_at_most(&self, most: Duration) -> io::Result<()> {
        // A time of 0 would mean no limit.
        let most = most.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(most))
    }
}

/// One end of a conversation.
pub(super) struct Lines {
    stream: BufReader<Box<dyn Both>>,
    handle: Arc<Handle>,
    most: Duration,
    place: String,
}

impl Lines {
    /// Begins a conversation. `most` is the longest wait for a whole line. With a key, the other end must have it, too.
    pub(super) fn new(
        connection: Connection,
        (place, end): (&str, End),
        most: Duration,
        key: Option<&EngineKey>,
    ) -> Result<Self, P2pError> {
        let failed = |error: io::Error| broken(place, &error);
        let Connection { stream, handle } = connection;
        stream.set_nodelay().map_err(failed)?;
        stream.set_write_timeout(Some(most)).map_err(failed)?;
        let stream: Box<dyn Both> = match (key, end) {
            (None, _) => Box::new(stream),
            (Some(key), End::Client) => Box::new(KeyedStream::connect(stream, key, most)?),
            (Some(key), End::Server) => Box::new(KeyedStream::accept(stream, key, most)?),
        };
        Ok(Self {
            stream: BufReader::new(stream),
            handle,
            most,
            place: place.to_owned(),
        })
    }

    pub(super) fn tell(&mut self, line: &impl Serialize) -> Result<(), P2pError> {
        let text = serde_json::to_string(line).map_err(|error| self.other(error))?;
        let written = self.stream.get_mut().write_all((text + "\n").as_bytes());
        written.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.other(format!(
                "timeout: it has not taken a line within {}",
                seconds(self.most)
            )),
            _ => broken(&self.place, &error),
        })
    }

    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, P2pError> {
        let Some(line) = self.line(self.most)? else {
            let most = seconds(self.most);
            return Err(self.other(format!("timeout: no whole line within {most}")));
        };
        let read = serde_json::from_slice(&line);
        read.map_err(|error| self.other(format!("its line is none of this version: {error}")))
    }

    /// Returns the next line, or None if all of it is not here within `most`, however slowly its bytes come.
    fn line(&mut self, most: Duration) -> Result<Option<Vec<u8>>, P2pError> {
        let mut line = Vec::new();
        for left in Looks::within(most) {
            let set = self.handle.wait_at_most(left);
            set.map_err(|error| self.other(error))?;
            let come = match self.stream.fill_buf() {
                Ok(come) => come,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted
                    | io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut => continue,
                    _ => return Err(broken(&self.place, &error)),
                },
            };
            if come.is_empty() {
                let within = if line.is_empty() {
                    ""
                } else {
                    " within a line"
                };
                let reason = format!("its connection has ended{within}");
                return Err(self.gone(reason));
            }
            self.handle.hears();
            if line.is_empty() && come.starts_with(KEYED) {
                return Err(self.other("it asks for a key: --key-file"));
            }
            let end = come.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(come.len(), |end| end + 1);
            line.extend(&come[..taken]);
            self.stream.consume(taken);
            if line.len() > MOST_LINE {
                return Err(self.other(format!("a line of more than {MOST_LINE} bytes")));
            }
            if end.is_some() {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }

    /// Returns the next answer, or an error if the answer is a refusal.
    pub(super) fn answer(&mut self) -> Result<Answer, P2pError> {
        match self.hear()? {
            Answer::Refused(reason) => Err(self.other(printable(&reason))),
            answer => Ok(answer),
        }
    }

    /// Returns why the conversation has ended: the other end has refused, or is gone. None: neither has happened within `most`.
    pub(super) fn last_words(&mut self, most: Duration) -> Option<P2pError> {
        for left in Looks::within(most) {
            match self.line(left) {
                Ok(None) => return None,
                Ok(Some(line)) => {
                    if let Ok(Answer::Refused(reason)) = serde_json::from_slice(&line) {
                        return Some(self.other(printable(&reason)));
                    }
                }
                Err(error) => return Some(error),
            }
        }
        None
    }

    /// Returns an error of the other end, with this reason.
    pub(super) fn other(&self, reason: impl ToString) -> P2pError {
        P2pError::Other {
            place: self.place.clone(),
            reason: reason.to_string(),
        }
    }

    /// Returns the error that the other end has said what it may not say now.
    pub(super) fn unexpected(&self, said: &impl fmt::Display, due: impl fmt::Display) -> P2pError {
        self.other(format!("it said '{said}', where '{due}' was due"))
    }

    fn gone(&self, reason: String) -> P2pError {
        let place = self.place.clone();
        P2pError::Gone { place, reason }
    }
}

/// Returns the error of a failed connection: the other end is gone, or has failed otherwise.
fn broken(place: &str, error: &io::Error) -> P2pError {
    let (place, reason) = (place.to_owned(), error.to_string());
    match error.kind() {
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::UnexpectedEof => P2pError::Gone { place, reason },
        _ => P2pError::Other { place, reason },
    }
}

/// Returns a duration as text.
pub(super) fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello(version) => write!(f, "version {version}"),
            Self::Put { name, bytes } => write!(f, "a put of {name:?}, {bytes} bytes"),
            Self::Get { name } => write!(f, "a get of {name:?}"),
            Self::Filled(chunk) => write!(f, "{chunk}"),
            Self::Read { slot } => write!(f, "slot {slot} was read"),
            Self::End { .. } => write!(f, "the end of the file"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(place) => write!(f, "the engine is at {}", printable(place)),
            Self::Window { bytes, .. } => write!(f, "a window for {bytes} bytes"),
            Self::Filled(chunk) => write!(f, "{chunk}"),
            Self::Taken { slot } => write!(f, "slot {slot} was taken"),
            Self::End { .. } => write!(f, "the end of the file"),
            Self::Kept => write!(f, "the file is kept"),
            Self::Refused(reason) => write!(f, "{}", printable(reason)),
        }
    }
}

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            slot,
            offset,
            bytes,
        } = self;
        write!(f, "slot {slot} has {bytes} bytes from byte {offset} on")
    }
}
