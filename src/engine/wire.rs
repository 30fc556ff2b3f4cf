//! Frames on the TCP connection of two engines: a head with a version and a length, and a message. All of it is bounded, and every read
//! and write has a deadline.
//!
//! ```text
//! "WVEN"  version u16 LE  kind u16 LE  length u32 LE  length bytes
//! ```
//!
//! Kind 1 is a message in the clear, as JSON. Others are left for messages under a key.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rendezvous::Process;
use serde::{Deserialize, Serialize};

use crate::fabric::PortRecord;
use crate::provider::mlx5::Offer;

/// What a frame begins with.
const MAGIC: [u8; 4] = *b"WVEN";
/// Version of head and messages.
const VERSION: u16 = 3;
/// A message in the clear.
const CLEAR: u16 = 1;
const HEAD: usize = 12;
/// Most bytes of a message.
pub(super) const MOST_BYTES: u32 = 1 << 20;

/// What an engine tells of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hello {
    /// Its name.
    pub(super) name: String,
    /// Its life. No other has the same.
    pub(super) incarnation: u64,
    /// Its port.
    pub(super) port: PortRecord,
    /// QPs that it wants.
    pub(super) qps: u64,
    /// Where it runs.
    pub(super) process: Process,
}

impl Hello {
    /// Whether the other one is of the same process: addresses of both are of the same memory.
    pub(super) fn shares_memory_with(&self, other: &Self) -> bool {
        self.process == other.process && self.process.is_beside(&other.process)
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// The first one of both ends.
    Hello(Hello),
    /// The QPs of this end, in Init.
    Offers(Vec<Offer>),
    /// The QPs of this end take packets.
    Ready,
    /// The QP of this lane has failed at this end: both reset theirs.
    LaneFailed(u64),
    /// The QP of this lane is reset at this end, and is in Init with this number for its first packet.
    LaneReset(u64, Offer),
    /// The QP of this lane takes packets again at this end.
    LaneReady(u64),
    /// The connection ends here.
    End,
    /// The QPs of this end are reset: nothing lands here any more.
    Reset,
    /// The end that sends this refuses the connection.
    Refused(String),
}

/// Why a frame did not go or come.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("the connection was closed")]
    Closed,
    #[error("{0}")]
    Io(io::Error),
    #[error("a frame that begins with {0:02x?}: expected \"WVEN\"; is an engine there?")]
    Magic([u8; 4]),
    #[error("a frame of version {0}: this engine speaks {VERSION}")]
    Version(u16),
    #[error("a frame of kind {0}: this engine has no key, and reads kind {CLEAR}")]
    Kind(u16),
    #[error("a message of {0} bytes: expected 1 to {MOST_BYTES}")]
    Length(u32),
    #[error("a message that cannot be read: {0}")]
    Message(serde_json::Error),
}

/// One end of the connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    /// Longest wait of one step.
    most: Duration,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, most: Duration) -> Self {
        // Frames are few and small: a refusal only makes them slower.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("TCP_NODELAY: {error}");
        }
        Self { stream, most }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn send(&mut self, message: &Message) -> Result<(), WireError> {
        let body = serde_json::to_vec(message).map_err(WireError::Message)?;
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        if length > MOST_BYTES {
            return Err(WireError::Length(length));
        }
        let mut frame = Vec::with_capacity(HEAD + body.len());
        frame.extend(MAGIC);
        frame.extend(VERSION.to_le_bytes());
        frame.extend(CLEAR.to_le_bytes());
        frame.extend(length.to_le_bytes());
        frame.extend(body);
        self.stream
            .set_write_timeout(Some(self.most))
            .map_err(WireError::Io)?;
        self.stream
            .write_all(&frame)
            .map_err(|error| self.failed(error))
    }

    /// The next message.
    pub(super) fn receive(&mut self) -> Result<Message, WireError> {
        let end = Instant::now() + self.most;
        let mut head = [0; HEAD];
        self.read(&mut head, end)?;
        let [m, a, g, c, v0, v1, k0, k1, length @ ..] = head;
        if [m, a, g, c] != MAGIC {
            return Err(WireError::Magic([m, a, g, c]));
        }
        let (version, kind) = (u16::from_le_bytes([v0, v1]), u16::from_le_bytes([k0, k1]));
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        if kind != CLEAR {
            return Err(WireError::Kind(kind));
        }
        let length = u32::from_le_bytes(length);
        if !(1..=MOST_BYTES).contains(&length) {
            return Err(WireError::Length(length));
        }
        let mut body = vec![0; length as usize];
        self.read(&mut body, end)?;
        serde_json::from_slice(&body).map_err(WireError::Message)
    }

    /// Fills `bytes` until `end`, however slowly they come.
    fn read(&mut self, bytes: &mut [u8], end: Instant) -> Result<(), WireError> {
        let mut have = 0;
        while have < bytes.len() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WireError::Late(self.most));
            }
            self.stream
                .set_read_timeout(Some(left))
                .map_err(WireError::Io)?;
            match self.stream.read(&mut bytes[have..]) {
                Ok(0) => return Err(WireError::Closed),
                Ok(count) => have += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    fn failed(&self, error: io::Error) -> WireError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => WireError::Late(self.most),
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => WireError::Closed,
            _ => WireError::Io(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What one end reads of `bytes` that the other sends before it closes.
    fn read(bytes: &[u8]) -> Result<Message, WireError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (from, _) = listener.accept().unwrap();
        to.write_all(bytes).unwrap();
        drop(to);
        Wire::new(from, Duration::from_secs(60)).receive()
    }

    fn frame(version: u16, kind: u16, length: u32, body: &[u8]) -> Vec<u8> {
        let mut frame = b"WVEN".to_vec();
        frame.extend(version.to_le_bytes());
        frame.extend(kind.to_le_bytes());
        frame.extend(length.to_le_bytes());
        frame.extend(body);
        frame
    }

    #[test]
    fn what_is_no_frame_of_this_version_is_refused_by_name() {
        let good = frame(VERSION, 1, 7, br#""ready""#);
        assert_eq!(read(&good).unwrap(), Message::Ready);
        let text = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        assert!(text(b"GET / HTTP/1.1\r\n").contains("expected \"WVEN\""));
        assert!(text(&frame(1, 1, 7, br#""ready""#)).contains("version 1"));
        assert!(text(&frame(VERSION, 2, 7, br#""ready""#)).contains("kind 2"));
        for length in [0, MOST_BYTES + 1, u32::MAX] {
            let found = text(&frame(VERSION, 1, length, b""));
            assert!(found.contains(&length.to_string()), "{found}");
        }
        assert!(text(&frame(VERSION, 1, 3, b"\xff\xff\xff")).contains("cannot be read"));
        for cut in 0..good.len() {
            assert!(
                matches!(read(&good[..cut]), Err(WireError::Closed)),
                "{cut}"
            );
        }
    }

    #[test]
    fn an_end_that_says_nothing_is_waited_for_until_the_deadline() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let _to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (from, _) = listener.accept().unwrap();
        let found = Wire::new(from, Duration::from_millis(20)).receive();
        assert!(matches!(found, Err(WireError::Late(_))), "{found:?}");
    }
}
