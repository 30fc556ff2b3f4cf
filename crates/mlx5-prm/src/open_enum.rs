//! `open_enum!`: numbers that a device or peer chooses. Every value is representable, known ones have names.

macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub struct $name:ident($int:ty) {
            $( $(#[$vmeta:meta])* $variant:ident = $value:literal, )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $int);

        impl $name {
            $( $(#[$vmeta])* pub const $variant: Self = Self($value); )*

            /// Returns the manual's name of the value, if it has one here.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $value => Some(stringify!($variant)), )*
                    _ => None,
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name} ({:#x})", self.0),
                    None => write!(f, "{:#x}", self.0),
                }
            }
        }
    };
}

pub(crate) use open_enum;

#[cfg(test)]
mod tests {
    extern crate std;
    use crate::cmd::{Opcode, Status};
    use std::string::ToString;

    #[test]
    fn known_values_print_their_name_and_unknown_ones_their_number() {
        assert_eq!(Opcode::CREATE_QP.to_string(), "CREATE_QP (0x500)");
        assert_eq!(Status(0x77).to_string(), "0x77");
    }
}
