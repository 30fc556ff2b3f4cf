//! The digest of an output: a number that the order of its rows does not change.

/// The sum of the hashes of all items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Digest {
    sum: u128,
    items: u64,
}

impl Digest {
    /// Adds an item: its identity (`key`: expert, rank, token) and its bytes.
    pub fn add(&mut self, key: &[u64], bytes: &[u8]) {
        let mut halves = [0x9e37_79b9_7f4a_7c15_u64, 0xd1b5_4a32_d192_ed03];
        for half in &mut halves {
            for &word in key {
                *half = mix(*half ^ word);
            }
            for chunk in bytes.chunks(8) {
                let mut word = [0u8; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                *half = mix(*half ^ u64::from_le_bytes(word)) ^ chunk.len() as u64;
            }
        }
        let hash = u128::from(halves[0]) << 64 | u128::from(halves[1]);
        self.sum = self.sum.wrapping_add(hash);
        self.items += 1;
    }

    /// Returns the digest of one item.
    #[must_use]
    pub fn of(key: &[u64], bytes: &[u8]) -> Self {
        let mut digest = Self::default();
        digest.add(key, bytes);
        digest
    }

    /// Adds all items of another digest.
    pub fn merge(&mut self, other: Self) {
        self.sum = self.sum.wrapping_add(other.sum);
        self.items += other.items;
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x} of {} items", self.sum, self.items)
    }
}

/// Returns the word after the last steps of splitmix64.
const fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ word >> 31).wrapping_add(0x9e37_79b9_7f4a_7c15)
}
