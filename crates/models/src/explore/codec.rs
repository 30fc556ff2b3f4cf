//! States as bits: one description of a state's fields writes and reads them.

/// Goes over the fields of a state in a fixed order, either writing or reading each.
pub trait Codec {
    /// The low `bits` bits of `value`, at most 16; the others are zero.
    fn word(&mut self, value: &mut u16, bits: u32);

    /// The same of 8 bits at most.
    #[inline]
    fn byte(&mut self, value: &mut u8, bits: u32) {
        let mut word = u16::from(*value);
        self.word(&mut word, bits);
        *value = word.to_le_bytes()[0];
    }

    /// One bit.
    #[inline]
    fn flag(&mut self, value: &mut bool) {
        let mut word = u16::from(*value);
        self.word(&mut word, 1);
        *value = word != 0;
    }
}

/// Appends to bytes.
#[derive(Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    pending: u64,
    used: u32,
}

impl Writer {
    pub(super) fn begin(&mut self) {
        self.bytes.clear();
        (self.pending, self.used) = (0, 0);
    }

    pub(super) fn end(&mut self) -> &[u8] {
        let bytes = self.used.div_ceil(8) as usize;
        self.bytes
            .extend_from_slice(&self.pending.to_le_bytes()[..bytes]);
        (self.pending, self.used) = (0, 0);
        &self.bytes
    }
}

impl Codec for Writer {
    #[inline]
    fn word(&mut self, value: &mut u16, bits: u32) {
        debug_assert!(
            u32::from(*value) >> bits == 0,
            "{value} needs more than {bits} bits"
        );
        self.pending |= u64::from(*value) << self.used;
        self.used += bits;
        if self.used >= 32 {
            self.bytes
                .extend_from_slice(&self.pending.to_le_bytes()[..4]);
            self.pending >>= 32;
            self.used -= 32;
        }
    }
}

/// Reads what a [`Writer`] wrote.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    pending: u64,
    used: u32,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            pending: 0,
            used: 0,
        }
    }
}

impl Codec for Reader<'_> {
    #[inline]
    fn word(&mut self, value: &mut u16, bits: u32) {
        while self.used < bits {
            let (first, rest) = self
                .bytes
                .split_first()
                .expect("written by the same fields");
            self.pending |= u64::from(*first) << self.used;
            self.used += 8;
            self.bytes = rest;
        }
        let low = self.pending & ((1 << bits) - 1);
        *value = u16::try_from(low).expect("at most 16 bits");
        self.pending >>= bits;
        self.used -= bits;
    }
}
