//! The sum by which both ends compare the bytes of a file.

/// A sum of bytes that depends on their order: FNV-1a over words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum(u64);

impl Sum {
    pub(super) fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes. All calls for a file but the last must add whole slots.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let mut value = [0; 8];
            value.copy_from_slice(word);
            self.step(u64::from_le_bytes(value));
        }
        for byte in words.remainder() {
            self.step(u64::from(*byte));
        }
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }

    fn step(&mut self, value: u64) {
        self.0 = (self.0 ^ value)
            .wrapping_mul(0x0100_0000_01b3)
            .rotate_left(23);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_tells_any_flipped_bit_and_any_two_bytes_exchanged() {
        let bytes: Vec<u8> = (0..100).collect();
        let of = |bytes: &[u8]| {
            let mut sum = Sum::new();
            sum.add(bytes);
            sum.value()
        };
        let whole = of(&bytes);
        for bit in 0..800 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(of(&other), whole, "bit {bit}");
        }
        for at in 1..100 {
            let mut other = bytes.clone();
            other.swap(at - 1, at);
            assert_ne!(of(&other), whole, "byte {at}");
        }
    }
}
