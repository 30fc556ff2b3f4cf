//! `layout!`: command layouts written as the PRM prints them, a bit offset and a width per field.
//!
//! Bit 0 is the most significant bit of the first byte. A field is 1 to 32 bits inside one dword (a `u32`), or 64 bits on a dword
//! boundary (a `u64`). It may also be 128 bits on a dword boundary (16 raw bytes), or another layout on a byte boundary. Anything
//! else does not compile.

/// One row of a layout's table: what a test compares with an independent description of the same structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, as `mlx5_ifc` has it.
    pub name: &'static str,
    /// Bits from the start of the layout.
    pub offset: usize,
    /// Width in bits.
    pub width: usize,
}

/// Reads `width` bits (1 to 32) at bit `offset` of a big-endian buffer.
///
/// # Panics
///
/// If the dword that holds the field is not inside `buf`; `layout!` rules that out at compile time.
pub(crate) fn load_bits(buf: &[u8], offset: usize, width: usize) -> u32 {
    (dword(buf, offset) >> shift(offset, width)) & mask(width)
}

/// Writes `width` bits (1 to 32) at bit `offset`; see [`load_bits`].
///
/// # Panics
///
/// If `value` does not fit in `width` bits: a bug of the caller, never the result of device input.
pub(crate) fn store_bits(buf: &mut [u8], offset: usize, width: usize, value: u32) {
    assert!(
        value & !mask(width) == 0,
        "{value:#x} does not fit in {width} bits"
    );
    let kept = dword(buf, offset) & !(mask(width) << shift(offset, width));
    let new = kept | (value << shift(offset, width));
    buf[offset / 32 * 4..][..4].copy_from_slice(&new.to_be_bytes());
}

fn dword(buf: &[u8], offset: usize) -> u32 {
    let at = offset / 32 * 4;
    u32::from_be_bytes([buf[at], buf[at + 1], buf[at + 2], buf[at + 3]])
}

const fn shift(offset: usize, width: usize) -> usize {
    32 - width - offset % 32
}

const fn mask(width: usize) -> u32 {
    u32::MAX >> (32 - width)
}

/// Compile-time check of a field of 1 to 32 bits in a layout of `bytes` bytes.
pub(crate) const fn check_bits(offset: usize, width: usize, bytes: usize) {
    assert!(width >= 1 && width <= 32, "field wider than a dword");
    assert!(
        offset / 32 == (offset + width - 1) / 32,
        "field straddles a dword"
    );
    assert!(offset + width <= 8 * bytes, "field outside the layout");
}

/// Compile-time check of a field of whole dwords.
pub(crate) const fn check_words(offset: usize, width: usize, bytes: usize) {
    assert!(offset.is_multiple_of(32), "field off its dword boundary");
    assert!(offset + width <= 8 * bytes, "field outside the layout");
}

/// Compile-time check of a layout inside a layout.
pub(crate) const fn check_nested(offset: usize, inner: usize, bytes: usize) {
    assert!(
        offset.is_multiple_of(8),
        "nested layout off its byte boundary"
    );
    assert!(
        offset / 8 + inner <= bytes,
        "nested layout outside the layout"
    );
}

