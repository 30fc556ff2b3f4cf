//! Frames on the TCP connection of two engines: a head with a version and a length, and a message. All of it is bounded, and every read
//! and write has a deadline.
//!
//! ```text
//! "WVEN"  version u16 LE  kind u16 LE  length u32 LE  length bytes
//! ```
//!
//! Kind 1 is a message as JSON, kind 2 a notice. Others are left for messages under a key.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rendezvous::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::notices::{NoticeError, Record};
use crate::fabric::PortRecord;
use crate::provider::mlx5::Offer;

/// What a frame begins with.
const MAGIC: [u8; 4] = *b"WVEN";
/// Version of head and messages.
const VERSION: u16 = 4;
/// A message as JSON.
const CLEAR: u16 = 1;
/// A notice.
const NOTICE: u16 = 2;
const HEAD: usize = 12;
/// Most bytes of a message.
pub(super) const MOST_BYTES: u32 = 1 << 20;
/// Two frames.
const MOST_COME: usize = 2 * (HEAD + MOST_BYTES as usize);

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
    /// Bytes of notices that it keeps for a peer's program.
    pub(super) inbox: u64,
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
    /// The number of the notice that this end waits for: its first message behind the handshake.
    Accepted(u64),
    /// How many notices the program of this end has taken.
    Taken(u64),
    /// A notice, as a frame of its own kind.
    #[serde(skip)]
    Notice(Record),
    /// The connection ends here.
    End,
    /// The QPs of this end are reset: nothing lands here any more.
    Reset,
    /// Behind the reset of both ends this one has no notice any more.
    Over,
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
    #[error("a frame of kind {0}: this engine has no key, and reads kinds {CLEAR} and {NOTICE}")]
    Kind(u16),
    #[error("a message of {0} bytes: expected 1 to {MOST_BYTES}")]
    Length(u32),
    #[error("a message that cannot be read: {0}")]
    Message(serde_json::Error),
    #[error(transparent)]
    Notice(#[from] NoticeError),
}

