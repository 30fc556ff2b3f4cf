//! What an engine keeps for one peer of its machine, and the code by which the engine shows that its board is its own.
//!
//! A board has a secret. Processes of its user can read it in the file of the board. Over the connection an engine sends a code of the
//! secret and of what it will keep. A relay that passes on such a code from another connection passes on a code of other contents. So the
//! other end checks the code, for which it reads only the secret, before it gives a seat, names a tracer, or looks into the process: Yama
//! forbids none of these reads.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use blake2::digest::{Digest, KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac256};
use serde::{Deserialize, Serialize};

/// The number of words of what is kept, of a secret, and of a code.
pub(super) const WORDS: usize = 4;
const BYTES: usize = 8 * WORDS;

/// What an engine keeps for one connection: a digest of what both ends know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept([u64; WORDS]);

/// A code by which an engine shows that it has a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Vouch([u64; WORDS]);

/// The secret of one board.
#[derive(Clone, Copy)]
pub(super) struct Secret([u64; WORDS]);

/// Returns random words of the system.
pub(crate) fn draw() -> io::Result<[u64; WORDS]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(words(bytes))
}

impl Kept {
    /// Returns the digest of these parts. The lengths of the parts are the same in every call of a kind.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut digest = Blake2s256::new();
        for part in parts {
            digest.update(part);
        }
        Self(words(digest.finalize().into()))
    }

    pub(super) const fn words(self) -> [u64; WORDS] {
        self.0
    }

    #[cfg(test)]
    pub(super) const fn from_words(words: [u64; WORDS]) -> Self {
        Self(words)
    }
}

impl Secret {
    pub(super) fn draw() -> io::Result<Self> {
        draw().map(Self)
    }

    /// Writes the secret into the words of a board.
    pub(super) fn put(&self, at: &[AtomicU64]) {
        for (word, value) in at.iter().zip(self.0) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads the secret from the words of a board.
    pub(super) fn get(at: &[AtomicU64]) -> Self {
        let mut all = [0; WORDS];
        for (value, word) in all.iter_mut().zip(at) {
            *value = word.load(Ordering::Relaxed);
        }
        Self(all)
    }

    /// Returns the code by which the owner of the board shows that it has the secret and will keep `kept`.
    pub(super) fn vouch(&self, kept: Kept) -> Vouch {
        let mac = <Blake2sMac256 as KeyInit>::new(&bytes(self.0).into());
        let code = mac.chain_update(bytes(kept.0)).finalize();
        Vouch(words(code.into_bytes().into()))
    }
}

fn words(bytes: [u8; BYTES]) -> [u64; WORDS] {
    let mut all = [0; WORDS];
    for (word, bytes) in all.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    all
}

fn bytes(words: [u64; WORDS]) -> [u8; BYTES] {
    let mut all = [0; BYTES];
    for (bytes, word) in all.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_of_one_secret_and_of_what_is_kept() {
        let [one, other] = [(); 2].map(|()| Secret::draw().unwrap());
        let [this, that] = [Kept::of(&[b"a", b"bc"]), Kept::of(&[b"a", b"bd"])];
        assert_eq!(one.vouch(this), one.vouch(this));
        assert_ne!(one.vouch(this), one.vouch(that));
        assert_ne!(one.vouch(this), other.vouch(this));
        let kept: [AtomicU64; WORDS] = Default::default();
        one.put(&kept);
        assert_eq!(Secret::get(&kept).vouch(this), one.vouch(this));
    }

    /// The value is from RFC 7693, appendix B.
    #[test]
    fn the_digest_is_blake2s() {
        let words = Kept::of(&[b"a", b"bc"]).words();
        assert_eq!(bytes(words)[..4], [0x50, 0x8c, 0x5e, 0x8c]);
    }
}
