//! Messages on the connection of two engines, in [`frames`](crate::engine::wire::frames). Every message is bounded, and every
//! read and write has a deadline.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rendezvous::{Foreign, Process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::deadline::Looks;
use crate::engine::error::Distrust;
use crate::engine::wire::ends::Nonce;
use crate::engine::wire::error::WireError;
use crate::engine::wire::form::{CLEAR, NOISE, NOTICE, SEALED};
use crate::engine::wire::frames::{Frames, Stage, put};
use crate::engine::wire::notices::Record;
use crate::engine::wire::seal::{Role, Seal};
use crate::engine::wire::streams::Stream;
use crate::provider::local::{LocalOffer, Place, Vouch};
use crate::provider::{CounterCount, HostOffer, HostPort, RC};

/// The description that an engine gives of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::engine) struct Hello {
    /// The name that the configuration of that engine gives it.
    pub(in crate::engine) name: String,
    /// The life of the engine. No other life has this number.
    pub(in crate::engine) incarnation: u64,
    /// The ports of the engine, by rail.
    pub(in crate::engine) ports: Vec<HostPort>,
    /// The number of QPs that the engine wants.
    pub(in crate::engine) qps: u64,
    /// The bytes of notices that the engine keeps for a peer's program.
    pub(in crate::engine) inbox: u64,
    /// The process in which the engine runs.
    pub(in crate::engine) process: Process,
    /// True if the engine wants slices to enter by a rail near the memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::engine) near: bool,
    /// What the ports of the engine speak. None: RC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::engine) wire: Option<String>,
    /// How peers of the engine's machine reach its memory. None: they go by the NIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::engine) local: Option<LocalOffer>,
}

impl Hello {
    /// Returns the name of the wire: what two ends must both speak.
    pub(in crate::engine) fn wire(&self) -> &str {
        self.wire.as_deref().unwrap_or(RC)
    }

    /// Returns whether the other engine is of this process, so that addresses of both name one memory.
    pub(in crate::engine) fn shares_memory_with(&self, other: &Self) -> bool {
        self.process == other.process && self.process.is_beside(&other.process)
    }
}

/// The first message of one end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::engine) struct Greeting {
    /// The end that sends the message.
    pub(in crate::engine) end: Role,
    /// The nonce that the end has drawn for this connection.
    pub(in crate::engine) nonce: Nonce,
    pub(in crate::engine) engine: Hello,
}

/// A message that two engines send each other on their connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::engine) enum Message {
    /// The first message of both ends.
    Hello(Greeting),
    /// The code by which an end that may be on the peer's machine shows that its board is its own. None: it has no board.
    Vouch(Option<Vouch>),
    /// The place where this end keeps the proof that its memory is its own. None: the other end has not shown that its board is its own, or
    /// no seat is left.
    Seat(Option<Place>),
    /// The QPs of this end, in Init.
    Offers(Vec<HostOffer>),
    /// The QPs of this end receive packets.
    Ready,
    /// The QP of this lane has failed at this end. Both ends reset their QPs.
    LaneFailed(u64),
    /// The queue of this lane is closed at this end. So many WRITEs that count at the other end are done of its present life, by counter and
    /// in order. Only ends whose wire is of libfabric say it.
    LaneCounts(u64, Vec<CounterCount>),
    /// The QP of this lane is reset at this end, and is in Init with this number for its first packet.
    LaneReset(u64, HostOffer),
    /// The QP of this lane is not connected for this number of milliseconds, since its rail at this end rests.
    LaneRests(u64, u64),
    /// The QP of this lane receives packets again at this end.
    LaneReady(u64),
    /// The number of the notice that this end waits for. It is the first message after the handshake.
    Accepted(u64),
    /// The number of notices that the program of this end has taken.
    Taken(u64),
    /// A notice, as a frame of its own kind.
    #[serde(skip)]
    Notice(Record),
    /// The connection ends now.
    End,
    /// The QPs of this end are reset, so nothing lands at this end any more.
    Reset,
    /// This end has no more notices. Both ends are reset.
    Over,
    /// This end refuses the connection.
    Refused(Foreign),
}

/// A function that makes something of the kind and the body of a frame.
type Read<T> = fn(u16, &[u8]) -> Result<T, WireError>;

