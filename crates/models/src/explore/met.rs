//! The states that an exhaustive search has met. Each is stored once, packed, and they are numbered in the order of meeting.

/// The states met, packed, in the order in which they were met.
pub(super) struct Met {
    bytes: Vec<u8>,
    /// The end of each state in `bytes`.
    ends: Vec<usize>,
    /// A hash table with open addressing. An entry is 1 + the number of a state, or 0. Its length is a power of two, and at most half is
    /// used.
    table: Vec<u32>,
}

impl Default for Met {
    fn default() -> Self {
        Self::new()
    }
}

impl Met {
    /// Returns a store without states.
    pub(super) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            table: vec![0; 1 << 12],
        }
    }

    /// Returns the number of states met.
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns the packed bytes of state `number`, if it was met.
    #[inline]
    pub(super) fn state(&self, number: u32) -> Option<&[u8]> {
        let number = usize::try_from(number).unwrap();
        let end = *self.ends.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
    }

    /// Returns the number of a state. A new state gets the next number.
    pub(super) fn number(&mut self, state: &[u8]) -> u32 {
        if self.table.len() <= 2 * self.count() {
            self.grow();
        }
        let place = self.place(state);
        if self.table[place] == 0 {
            self.bytes.extend(state);
            self.ends.push(self.bytes.len());
            self.table[place] = u32::try_from(self.ends.len()).unwrap();
        }
        self.table[place] - 1
    }

    /// Returns the index of `state` in the table, or the index that it would get.
    fn place(&self, state: &[u8]) -> usize {
        let mask = self.table.len() - 1;
        let mut place = hash(state) & mask;
        while self.table[place] != 0 && self.state(self.table[place] - 1) != Some(state) {
            place = (place + 1) & mask;
        }
        place
    }

    fn grow(&mut self) {
        self.table = vec![0; 4 * self.table.len()];
        let mask = self.table.len() - 1;
        for number in 0..u32::try_from(self.count()).unwrap() {
            let mut place = self.state(number).map_or(0, hash) & mask;
            while self.table[place] != 0 {
                place = (place + 1) & mask;
            }
            self.table[place] = number + 1;
        }
    }
}

/// Returns a hash, by multiplying and folding 8 bytes at a time.
fn hash(bytes: &[u8]) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = 0u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let product = u128::from(hash ^ u64::from_le_bytes(word)) * u128::from(ODD);
        let [low, high] = halves(product);
        hash = low ^ high.rotate_left(17);
    }
    usize::try_from(hash).unwrap()
}

fn halves(product: u128) -> [u64; 2] {
    let bytes = product.to_le_bytes();
    let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    [half(0), half(8)]
}
