//! What client and server say to each other: lines of JSON, bounded, each waited for with a deadline, and encrypted where they have a
//! key.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use warpverbs::deadline::Looks;
use warpverbs::engine::{EngineKey, KeyedStream, printable};

use super::P2pError;

/// Version of these lines.
pub(super) const VERSION: u32 = 1;
/// What an end with a key says to one without.
const KEYED: &[u8] = b"WVEN";
/// Most bytes of a line.
const MOST_LINE: usize = 4096;

/// From client to server.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// First: its version.
    Hello(u32),
    /// A file comes, of so many bytes.
    Put { name: String, bytes: u64 },
    /// A file is wanted.
    Get { name: String },
    /// This slot of the window has the bytes of the file from `offset` on.
    Filled(Chunk),
    /// The bytes of this slot were read.
    Read { slot: u64 },
    /// All of the file was sent.
    End { sum: u64 },
}

/// From server to client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// Where its engine listens.
    Engine(String),
    /// The window of this request: a descriptor, as bytes. Of a get also the bytes of the file.
    Window { descriptor: Vec<u8>, bytes: u64 },
    /// This slot of the window has the bytes of the file from `offset` on.
    Filled(Chunk),
    /// The bytes of this slot were taken.
    Taken { slot: u64 },
    /// All of the file was sent.
    End { sum: u64 },
    /// The file exists, under its name.
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

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

/// A stream that goes both ways.
trait Both: Read + Write + Send {}

impl<T: Read + Write + Send> Both for T {}

/// One end of a conversation.
pub(super) struct Lines {
    stream: BufReader<Box<dyn Both>>,
    /// The same connection: how long a read of it waits.
    waits: TcpStream,
    most: Duration,
    place: String,
}

impl Lines {
    /// A whole line is waited for that long. With a key the other end must have it too.
    pub(super) fn new(
        stream: TcpStream,
        (place, end): (&str, End),
        most: Duration,
        key: Option<&EngineKey>,
    ) -> Result<Self, P2pError> {
        let failed = |error: io::Error| P2pError::Other {
            place: place.to_owned(),
            reason: error.to_string(),
        };
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_write_timeout(Some(most)).map_err(failed)?;
        let waits = stream.try_clone().map_err(failed)?;
        let stream: Box<dyn Both> = match (key, end) {
            (None, _) => Box::new(stream),
            (Some(key), End::Client) => Box::new(KeyedStream::connect(stream, key, most)?),
            (Some(key), End::Server) => Box::new(KeyedStream::accept(stream, key, most)?),
        };
        Ok(Self {
            stream: BufReader::new(stream),
            waits,
            most,
            place: place.to_owned(),
        })
    }

    pub(super) fn tell(&mut self, line: &impl Serialize) -> Result<(), P2pError> {
        let text = serde_json::to_string(line).map_err(|error| self.other(error))?;
        let written = self.stream.get_mut().write_all((text + "\n").as_bytes());
        written.map_err(|error| self.other(error))
    }

    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> Result<T, P2pError> {
        let line = self.line()?;
        serde_json::from_slice(&line).map_err(|error| self.other(error))
    }

    /// The next line. All of it must be here in time, however slowly its bytes come.
    fn line(&mut self) -> Result<Vec<u8>, P2pError> {
        let mut line = Vec::new();
        for left in Looks::within(self.most) {
            // A time of 0 would be no limit.
            let left = left.max(Duration::from_millis(1));
            let set = self.waits.set_read_timeout(Some(left));
            set.map_err(|error| self.other(error))?;
            let come = match self.stream.fill_buf() {
                Ok(come) => come,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted
                    | io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut => continue,
                    _ => return Err(self.other(error)),
                },
            };
            let reason = match (come, line.len()) {
                ([], 0) => "it has gone".to_owned(),
                ([], _) => "it has gone within a line".to_owned(),
                _ if line.is_empty() && come.starts_with(KEYED) => {
                    "it asks for a key: --key-file".to_owned()
                }
                _ => {
                    let end = come.iter().position(|byte| *byte == b'\n');
                    let taken = end.map_or(come.len(), |end| end + 1);
                    line.extend(&come[..taken]);
                    self.stream.consume(taken);
                    match line.len() > MOST_LINE {
                        true => format!("a line of more than {MOST_LINE} bytes"),
                        false if end.is_some() => return Ok(line),
                        false => continue,
                    }
                }
            };
            return Err(self.other(reason));
        }
        Err(self.other(format!("timeout: no whole line within {:?}", self.most)))
    }

    /// The next answer that is no refusal.
    pub(super) fn answer(&mut self) -> Result<Answer, P2pError> {
        match self.hear()? {
            Answer::Refused(reason) => Err(self.other(printable(&reason))),
            answer => Ok(answer),
        }
    }

    /// An error of the other end.
    pub(super) fn other(&self, reason: impl ToString) -> P2pError {
        P2pError::Other {
            place: self.place.clone(),
            reason: reason.to_string(),
        }
    }
}
