//! The form of the frames of a connection: a head with a version and a length, and a body.
//!
//! ```text
//! "WVEN"  version u16 LE  kind u16 LE  length u32 LE  length bytes
//! ```
//!
//! Kind 1 is a message as JSON, kind 2 a notice. Between engines with a key, frames of kind 3 agree on the encryption first
//! (`seal`). Then kinds 1 and 2 go encrypted, inside frames of kind 4.

/// The first bytes of a frame.
pub(super) const MAGIC: [u8; 4] = *b"WVEN";
/// The version of heads and messages.
pub(in crate::engine) const VERSION: u16 = 7;
/// The kind of a frame that carries a message as JSON.
pub(in crate::engine) const CLEAR: u16 = 1;
/// The kind of a frame that carries a notice.
pub(in crate::engine) const NOTICE: u16 = 2;
/// The kind of a frame that carries a message of a handshake of Noise.
pub(in crate::engine) const NOISE: u16 = 3;
/// The kind of a frame that carries part of the stream of other frames, encrypted.
pub(in crate::engine) const SEALED: u16 = 4;
/// The bytes of a head.
pub(in crate::engine) const HEAD: usize = 12;
/// The most bytes of a message.
pub(in crate::engine) const MOST_BYTES: u32 = 1 << 20;
/// The most bytes that Noise makes at once.
pub(in crate::engine) const MOST_NOISE: u16 = u16::MAX;
/// The most bytes of a message of a handshake, which anyone may send. The hello of an engine has less than half of that.
pub(in crate::engine) const MOST_HELLO: u32 = 1 << 15;

/// Returns the most bytes of a frame of this kind.
pub(super) const fn most_of(kind: u16) -> u32 {
    match kind {
        NOISE | SEALED => MOST_NOISE as u32,
        _ => MOST_BYTES,
    }
}