/// One end of the connection.
///
/// The stream never blocks. A thread that waits to send reads meanwhile, so two ends that both send do not wait for each other.
#[derive(Debug)]
pub(in crate::engine) struct Wire {
    stream: Stream,
    /// The longest wait of one step.
    most: Duration,
    /// The time at which bytes came last.
    heard: Arc<Mutex<Instant>>,
    /// What encrypts all that comes and goes, if anything does.
    seal: Option<Seal>,
    come: Frames,
    /// The time by which the rest of a frame must have come whose beginning has come.
    come_until: Option<Instant>,
    /// True if the other end sends nothing more.
    is_closed: bool,
    /// The bytes that are to be sent.
    going: Vec<u8>,
    /// The number of bytes in `going` that were sent.
    gone: usize,
    /// The time by which all bytes in `going` must have been sent.
    gone_until: Option<Instant>,
}

impl Wire {
    pub(in crate::engine) fn new(stream: Stream, most: Duration) -> Self {
        // Frames are few and small, so without this option they are only slower.
        if let Err(error) = stream.set_nodelay() {
            tracing::debug!("TCP_NODELAY: {error}");
        }
        Self {
            stream,
            most,
            heard: Arc::new(Mutex::new(Instant::now())),
            seal: None,
            come: Frames::default(),
            come_until: None,
            is_closed: false,
            going: Vec::new(),
            gone: 0,
            gone_until: None,
        }
    }

    /// Returns the time at which bytes of the other end came last. The value is kept up to date.
    pub(in crate::engine) fn last_heard(&self) -> Arc<Mutex<Instant>> {
        Arc::clone(&self.heard)
    }

    /// Sets the stage, which decides what may come from here on.
    pub(in crate::engine) fn expect(&mut self, stage: Stage) {
        self.come.expect(stage);
    }

    /// Returns the stream, its seal, and the bytes that have come and were not taken. Returns None if nothing encrypts the stream.
    pub(in crate::engine) fn into_sealed(self) -> Option<(Stream, Seal, Vec<u8>)> {
        Some((self.stream, self.seal?, self.come.left().to_vec()))
    }

    pub(in crate::engine) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Encrypts all that comes and goes from here on.
    pub(in crate::engine) fn protect(&mut self, seal: Seal) -> Result<(), WireError> {
        // Bytes that have come already belong to the next stage, which is encrypted.
        let come = std::mem::take(&mut self.come);
        self.seal = Some(seal);
        self.add(come.left())
    }

