//! The key that engines share.

use std::fmt;

/// 32 bytes that engines share. An engine with a key connects only with engines that have the same one. All bytes of such a
/// connection are encrypted under it and under keys of that connection alone.
#[derive(Clone, PartialEq, Eq)]
pub struct EngineKey([u8; Self::BYTES]);

impl EngineKey {
    /// Length of a key in bytes.
    pub const BYTES: usize = 32;

    /// Returns a key of `bytes`, which must be random. A passphrase is not.
    #[must_use]
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns the key that a key file holds: 32 bytes, or 64 hexadecimal digits and perhaps the end of a line. Returns None for anything
    /// else.
    #[must_use]
    pub fn of_file(bytes: &[u8]) -> Option<Self> {
        if let Ok(bytes) = bytes.try_into() {
            return Some(Self(bytes));
        }
        let digits = bytes.trim_ascii_end();
        if digits.len() != 2 * Self::BYTES {
            return None;
        }
        let mut key = [0; Self::BYTES];
        for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
            let pair = str::from_utf8(pair).ok()?;
            // `from_str_radix` accepts a sign, which is no digit.
            *byte = u8::from_str_radix(pair, 16)
                .ok()
                .filter(|_| !pair.starts_with('+'))?;
        }
        Some(Self(key))
    }

    pub(crate) const fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl fmt::Debug for EngineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_bytes_or_64_digits_and_nothing_else() {
        let bytes: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 7).unwrap());
        let key = Some(EngineKey::new(bytes));
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(EngineKey::of_file(&bytes), key);
        for end in ["", "\n", "\r\n"] {
            let text = digits.clone() + end;
            assert_eq!(EngineKey::of_file(text.as_bytes()), key);
            let text = digits.to_uppercase() + end;
            assert_eq!(EngineKey::of_file(text.as_bytes()), key);
        }
        for length in (0..=66).filter(|length| *length != 32 && *length != 64) {
            assert_eq!(EngineKey::of_file(&vec![b'a'; length]), None, "{length}");
        }
        for wrong in ["g0", "+1", " 1", "\u{e9}"] {
            let text = wrong.to_owned() + &digits[2..];
            assert_eq!(EngineKey::of_file(text.as_bytes()), None, "{wrong}");
        }
        assert!(!format!("{key:?}").contains("14"), "it is shown nowhere");
    }
}
