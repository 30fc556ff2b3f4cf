//! Maps keyed by small numbers that this side chose (QPNs, peers' addresses). They need no hash that resists attackers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map keyed by a `u32`.
pub(crate) type NumberMap<V> = HashMap<u32, V, BuildHasherDefault<NumberHasher>>;

/// A hasher that multiplies by an odd constant, so that both ends of the result depend on the whole key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn neighbours_differ_in_the_bits_that_maps_use() {
        let hash = |number: u32| {
            let mut hasher = NumberHasher::default();
            hasher.write_u32(number);
            hasher.finish()
        };
        let low: HashSet<u64> = (0..256).map(|number| hash(number) & 0xff).collect();
        let high: HashSet<u64> = (0..256).map(|number| hash(number << 8) >> 57).collect();
        assert!(
            low.len() > 128 && high.len() > 64,
            "{} {}",
            low.len(),
            high.len()
        );
    }
}
