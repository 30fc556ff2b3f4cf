//! Big-endian integers without alignment, for segments and queue entries.

use bytemuck::{Pod, Zeroable};

macro_rules! big_endian {
    ($($(#[$meta:meta])* $name:ident($int:ty, $bytes:literal);)*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Stores `value` most significant byte first.
            #[must_use]
            pub const fn new(value: $int) -> Self {
                Self(value.to_be_bytes())
            }

            /// Returns the value in host order.
            #[must_use]
            pub const fn get(self) -> $int {
                <$int>::from_be_bytes(self.0)
            }

            /// Returns the bytes as they lie in memory.
            #[must_use]
            pub const fn bytes(self) -> [u8; $bytes] {
                self.0
            }
        }

        impl From<$int> for $name {
            fn from(value: $int) -> Self {
                Self::new(value)
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{:#x}", self.get())
            }
        }
    )*};
}

big_endian! {
    /// A big-endian `u16`.
    Be16(u16, 2);
    /// A big-endian `u32`.
    Be32(u32, 4);
    /// A big-endian `u64`.
    Be64(u64, 8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_significant_byte_comes_first() {
        assert_eq!(Be16::new(0x0102).bytes(), [1, 2]);
        assert_eq!(Be32::new(0x0102_0304).bytes(), [1, 2, 3, 4]);
        assert_eq!(
            bytemuck::cast::<[u8; 8], Be64>([0, 0, 0, 0, 0, 0, 1, 0]).get(),
            256
        );
    }
}