/// One end of the connection.
///
/// The stream never blocks: whoever waits to send reads meanwhile, so that two ends that both send do not wait for each other.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    /// Longest wait of one step.
    most: Duration,
    /// What has come, at most two frames.
    come: Vec<u8>,
    /// How much of it was taken.
    taken: usize,
    /// When the rest of a frame that has begun to come must be here.
    come_until: Option<Instant>,
    /// The other end sends nothing more.
    is_closed: bool,
    /// What is to go.
    going: Vec<u8>,
    /// How much of it has gone.
    gone: usize,
    /// When all of it must have gone.
    gone_until: Option<Instant>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, most: Duration) -> Self {
        // Frames are few and small: a refusal only makes them slower.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("TCP_NODELAY: {error}");
        }
        Self {
            stream,
            most,
            come: Vec::new(),
            taken: 0,
            come_until: None,
            is_closed: false,
            going: Vec::new(),
            gone: 0,
            gone_until: None,
        }
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends the message, behind all before it.
    pub(super) fn send(&mut self, message: &Message) -> Result<(), WireError> {
        self.post(message)?;
        while self.is_going() {
            self.wait()?;
            self.take_in()?;
            self.flush()?;
        }
        Ok(())
    }

    /// Sends what the system takes of the message now.
    pub(super) fn post(&mut self, message: &Message) -> Result<(), WireError> {
        let (kind, body) = encode(message)?;
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        if length > MOST_BYTES {
            return Err(WireError::Length(length));
        }
        self.going.extend(MAGIC);
        self.going.extend(VERSION.to_le_bytes());
        self.going.extend(kind.to_le_bytes());
        self.going.extend(length.to_le_bytes());
        self.going.extend(body);
        self.flush()
    }

    /// Whether something is to go that the system has not taken.
    pub(super) fn is_going(&self) -> bool {
        self.gone < self.going.len()
    }

    /// Sends what the system takes.
    pub(super) fn flush(&mut self) -> Result<(), WireError> {
        self.stream.set_nonblocking(true).map_err(WireError::Io)?;
        while self.is_going() {
            match self.stream.write(&self.going[self.gone..]) {
                Ok(0) => return Err(WireError::Closed),
                Ok(count) => {
                    self.gone += count;
                    self.gone_until = None;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let until = || Instant::now().checked_add(self.most);
                    self.gone_until = self.gone_until.or_else(until);
                    return self.check_time();
                }
                Err(error) => return Err(failed(error)),
            }
        }
        self.going.clear();
        self.gone = 0;
        self.gone_until = None;
        Ok(())
    }

    /// The next message; waits for it.
    pub(super) fn receive(&mut self) -> Result<Message, WireError> {
        let until = Instant::now().checked_add(self.most);
        loop {
            if let Some(message) = self.try_receive()? {
                return Ok(message);
            }
            // However slowly its bytes come.
            self.come_until = until;
            self.wait()?;
            self.flush()?;
        }
    }

    /// The next message, if all of it has come.
    pub(super) fn try_receive(&mut self) -> Result<Option<Message>, WireError> {
        if let Some(message) = self.take_out()? {
            return Ok(Some(message));
        }
        self.take_in()?;
        if let Some(message) = self.take_out()? {
            return Ok(Some(message));
        }
        if self.is_closed {
            return Err(WireError::Closed);
        }
        self.check_time()?;
        Ok(None)
    }

    /// How long it may be before something must have come or gone.
    pub(super) fn patience(&self) -> Option<Duration> {
        let until = self.come_until.into_iter().chain(self.gone_until).min()?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// Whether a message has come that can be taken, or what is none.
    pub(super) fn has_whole(&self) -> bool {
        match self.head() {
            Ok(Some((_, end))) => self.left().len() >= end,
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// What has come and was not taken.
    fn left(&self) -> &[u8] {
        &self.come[self.taken..]
    }

    /// Reads what has come, up to two frames.
    fn take_in(&mut self) -> Result<(), WireError> {
        self.come.drain(..self.taken);
        self.taken = 0;
        self.stream.set_nonblocking(true).map_err(WireError::Io)?;
        let mut bytes = [0; 1 << 14];
        while !self.is_closed && self.come.len() < MOST_COME {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_closed = true,
                Ok(count) => self.come.extend(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // What has come before it is read first.
                Err(error) if self.come.is_empty() => return Err(failed(error)),
                Err(_) => self.is_closed = true,
            }
        }
        // What is whole waits for this end, not for the other one.
        let is_begun = !self.come.is_empty() && !self.has_whole();
        let until = || Instant::now().checked_add(self.most);
        self.come_until = match is_begun {
            true => self.come_until.or_else(until),
            false => None,
        };
        Ok(())
    }

    /// Takes the first message of what has come.
    fn take_out(&mut self) -> Result<Option<Message>, WireError> {
        let Some((kind, end)) = self.head()? else {
            return Ok(None);
        };
        let Some(body) = self.left().get(HEAD..end) else {
            return Ok(None);
        };
        let message = decode(kind, body)?;
        self.taken += end;
        self.come_until = None;
        Ok(Some(message))
    }

    /// The kind and the end of the first frame of what has come, once its head is here.
    fn head(&self) -> Result<Option<(u16, usize)>, WireError> {
        let left = self.left();
        let Some(head) = left.first_chunk::<HEAD>() else {
            let begin = left.first_chunk::<4>();
            return match begin.filter(|begin| **begin != MAGIC) {
                Some(begin) => Err(WireError::Magic(*begin)),
                None => Ok(None),
            };
        };
        let [m, a, g, c, v0, v1, k0, k1, length @ ..] = *head;
        if [m, a, g, c] != MAGIC {
            return Err(WireError::Magic([m, a, g, c]));
        }
        let (version, kind) = (u16::from_le_bytes([v0, v1]), u16::from_le_bytes([k0, k1]));
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        if kind != CLEAR && kind != NOTICE {
            return Err(WireError::Kind(kind));
        }
        let length = u32::from_le_bytes(length);
        if !(1..=MOST_BYTES).contains(&length) {
            return Err(WireError::Length(length));
        }
        Ok(Some((kind, HEAD + length as usize)))
    }

    /// Sleeps until something comes, or goes if it is to, or the patience is over.
    pub(super) fn wait(&self) -> Result<(), WireError> {
        self.check_time()?;
        let mut flags = PollFlags::empty();
        flags.set(
            PollFlags::IN,
            !self.is_closed && self.left().len() < MOST_COME,
        );
        flags.set(PollFlags::OUT, self.is_going());
        let mut polled = [PollFd::new(&self.stream, flags)];
        let most = self.patience().map(|most| {
            Timespec::try_from(most).unwrap_or(Timespec {
                tv_sec: i64::from(i32::MAX),
                tv_nsec: 0,
            })
        });
        match poll(&mut polled, most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(WireError::Io(errno.into())),
        }
    }

    fn check_time(&self) -> Result<(), WireError> {
        match self.patience() {
            Some(Duration::ZERO) => Err(WireError::Late(self.most)),
            _ => Ok(()),
        }
    }
}

fn failed(error: io::Error) -> WireError {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => WireError::Closed,
        _ => WireError::Io(error),
    }
}

fn encode(message: &Message) -> Result<(u16, Vec<u8>), WireError> {
    match message {
        Message::Notice(record) => Ok((NOTICE, record.to_bytes())),
        message => {
            let body = serde_json::to_vec(message).map_err(WireError::Message)?;
            Ok((CLEAR, body))
        }
    }
}

fn decode(kind: u16, body: &[u8]) -> Result<Message, WireError> {
    match kind {
        NOTICE => Ok(Message::Notice(Record::from_bytes(body)?)),
        _ => serde_json::from_slice(body).map_err(WireError::Message),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use test_basics::limits::{HANG, until};

    use super::*;

    fn pair() -> [TcpStream; 2] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (from, _) = listener.accept().unwrap();
        [to, from]
    }

    /// What one end reads of `bytes` that the other sends before it closes.
    fn read(bytes: &[u8]) -> Result<Message, WireError> {
        let [mut to, from] = pair();
        to.write_all(bytes).unwrap();
        drop(to);
        Wire::new(from, HANG).receive()
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
        assert!(text(&frame(VERSION, 3, 7, br#""ready""#)).contains("kind 3"));
        assert!(text(&frame(VERSION, 2, 7, br#""ready""#)).contains("7 bytes"));
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
        let [_to, from] = pair();
        let found = Wire::new(from, Duration::from_millis(20)).receive();
        assert!(matches!(found, Err(WireError::Late(_))), "{found:?}");
    }

    #[test]
    fn only_a_frame_of_which_the_rest_is_missing_has_a_deadline() {
        let [mut to, from] = pair();
        let mut wire = Wire::new(from, HANG);
        let ready = frame(VERSION, 1, 7, br#""ready""#);
        to.write_all(&ready).unwrap();
        until("a frame has come", || {
            wire.take_in().unwrap();
            wire.has_whole()
        });
        assert_eq!(wire.patience(), None);
        to.write_all(&ready[..5]).unwrap();
        assert_eq!(wire.receive().unwrap(), Message::Ready);
        until("half a frame has come", || {
            wire.take_in().unwrap();
            wire.left() == &ready[..5]
        });
        assert!(wire.patience().is_some());
        assert!(!wire.has_whole());
        to.write_all(&ready[5..]).unwrap();
        assert_eq!(wire.receive().unwrap(), Message::Ready);
    }

    #[test]
    fn of_frames_that_come_together_each_is_taken_once_and_in_order() {
        const FRAMES: u64 = 20_000;
        let [mut to, from] = pair();
        let mut wire = Wire::new(from, HANG);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let frames = (0..FRAMES).flat_map(|number| {
                    let body = format!("{{\"taken\":{number}}}");
                    let length = u32::try_from(body.len()).unwrap();
                    frame(VERSION, 1, length, body.as_bytes())
                });
                to.write_all(&frames.collect::<Vec<u8>>()).unwrap();
            });
            for number in 0..FRAMES {
                assert_eq!(wire.receive().unwrap(), Message::Taken(number));
            }
        });
        assert!(matches!(wire.receive(), Err(WireError::Closed)));
    }
}
