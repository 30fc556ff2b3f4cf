//! The form in which programs carry descriptions of memory. In order: four bytes that name the form, the first rkey, words, the
//! other rkeys, a bit for each near rail, and a checksum.

use super::rails::{MOST_RAILS, RailKeys};

const WORD: usize = 8;
const KEY: usize = 4;
/// Bytes of the keys of all rails but the first, in whole words.
const OTHER_KEYS: usize = MOST_RAILS * KEY;

/// As `BYTES` bytes: those that name the form, the first rkey, as many words as fit, and the other rkeys before the checksum.
pub(super) fn seal<const BYTES: usize>(
    form: [u8; 4],
    rkeys: RailKeys,
    words: &[u64],
) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let (head, keys) = bytes[..BYTES - WORD].split_at_mut(BYTES - WORD - OTHER_KEYS);
    let [first, others @ ..] = rkeys.all();
    head[..KEY].copy_from_slice(&form);
    head[KEY..WORD].copy_from_slice(&first.to_le_bytes());
    for (place, word) in head[WORD..].chunks_exact_mut(WORD).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    for (place, key) in keys.chunks_exact_mut(KEY).zip(others) {
        place.copy_from_slice(&key.to_le_bytes());
    }
    keys[OTHER_KEYS - KEY] = rkeys.near();
    let sum = checksum(&bytes[..BYTES - WORD]);
    bytes[BYTES - WORD..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Bytes of this form whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Opened<BYTES> {
    /// From as many bytes, or what is wrong with them.
    pub(super) fn new(form: [u8; 4], bytes: [u8; BYTES]) -> Result<Self, &'static str> {
        let opened = Self(bytes);
        if bytes[..4] != form {
            return Err("it is none of this version");
        }
        if opened.word(BYTES - WORD) != checksum(&bytes[..BYTES - WORD]) {
            return Err("its checksum is wrong");
        }
        Ok(opened)
    }

    /// The rkeys, or what is wrong with them.
    pub(super) fn rkeys(&self) -> Result<RailKeys, &'static str> {
        let mut keys = [0; MOST_RAILS];
        let others = BYTES - WORD - OTHER_KEYS;
        let places = [KEY].into_iter().chain((others..).step_by(KEY));
        for (key, at) in keys.iter_mut().zip(places) {
            let word = self.0.get(at..at + KEY).and_then(|it| it.try_into().ok());
            *key = u32::from_le_bytes(word.unwrap_or_default());
        }
        match self.0[BYTES - WORD - KEY..BYTES - WORD] {
            [near, 0, 0, 0] => Ok(RailKeys::from(keys).with_near(near)),
            _ => Err("bytes behind its keys are not 0"),
        }
    }

    /// The word that begins at this byte.
    pub(super) fn word(&self, at: usize) -> u64 {
        let mut word = [0; WORD];
        word.copy_from_slice(&self.0[at..at + WORD]);
        u64::from_le_bytes(word)
    }

    /// The address at this byte and the length behind it, or what is wrong with them.
    pub(super) fn range(&self, at: usize) -> Result<(u64, u64), &'static str> {
        let (address, length) = (self.word(at), self.word(at + WORD));
        match length == 0 || address.checked_add(length).is_none() {
            true => Err("its range is empty or ends behind the last address"),
            false => Ok((address, length)),
        }
    }
}

/// FNV-1a: bytes that were damaged on their way are found, a forger is not kept out.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
