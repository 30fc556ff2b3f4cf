//! States as bytes. One description of a state's fields, each a number of bits or whole bytes, serves to write and to read them.

/// Goes over the fields of a state in a fixed order, either writing or reading each.
pub trait Codec {
    /// Codes the low `bits` bits of `value`, at most 16. The other bits are zero.
    fn word(&mut self, value: &mut u16, bits: u32);

    /// Codes as `word` does, 8 bits at most.
    #[inline]
    fn byte(&mut self, value: &mut u8, bits: u32) {
        let mut word = u16::from(*value);
        self.word(&mut word, bits);
        *value = word.to_le_bytes()[0];
    }

    /// Codes one bit.
    #[inline]
    fn flag(&mut self, value: &mut bool) {
        let mut word = u16::from(*value);
        self.word(&mut word, 1);
        *value = word != 0;
    }

    /// Codes a whole byte, after the last byte that has bits in it.
    fn whole(&mut self, value: &mut u8);

    /// Codes a value in whole bytes. Nearly all values, which are from -100 to 149, take one byte.
    fn value(&mut self, value: &mut i32);
}

/// The first of the five bytes of a long value.
const LONG: u8 = 255;

/// Writes fields to bytes.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
    pending: u64,
    used: u32,
}

impl Writer {
    pub(crate) fn begin(&mut self) {
        self.bytes.clear();
        (self.pending, self.used) = (0, 0);
    }

    pub(crate) fn end(&mut self) -> &[u8] {
        self.align();
        &self.bytes
    }

    #[inline]
    fn align(&mut self) {
        if self.used > 0 {
            let bytes = self.used.div_ceil(8) as usize;
            self.bytes
                .extend_from_slice(&self.pending.to_le_bytes()[..bytes]);
            (self.pending, self.used) = (0, 0);
        }
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

    #[inline]
    fn whole(&mut self, value: &mut u8) {
        self.align();
        self.bytes.push(*value);
    }

    #[inline]
    fn value(&mut self, value: &mut i32) {
        self.align();
        match u8::try_from(value.saturating_add(100)) {
            Ok(short) if short < 250 => self.bytes.push(short),
            _ => {
                self.bytes.push(LONG);
                self.bytes.extend(value.to_le_bytes());
            }
        }
    }
}

const SAME_FIELDS: &str = "written by the same fields";

/// Reads what a [`Writer`] wrote.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    pending: u64,
    used: u32,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            pending: 0,
            used: 0,
        }
    }

    #[inline]
    fn next(&mut self) -> u8 {
        let (first, rest) = self.bytes.split_first().expect(SAME_FIELDS);
        self.bytes = rest;
        *first
    }
}

impl Codec for Reader<'_> {
    #[inline]
    fn word(&mut self, value: &mut u16, bits: u32) {
        while self.used < bits {
            self.pending |= u64::from(self.next()) << self.used;
            self.used += 8;
        }
        let low = self.pending & ((1 << bits) - 1);
        *value = u16::try_from(low).expect("at most 16 bits");
        self.pending >>= bits;
        self.used -= bits;
    }

    #[inline]
    fn whole(&mut self, value: &mut u8) {
        // The pending values are the rest of one byte with bits.
        (self.pending, self.used) = (0, 0);
        *value = self.next();
    }

    #[inline]
    fn value(&mut self, value: &mut i32) {
        (self.pending, self.used) = (0, 0);
        *value = match self.next() {
            LONG => {
                let (value, rest) = self.bytes.split_first_chunk().expect(SAME_FIELDS);
                self.bytes = rest;
                i32::from_le_bytes(*value)
            }
            short => i32::from(short) - 100,
        };
    }
}

#[test]
fn bits_and_whole_bytes_come_back() {
    fn code(fields: &mut (u16, bool, u8, i32, i32, u8), codec: &mut impl Codec) {
        codec.word(&mut fields.0, 11);
        codec.flag(&mut fields.1);
        codec.whole(&mut fields.2);
        codec.value(&mut fields.3);
        codec.byte(&mut fields.5, 3);
        codec.value(&mut fields.4);
    }
    let mut fields = (0x5a5, true, 0xc3, -100, 150, 5);
    let mut writer = Writer::default();
    code(&mut fields, &mut writer);
    let mut back = (0, false, 0, 0, 0, 0);
    code(&mut back, &mut Reader::new(writer.end()));
    assert_eq!(back, fields);
}
