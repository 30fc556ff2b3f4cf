//! The frames of a connection: how they are written, what may come when, and the bytes that have come.

use crate::engine::error::Distrust;
use crate::engine::wire::error::WireError;
use crate::engine::wire::form::{
    CLEAR, HEAD, MAGIC, MOST_BYTES, MOST_HELLO, NOISE, NOTICE, SEALED, VERSION, most_of,
};

/// The bytes of two of the longest frames.
const MOST_COME: usize = 2 * (HEAD + MOST_BYTES as usize);
/// The most bytes of a message of a handshake of Noise.
const MOST_SHAKE: u32 = 128;

/// The stage of a connection, which decides what may come. Before the other end is a peer, its bytes take little memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) enum Stage {
    /// Messages of a handshake of Noise.
    Noise,
    /// Messages of a handshake of engines.
    Hello,
    /// Any message of a peer.
    #[default]
    Peer,
}

impl Stage {
    /// Returns the most bytes of a frame of this kind.
    fn most(self, kind: u16) -> Result<u32, WireError> {
        match (self, kind) {
            (Self::Noise, NOISE) => Ok(MOST_SHAKE),
            (Self::Noise, SEALED) => Err(Distrust::Wrong.into()),
            (Self::Noise, _) => Err(Distrust::Clear.into()),
            (Self::Hello, CLEAR | NOTICE) => Ok(MOST_HELLO),
            _ => Ok(most_of(kind)),
        }
    }

    /// Returns the number of untaken bytes from which on no more are read: the longest frame of this stage, or two frames of a peer.
    fn room(self) -> usize {
        match self {
            Self::Noise => HEAD + MOST_SHAKE as usize,
            Self::Hello => HEAD + MOST_HELLO as usize,
            Self::Peer => MOST_COME,
        }
    }
}

/// Adds a frame to `into`.
pub(in crate::engine) fn put(kind: u16, body: &[u8], into: &mut Vec<u8>) -> Result<(), WireError> {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    if length > most_of(kind) {
        return Err(WireError::Length(length));
    }
    into.extend(MAGIC);
    into.extend(VERSION.to_le_bytes());
    into.extend(kind.to_le_bytes());
    into.extend(length.to_le_bytes());
    into.extend(body);
    Ok(())
}

/// Returns the bytes that bind a handshake to this form of frames.
pub(in crate::engine) fn prologue() -> [u8; 6] {
    let ([m, a, g, c], [v0, v1]) = (MAGIC, VERSION.to_le_bytes());
    [m, a, g, c, v0, v1]
}

/// Returns the kind and the end of the frame at the beginning of `bytes`. Returns None if its head has not come completely.
pub(in crate::engine) fn head(bytes: &[u8]) -> Result<Option<(u16, usize)>, WireError> {
    let Some(head) = bytes.first_chunk::<HEAD>() else {
        let begin = bytes.first_chunk::<4>();
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
    if !(CLEAR..=SEALED).contains(&kind) {
        return Err(WireError::Kind(kind));
    }
    let length = u32::from_le_bytes(length);
    if !(1..=most_of(kind)).contains(&length) {
        return Err(WireError::Length(length));
    }
    Ok(Some((kind, HEAD + length as usize)))
}

/// The bytes that have come and were not taken: at most two frames, and less before the other end is a peer.
#[derive(Debug, Default)]
pub(in crate::engine) struct Frames {
    come: Vec<u8>,
    /// The number of bytes in `come` that were taken.
    taken: usize,
    stage: Stage,
}

impl Frames {
    /// Sets the stage, which decides what may come from here on.
    pub(in crate::engine) fn expect(&mut self, stage: Stage) {
        self.stage = stage;
    }

    pub(in crate::engine) fn has_room(&self) -> bool {
        self.left().len() < self.stage.room()
    }

    pub(in crate::engine) fn is_empty(&self) -> bool {
        self.left().is_empty()
    }

    /// Returns the buffer. More bytes are added at its end.
    pub(in crate::engine) fn end(&mut self) -> &mut Vec<u8> {
        self.come.drain(..self.taken);
        self.taken = 0;
        &mut self.come
    }

    /// Returns whether a whole frame has come, or bytes that are no frame.
    pub(in crate::engine) fn has_whole(&self) -> bool {
        match self.head() {
            Ok(Some((_, end))) => self.left().len() >= end,
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Takes the first frame, if it is whole. Returns its kind and its body.
    pub(in crate::engine) fn take(&mut self) -> Result<Option<(u16, &[u8])>, WireError> {
        let Some((kind, end)) = self.head()? else {
            return Ok(None);
        };
        if self.left().len() < end {
            return Ok(None);
        }
        let begin = self.taken;
        self.taken += end;
        Ok(Some((kind, &self.come[begin + HEAD..self.taken])))
    }

    /// Returns the kind and the end of the first frame. Returns None if its head has not come completely.
    fn head(&self) -> Result<Option<(u16, usize)>, WireError> {
        let found = head(self.left())?;
        if let Some((kind, end)) = found {
            let (bytes, most) = (end - HEAD, self.stage.most(kind)?);
            if bytes > most as usize {
                return Err(WireError::Early { bytes, most });
            }
        }
        Ok(found)
    }

    /// Returns the bytes that have come and were not taken.
    pub(in crate::engine) fn left(&self) -> &[u8] {
        &self.come[self.taken..]
    }
}