    /// Ends this side of the stream. The other end reads what was sent, then the end of the stream, and may still send.
    pub(in crate::engine) fn shut(&self) {
        // A stream that is gone has ended already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Sends the message, after all messages before it.
    pub(in crate::engine) fn send(&mut self, message: &Message) -> Result<(), WireError> {
        let (kind, body) = encode(message)?;
        self.send_frame(kind, &body)
    }

    pub(in crate::engine) fn send_frame(
        &mut self,
        kind: u16,
        body: &[u8],
    ) -> Result<(), WireError> {
        self.post_frame(kind, body)?;
        while self.is_going() {
            self.wait()?;
            if self.take_in()? {
                return Err(WireError::Late(self.most));
            }
            self.flush()?;
        }
        Ok(())
    }

    /// Queues the message, and sends as much as the system takes now.
    pub(in crate::engine) fn post(&mut self, message: &Message) -> Result<(), WireError> {
        let (kind, body) = encode(message)?;
        self.post_frame(kind, &body)
    }

    fn post_frame(&mut self, kind: u16, body: &[u8]) -> Result<(), WireError> {
        match &mut self.seal {
            None => put(kind, body, &mut self.going)?,
            Some(seal) => {
                let mut plain = Vec::new();
                put(kind, body, &mut plain)?;
                seal.seal(&plain, &mut self.going)?;
            }
        }
        self.flush()
    }

    /// Returns whether bytes are to be sent that the system has not taken.
    pub(in crate::engine) fn is_going(&self) -> bool {
        self.gone < self.going.len()
    }

    /// Sends as many bytes as the system takes.
    pub(in crate::engine) fn flush(&mut self) -> Result<(), WireError> {
        self.stream.set_nonblocking(true).map_err(WireError::Io)?;
        // The clock is read before the stream is tried. So if the system takes nothing, it has had the whole time.
        let now = Instant::now();
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
                    return if self.gone_until.is_some_and(|until| until <= now) {
                        Err(WireError::Late(self.most))
                    } else {
                        Ok(())
                    };
                }
                Err(error) => return Err(failed(error)),
            }
        }
        self.going.clear();
        self.gone = 0;
        self.gone_until = None;
        Ok(())
    }

    /// Waits for the next message and returns it.
    pub(in crate::engine) fn receive(&mut self) -> Result<Message, WireError> {
        self.wait_for(decode)
    }

    /// Waits for the next message of a handshake of Noise and returns it.
    pub(in crate::engine) fn receive_noise(&mut self) -> Result<Vec<u8>, WireError> {
        self.wait_for(|kind, body| match kind {
            NOISE => Ok(body.to_vec()),
            SEALED => Err(Distrust::Wrong.into()),
            _ => Err(Distrust::Clear.into()),
        })
    }

    /// Returns the next message, if all of it has come.
    pub(in crate::engine) fn try_receive(&mut self) -> Result<Option<Message>, WireError> {
        self.look_for(decode)
    }

    fn wait_for<T>(&mut self, read: Read<T>) -> Result<T, WireError> {
        let until = Instant::now().checked_add(self.most);
        for left in Looks::by(Instant::now, until) {
            if let Some(found) = self.look_for(read)? {
                return Ok(found);
            }
            // The deadline holds even if the bytes come slowly.
            self.come_until = until;
            if !left.is_zero() {
                self.wait()?;
                self.flush()?;
            }
        }
        Err(WireError::Late(self.most))
    }

    fn look_for<T>(&mut self, read: Read<T>) -> Result<Option<T>, WireError> {
        if let Some(found) = self.take_out(read)? {
            return Ok(Some(found));
        }
        let is_late = self.take_in()?;
        if let Some(found) = self.take_out(read)? {
            return Ok(Some(found));
        }
        if self.is_closed {
            return Err(WireError::Closed);
        }
        if is_late {
            Err(WireError::Late(self.most))
        } else {
            Ok(None)
        }
    }

    /// Returns how long it is until bytes must have come or gone. Returns None if none must.
    pub(in crate::engine) fn patience(&self) -> Option<Duration> {
        let until = self.come_until.into_iter().chain(self.gone_until).min()?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// Returns whether a whole message has come, or bytes that are no message.
    pub(in crate::engine) fn has_whole(&self) -> bool {
        self.come.has_whole()
    }

    /// Reads the bytes that have come, up to two frames. Returns whether the rest of a frame is still missing after its time.
    fn take_in(&mut self) -> Result<bool, WireError> {
        let now = Instant::now();
        self.stream.set_nonblocking(true).map_err(WireError::Io)?;
        let mut bytes = [0; 1 << 14];
        while !self.is_closed && self.come.has_room() {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.is_closed = true,
                Ok(count) => {
                    *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = now;
                    self.add(&bytes[..count])?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Bytes that came before the error are taken first.
                Err(error) if self.come.is_empty() => return Err(failed(error)),
                Err(_) => self.is_closed = true,
            }
        }
        // A whole frame waits for this end, and not for the other end.
        let is_sealed = self.seal.as_ref().is_some_and(Seal::is_begun);
        let is_begun = (is_sealed || !self.come.is_empty()) && !self.has_whole();
        let until = || Instant::now().checked_add(self.most);
        self.come_until = if is_begun {
            self.come_until.or_else(until)
        } else {
            None
        };
        Ok(self.come_until.is_some_and(|until| until <= now))
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let Some(seal) = &mut self.seal else {
            self.come.end().extend(bytes);
            return Ok(());
        };
        let opened = seal.open(bytes, self.come.end());
        // After bytes that were not made with the key, no later bytes can be valid.
        self.is_closed |= opened.is_err();
        opened
    }

    /// Takes the first frame of the bytes that have come.
    fn take_out<T>(&mut self, read: Read<T>) -> Result<Option<T>, WireError> {
        let Some((kind, body)) = self.come.take()? else {
            return Ok(None);
        };
        let found = read(kind, body)?;
        self.come_until = None;
        Ok(Some(found))
    }

    /// Sleeps until bytes come, until bytes that are to be sent can be sent, or until the patience is over.
    pub(in crate::engine) fn wait(&self) -> Result<(), WireError> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !self.is_closed && self.come.has_room());
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
        NOISE | SEALED => Err(Distrust::Keyed.into()),
        _ => serde_json::from_slice(body).map_err(WireError::Message),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use rendezvous::printable;
    use test_basics::limits::{HANG, until};

    use super::*;
    use crate::engine::wire::form::{MOST_BYTES, MOST_HELLO, VERSION};
    use crate::provider::rc::RcOffer;

    fn pair() -> [TcpStream; 2] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (from, _) = listener.accept().unwrap();
        [to, from]
    }

    /// Returns what one end reads if the other sends `bytes` and closes.
    fn read(bytes: &[u8]) -> Result<Message, WireError> {
        let [mut to, from] = pair();
        to.write_all(bytes).unwrap();
        drop(to);
        Wire::new(from.into(), HANG).receive()
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
        assert!(text(b"GET / HTTP/1.1\r\n").contains("must be \"WVEN\""));
        assert!(text(&frame(1, 1, 7, br#""ready""#)).contains("version 1"));
        assert!(text(&frame(VERSION, 5, 7, br#""ready""#)).contains("kind 5"));
        for keyed in [3, 4] {
            let found = read(&frame(VERSION, keyed, 7, br#""ready""#));
            assert!(matches!(found, Err(WireError::Distrust(Distrust::Keyed))));
        }
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
    fn in_a_handshake_a_long_frame_is_refused_by_its_head() {
        let early = |stage, kind, length| {
            let [mut to, from] = pair();
            to.write_all(&frame(VERSION, kind, length, b"")).unwrap();
            let mut wire = Wire::new(from.into(), HANG);
            wire.expect(stage);
            // The other end sends nothing more, and keeps the stream open.
            match stage {
                Stage::Noise => wire.receive_noise().map(drop),
                _ => wire.receive().map(drop),
            }
        };
        for length in [MOST_HELLO + 1, MOST_BYTES] {
            let refused = early(Stage::Hello, 1, length);
            let is_early =
                matches!(refused, Err(WireError::Early { bytes, .. }) if bytes == length as usize);
            assert!(is_early, "{refused:?}");
        }
        let refused = early(Stage::Noise, 3, 129);
        assert!(
            matches!(
                refused,
                Err(WireError::Early {
                    bytes: 129,
                    most: 128
                })
            ),
            "{refused:?}"
        );
        let refused = early(Stage::Noise, 1, 100);
        assert!(
            matches!(refused, Err(WireError::Distrust(Distrust::Clear))),
            "{refused:?}"
        );
        let refused = early(Stage::Noise, 4, 100);
        assert!(
            matches!(refused, Err(WireError::Distrust(Distrust::Wrong))),
            "{refused:?}"
        );
    }

    #[test]
    fn what_comes_before_the_end_of_a_handshake_takes_little_memory() {
        for (stage, most) in [(Stage::Noise, 1 << 15), (Stage::Hello, 1 << 16)] {
            let [mut to, from] = pair();
            to.set_nonblocking(true).unwrap();
            let mut wire = Wire::new(from.into(), HANG);
            wire.expect(stage);
            let sent = frame(VERSION, 1, MOST_HELLO, &[b' '; 1 << 15]).repeat(64);
            let mut gone = 0;
            until("it takes no more", || {
                if let Ok(count) = to.write(&sent[gone..]) {
                    gone += count;
                }
                wire.take_in().unwrap();
                !wire.come.has_room()
            });
            assert!(wire.come.left().len() < most, "{}", wire.come.left().len());
        }
    }

    /// Returns one message of each kind, and a notice of each length that matters.
    fn messages() -> Vec<Message> {
        let offer = HostOffer::Rc(RcOffer {
            qpn: 1,
            psn: 2,
            ece: 3,
        });
        let count = CounterCount {
            counter: 7,
            writes: 8,
        };
        let notice = |length| {
            Message::Notice(Record {
                number: 9,
                transfer: None,
                bytes: vec![1; length].into(),
            })
        };
        vec![
            Message::Offers(vec![offer.clone(); 8]),
            Message::Ready,
            Message::LaneFailed(1),
            Message::LaneCounts(1, vec![count, count]),
            Message::LaneReset(2, offer),
            Message::LaneReady(u64::MAX),
            Message::Accepted(4),
            Message::Taken(5),
            notice(0),
            notice(100),
            Message::End,
            Message::Reset,
            Message::Over,
            Message::Refused("\u{e9}\"".into()),
        ]
    }

    #[test]
    fn of_damaged_frames_each_is_refused_or_is_a_message() {
        let full = std::env::var_os("WV_TEST_FULL").is_some();
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let all = messages();
        let (mut refused, mut taken) = (0, 0);
        for _ in 0..if full { 1_000_000 } else { 100_000 } {
            let mut bytes = Vec::new();
            for _ in 0..random.usize(1..4) {
                let (kind, body) = encode(&all[random.usize(..all.len())]).unwrap();
                put(kind, &body, &mut bytes).unwrap();
            }
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                match random.u32(0..3) {
                    0 => bytes[at] ^= 1 << random.u32(0..8),
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, random.u8(..)),
                }
            }
            let mut frames = Frames::default();
            let mut is_refused = false;
            for part in bytes.chunks(random.usize(1..64)) {
                frames.end().extend(part);
                while !is_refused {
                    let found = frames.take();
                    match found.map(|it| it.map(|(kind, body)| decode(kind, body))) {
                        Ok(None) => break,
                        Ok(Some(Ok(message))) => {
                            let (kind, body) = encode(&message).unwrap();
                            assert_eq!(decode(kind, &body).unwrap(), message, "seed {seed}");
                            taken += 1;
                        }
                        Ok(Some(Err(_))) | Err(_) => is_refused = true,
                    }
                }
            }
            refused += u32::from(is_refused);
        }
        assert!(
            refused > 1000 && taken > 1000,
            "seed {seed}: {refused} {taken}"
        );
    }

    #[test]
    fn an_end_that_says_nothing_is_waited_for_until_the_deadline() {
        let [_to, from] = pair();
        let found = Wire::new(from.into(), Duration::from_millis(20)).receive();
        assert!(matches!(found, Err(WireError::Late(_))), "{found:?}");
    }

    #[test]
    fn time_that_passes_between_two_looks_costs_no_frame_that_has_come() {
        let [mut to, from] = pair();
        let mut wire = Wire::new(from.into(), HANG);
        let ready = frame(VERSION, 1, 7, br#""ready""#);
        to.write_all(&ready[..5]).unwrap();
        until("half a frame has come", || {
            assert!(!wire.take_in().unwrap());
            wire.come.left() == &ready[..5]
        });
        to.write_all(&ready[5..]).unwrap();
        // The thread stands still at this point for longer than the rest may take.
        wire.come_until = Some(Instant::now());
        wire.wait().unwrap();
        until("the rest has come", || {
            wire.come_until = Some(Instant::now() + HANG);
            wire.take_in().unwrap();
            wire.has_whole()
        });
        assert_eq!(wire.try_receive().unwrap(), Some(Message::Ready));
        // Bytes that have not come by the deadline are late.
        to.write_all(&ready[..5]).unwrap();
        until("half a frame is late", || {
            wire.come_until = Some(Instant::now());
            match wire.try_receive() {
                Err(WireError::Late(_)) => true,
                found => {
                    assert_eq!(found.unwrap(), None);
                    false
                }
            }
        });
    }

    #[test]
    fn only_a_frame_of_which_the_rest_is_missing_has_a_deadline() {
        let [mut to, from] = pair();
        let mut wire = Wire::new(from.into(), HANG);
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
            wire.come.left() == &ready[..5]
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
        let mut wire = Wire::new(from.into(), HANG);
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

    #[test]
    fn what_a_peer_has_said_is_shown_as_one_plain_line() {
        const TEXT: &str = "a\nERROR b\u{1b}[2J\u{202e}c\u{85}";
        let (_, body) = encode(&Message::Refused(TEXT.into())).unwrap();
        let heard: Message = serde_json::from_slice(&body).unwrap();
        let Message::Refused(reason) = heard else {
            panic!("{heard:?}");
        };
        let shown = crate::engine::text::refusal(&reason);
        assert_eq!(shown, printable(&shown));
        assert!(shown.contains("a\\nERROR b\\u{1b}[2J"), "{shown}");
        // The reader of JSON names a message that it does not know.
        let unknown = serde_json::json!({ TEXT: 1 }).to_string();
        let error = serde_json::from_str::<Message>(&unknown).unwrap_err();
        let shown = WireError::Message(error).to_string();
        assert!(shown.contains("ERROR b"), "{shown}");
        assert_eq!(shown, printable(&shown));
    }
}
