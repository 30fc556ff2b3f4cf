//! Encrypted streams for words of programs, by the key of their engines. They carry descriptors, which no process without the key may read
//! or replace, and requests, which only programs with the key may make.

use std::io::{self, Read, Write};
use std::time::Duration;

use crate::config::EngineKey;
use crate::engine::error::{Distrust, HostError};
use crate::engine::wire::error::{WireError, failed};
use crate::engine::wire::messages::Wire;
use crate::engine::wire::seal::{Role, Seal};
use crate::engine::wire::shake::{Purpose, shake};
use crate::engine::wire::streams::Stream;

/// A stream to a program with the same key, encrypted. Bytes that were not made with the key, or not for this stream, are an
/// error of [`io::ErrorKind::InvalidData`] and end the stream. The end of the stream is not authenticated, so the words must say
/// which is the last. A read that has got only a part of a record returns [`io::ErrorKind::Interrupted`].
#[derive(Debug)]
pub struct KeyedStream {
    stream: Stream,
    seal: Seal,
    /// The bytes that have come and were not read.
    come: Vec<u8>,
    read: usize,
    is_ended: bool,
}

impl KeyedStream {
    /// Shakes hands over `stream`, which this program has connected. Each wait for the other end, now and later, lasts `most` at most.
    ///
    /// # Errors
    /// [`HostError::Distrusted`]: the ends do not have the same key; [`HostError::Connection`]: the other end does not answer.
    pub fn connect(
        stream: impl Into<Stream>,
        key: &EngineKey,
        most: Duration,
    ) -> Result<Self, HostError> {
        Self::new(stream.into(), key, most, Role::Connects)
    }

    /// Shakes hands over `stream`, which another program has connected.
    ///
    /// # Errors
    /// As [`KeyedStream::connect`].
    pub fn accept(
        stream: impl Into<Stream>,
        key: &EngineKey,
        most: Duration,
    ) -> Result<Self, HostError> {
        Self::new(stream.into(), key, most, Role::Accepts)
    }

    fn new(stream: Stream, key: &EngineKey, most: Duration, role: Role) -> Result<Self, HostError> {
        let place = stream.peer();
        let broken = |reason: String| HostError::Connection {
            peer: place.clone(),
            reason,
        };
        let mut wire = Wire::new(stream, most);
        let shaken = shake(&mut wire, key, role, Purpose::Words);
        shaken.map_err(|error| match error {
            // A peer without a key sends its first message in the clear, which begins with no magic number.
            WireError::Magic(_) => failed(&place, &Distrust::Clear.into()),
            error => failed(&place, &error),
        })?;
        let Some((stream, seal, come)) = wire.into_sealed() else {
            return Err(broken("it is not encrypted".to_owned()));
        };
        let waits = || {
            stream.set_nonblocking(false)?;
            stream.set_read_timeout(Some(most))?;
            stream.set_write_timeout(Some(most))
        };
        waits().map_err(|error| broken(error.to_string()))?;
        Ok(Self {
            stream,
            seal,
            come,
            read: 0,
            is_ended: false,
        })
    }
}

impl Read for KeyedStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
        if self.read == self.come.len() && !self.is_ended {
            self.come.clear();
            self.read = 0;
            let mut bytes = [0; 1 << 14];
            let count = self.stream.read(&mut bytes)?;
            self.is_ended = count == 0;
            if self.is_ended && self.seal.is_begun() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Err(error) = self.seal.open(&bytes[..count], &mut self.come) {
                self.is_ended = true;
                return Err(invalid(error.to_string()));
            }
            if self.come.is_empty() && !self.is_ended {
                // Only a part of a record has come. The time of the caller may be over, so the caller decides whether it waits for more.
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        let left = &self.come[self.read..];
        let count = left.len().min(into.len());
        into[..count].copy_from_slice(&left[..count]);
        self.read += count;
        Ok(count)
    }
}

impl Write for KeyedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut records = Vec::new();
        let sealed = self.seal.seal(bytes, &mut records);
        sealed.map_err(|error| io::Error::other(error.to_string()))?;
        self.stream.write_all(&records)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use test_basics::limits::HANG;

    use super::*;

    const KEY: EngineKey = EngineKey::new([7; 32]);

    fn streams() -> [TcpStream; 2] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [to, listener.accept().unwrap().0]
    }

    fn met(key: EngineKey) -> [Result<KeyedStream, HostError>; 2] {
        let [to, from] = streams();
        std::thread::scope(|scope| {
            let to = scope.spawn(move || KeyedStream::connect(to, &key, HANG));
            let from = KeyedStream::accept(from, &KEY, HANG);
            [to.join().unwrap(), from]
        })
    }

    /// Returns the error of the next read that fails by more than a part of a record.
    fn error_of(stream: &mut KeyedStream) -> io::ErrorKind {
        loop {
            match stream.read(&mut [0; 8]).unwrap_err().kind() {
                io::ErrorKind::Interrupted => {}
                kind => return kind,
            }
        }
    }

    #[test]
    fn words_of_any_length_come_whole_and_inserted_bytes_end_the_stream() {
        let [mut to, mut from] = met(KEY).map(Result::unwrap);
        let words: Vec<u8> = (0..1_000_000u32).map(|at| at.to_le_bytes()[1]).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| to.write_all(&words).unwrap());
            let mut came = vec![0; words.len()];
            from.read_exact(&mut came).unwrap();
            assert!(came == words);
        });
        to.stream.write_all(b"WVEN\x07\0\x04\0\x11\0\0\0").unwrap();
        to.stream.write_all(&[0; 17]).unwrap();
        to.write_all(b"later").unwrap();
        assert_eq!(error_of(&mut from), io::ErrorKind::InvalidData);
        assert_eq!(from.read(&mut [0; 8]).unwrap(), 0, "it has ended");
    }

    #[test]
    fn a_stream_that_is_cut_within_a_record_is_not_at_its_end() {
        let [mut to, mut from] = met(KEY).map(Result::unwrap);
        to.stream.write_all(b"WVEN\x07").unwrap();
        drop(to);
        assert_eq!(error_of(&mut from), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn ends_with_two_keys_and_one_without_are_refused() {
        for end in met(EngineKey::new([8; 32])) {
            assert!(matches!(end, Err(HostError::Distrusted { .. })), "{end:?}");
        }
        let [mut to, from] = streams();
        to.write_all(b"GET /").unwrap();
        let distrust = match KeyedStream::accept(from, &KEY, HANG).unwrap_err() {
            HostError::Distrusted { distrust, .. } => distrust,
            error => panic!("{error}"),
        };
        assert_eq!(distrust, Distrust::Clear);
        let mut said = [0; 4];
        to.read_exact(&mut said).unwrap();
        assert_eq!(said, *b"WVEN", "it is told");
    }
}