/// Declares a command layout: a byte array with one getter and two setters per field.
///
/// `field / with_field / set_field @ BIT_OFFSET : WIDTH`, where the width is 1 to 32, 64, 128 or the name of another
/// layout (then the third name is the mutable borrow). Setters panic when a value does not fit its field.
macro_rules! layout {
    (
        $(#[$meta:meta])*
        pub struct $name:ident[$bytes:literal] {
            $( $(#[$fmeta:meta])* $field:ident / $with:ident / $set:ident @ $off:literal : $width:tt, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable, bytemuck::TransparentWrapper)]
        #[repr(transparent)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Length in bytes.
            pub const BYTES: usize = $bytes;

            /// Every field with its bit offset and width, in the order of declaration.
            pub const FIELDS: &'static [$crate::layout::Field] = &[
                $( $crate::layout::Field {
                    name: stringify!($field),
                    offset: $off,
                    width: $crate::layout::layout_width!($width),
                }, )*
            ];

            /// Returns the bytes, as they travel.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }

            /// Returns the bytes, to be overwritten.
            pub fn as_bytes_mut(&mut self) -> &mut [u8] {
                &mut self.0
            }

            /// Views the first [`Self::BYTES`] bytes of `bytes`; `None` if `bytes` has fewer.
            #[must_use]
            pub fn from_bytes(bytes: &[u8]) -> Option<&Self> {
                bytemuck::try_from_bytes(bytes.get(..$bytes)?).ok()
            }

            /// As [`Self::from_bytes`], to be written to.
            pub fn from_bytes_mut(bytes: &mut [u8]) -> Option<&mut Self> {
                bytemuck::try_from_bytes_mut(bytes.get_mut(..$bytes)?).ok()
            }

            /// Copies as many bytes as `bytes` has and leaves the rest zero: for commands that omit their tail.
            #[must_use]
            pub fn from_prefix(bytes: &[u8]) -> Self {
                let mut layout = Self::default();
                let n = bytes.len().min($bytes);
                layout.0[..n].copy_from_slice(&bytes[..n]);
                layout
            }

            $( $crate::layout::layout_field! {
                $(#[$fmeta])* $bytes, $field / $with / $set @ $off : $width
            } )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self([0; $bytes])
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_struct(stringify!($name))
                    $( .field(stringify!($field), &self.$field()) )*
                    .finish()
            }
        }
    };
}

/// The width in bits that a row of `layout!` declares.
macro_rules! layout_width {
    ($width:literal) => {
        $width
    };
    ($nested:ident) => {
        8 * $nested::BYTES
    };
}

/// The accessors of one row of `layout!`.
macro_rules! layout_field {
    ($(#[$meta:meta])* $bytes:literal, $field:ident / $with:ident / $set:ident @ $off:literal : 64) => {
        $(#[$meta])*
        #[must_use]
        pub fn $field(&self) -> u64 {
            const { $crate::layout::check_words($off, 64, $bytes) };
            u64::from($crate::layout::load_bits(&self.0, $off, 32)) << 32
                | u64::from($crate::layout::load_bits(&self.0, $off + 32, 32))
        }
        #[doc = concat!("A copy with [`Self::", stringify!($field), "`] set.")]
        #[must_use]
        pub fn $with(mut self, value: u64) -> Self {
            self.$set(value);
            self
        }
        #[doc = concat!("Sets [`Self::", stringify!($field), "`].")]
        pub fn $set(&mut self, value: u64) {
            self.0[$off / 8..][..8].copy_from_slice(&value.to_be_bytes());
        }
    };
    ($(#[$meta:meta])* $bytes:literal, $field:ident / $with:ident / $set:ident @ $off:literal : 128) => {
        $(#[$meta])*
        #[must_use]
        pub fn $field(&self) -> [u8; 16] {
            const { $crate::layout::check_words($off, 128, $bytes) };
            let mut value = [0; 16];
            value.copy_from_slice(&self.0[$off / 8..][..16]);
            value
        }
        #[doc = concat!("A copy with [`Self::", stringify!($field), "`] set.")]
        #[must_use]
        pub fn $with(mut self, value: [u8; 16]) -> Self {
            self.$set(value);
            self
        }
        #[doc = concat!("Sets [`Self::", stringify!($field), "`].")]
        pub fn $set(&mut self, value: [u8; 16]) {
            self.0[$off / 8..][..16].copy_from_slice(&value);
        }
    };
    ($(#[$meta:meta])* $bytes:literal, $field:ident / $with:ident / $set:ident @ $off:literal : $width:literal) => {
        $(#[$meta])*
        #[must_use]
        pub fn $field(&self) -> u32 {
            const { $crate::layout::check_bits($off, $width, $bytes) };
            $crate::layout::load_bits(&self.0, $off, $width)
        }
        #[doc = concat!("A copy with [`Self::", stringify!($field), "`] set. Panics if the value does not fit.")]
        #[must_use]
        pub fn $with(mut self, value: u32) -> Self {
            self.$set(value);
            self
        }
        #[doc = concat!("Sets [`Self::", stringify!($field), "`]. Panics if the value does not fit.")]
        pub fn $set(&mut self, value: u32) {
            $crate::layout::store_bits(&mut self.0, $off, $width, value);
        }
    };
    ($(#[$meta:meta])* $bytes:literal, $field:ident / $with:ident / $mut:ident @ $off:literal : $nested:ident) => {
        $(#[$meta])*
        #[must_use]
        pub fn $field(&self) -> &$nested {
            const { $crate::layout::check_nested($off, $nested::BYTES, $bytes) };
            bytemuck::from_bytes(&self.0[$off / 8..][..$nested::BYTES])
        }
        #[doc = concat!("A copy with [`Self::", stringify!($field), "`] replaced.")]
        #[must_use]
        pub fn $with(mut self, value: $nested) -> Self {
            *self.$mut() = value;
            self
        }
        #[doc = concat!("[`Self::", stringify!($field), "`], to be written to.")]
        pub fn $mut(&mut self) -> &mut $nested {
            bytemuck::from_bytes_mut(&mut self.0[$off / 8..][..$nested::BYTES])
        }
    };
}

pub(crate) use {layout, layout_field, layout_width};

#[cfg(test)]
#[expect(
    unreachable_pub,
    dead_code,
    reason = "the sample layouts get every accessor"
)]
mod tests {
    extern crate std;
    use super::{load_bits, store_bits};
    use proptest::prelude::*;

    layout! {
        /// Every kind of field once.
        pub struct Inner[8] {
            /// A whole dword.
            word / with_word / set_word @ 0x20 : 32,
        }
    }

    layout! {
        /// Every kind of field once.
        pub struct Sample[0x30] {
            /// A flag.
            flag / with_flag / set_flag @ 0x1f : 1,
            /// Not byte-aligned.
            middle / with_middle / set_middle @ 0x26 : 13,
            /// Eight bytes.
            long / with_long / set_long @ 0x60 : 64,
            /// Another layout.
            inner / with_inner / inner_mut @ 0xa0 : Inner,
            /// Sixteen raw bytes.
            gid / with_gid / set_gid @ 0x100 : 128,
        }
    }

    /// Returns the slow, obvious definition: one bit at a time.
    fn oracle(buf: &[u8], offset: usize, width: usize) -> u128 {
        (offset..offset + width).fold(0, |acc, bit| {
            (acc << 1) | u128::from(buf[bit / 8] >> (7 - bit % 8) & 1)
        })
    }

    /// Returns an (offset, width) pair inside a 16-byte buffer that does not straddle a dword.
    fn field() -> impl Strategy<Value = (usize, usize)> {
        (0usize..4, 0usize..32).prop_flat_map(|(dword, bit)| {
            (1usize..=32 - bit).prop_map(move |width| (dword * 32 + bit, width))
        })
    }

    proptest! {
        #[test]
        fn loads_agree_with_the_bitwise_oracle(buf: [u8; 16], (off, width) in field()) {
            prop_assert_eq!(u128::from(load_bits(&buf, off, width)), oracle(&buf, off, width));
        }

        #[test]
        fn stores_change_only_their_own_bits(mut buf: [u8; 16], (off, width) in field(), v: u32) {
            let before = u128::from_be_bytes(buf);
            let value = v & (u32::MAX >> (32 - width));
            store_bits(&mut buf, off, width, value);
            let field_mask = (u128::MAX >> (128 - width)) << (128 - width - off);
            prop_assert_eq!(load_bits(&buf, off, width), value);
            prop_assert_eq!((before ^ u128::from_be_bytes(buf)) & !field_mask, 0);
        }

        #[test]
        fn every_kind_of_field_agrees_with_the_bitwise_oracle(a: [u8; 24], b: [u8; 24]) {
            let mut bytes = [0; 48];
            bytes[..24].copy_from_slice(&a);
            bytes[24..].copy_from_slice(&b);
            let s = Sample::from_bytes(&bytes).unwrap();
            prop_assert_eq!(u128::from(s.flag()), oracle(&bytes, 0x1f, 1));
            prop_assert_eq!(u128::from(s.middle()), oracle(&bytes, 0x26, 13));
            prop_assert_eq!(u128::from(s.long()), oracle(&bytes, 0x60, 64));
            prop_assert_eq!(u128::from(s.inner().word()), oracle(&bytes, 0xa0 + 0x20, 32));
            prop_assert_eq!(u128::from_be_bytes(s.gid()), oracle(&bytes, 0x100, 128));
            let copy = Sample::default().with_flag(s.flag()).with_middle(s.middle()).with_long(s.long())
                .with_inner(*s.inner()).with_gid(s.gid());
            prop_assert_eq!(copy.long(), s.long());
            prop_assert_eq!(copy.gid(), s.gid());
            prop_assert_eq!(copy.inner(), s.inner());
            prop_assert_eq!((copy.flag(), copy.middle()), (s.flag(), s.middle()));
        }
    }

    #[test]
    fn too_few_bytes_are_no_layout_and_a_prefix_is_padded_with_zeros() {
        assert!(Sample::from_bytes(&[0; 47]).is_none());
        assert!(Sample::from_bytes(&[0; 49]).is_some());
        let s = Sample::from_prefix(&[0xff; 13]);
        assert_eq!(s.long(), 0xff00_0000_0000_0000);
    }

    #[test]
    #[should_panic(expected = "0x2000 does not fit in 13 bits")]
    fn a_value_that_does_not_fit_is_refused() {
        let _ = Sample::default().with_middle(0x2000);
    }
}
