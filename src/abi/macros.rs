//! `abi_struct!`, `abi_enum!` and `abi_const!`: one definition, read by Rust and rendered for C++.

/// A `#[repr(C)]` struct without padding whose layout C++ checks. `align(N)` after the doc comment raises its alignment.
macro_rules! abi_struct {
    (
        $(#[doc = $doc:literal])*
        $(align($align:literal))?
        pub struct $name:ident {
            $( $(#[doc = $fdoc:literal])* pub $field:ident: $ty:ty, )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(C $(, align($align))?)]
        pub struct $name {
            $( $(#[doc = $fdoc])* pub $field: $ty, )*
        }

        impl Default for $name {
            fn default() -> Self {
                bytemuck::Zeroable::zeroed()
            }
        }

        impl $crate::abi::AbiType for $name {
            fn declare(name: &str) -> String {
                format!(concat!(stringify!($name), " {}"), name)
            }
        }

        impl $crate::abi::AbiStruct for $name {
            const NAME: &'static str = stringify!($name);
            const DOC: &'static [&'static str] = &[$($doc),*];

            fn fields() -> Vec<$crate::abi::AbiField> {
                vec![$($crate::abi::AbiField {
                    doc: &[$($fdoc),*],
                    name: stringify!($field),
                    declaration: <$ty as $crate::abi::AbiType>::declare(stringify!($field)),
                    offset: core::mem::offset_of!(Self, $field),
                }),*]
            }
        }
    };
}

/// An open set of `u32` values: a newtype with constants in Rust, an `enum class` in C++. A kernel may store a number that has
/// no name here, so it is never a Rust `enum`.
macro_rules! abi_enum {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $( $(#[doc = $vdoc:literal])* $rust:ident / $cpp:ident = $value:literal, )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl $name {
            $( $(#[doc = $vdoc])* pub const $rust: Self = Self($value); )*

            /// Its name, if it has one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $value => Some(stringify!($cpp)), )*
                    _ => None,
                }
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({})"), self.0),
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Debug::fmt(self, f)
            }
        }

        impl $crate::abi::AbiType for $name {
            fn declare(name: &str) -> String {
                format!(concat!(stringify!($name), " {}"), name)
            }
        }

        impl $crate::abi::AbiEnum for $name {
            const NAME: &'static str = stringify!($name);
            const DOC: &'static [&'static str] = &[$($doc),*];
            const VALUES: &'static [(&'static [&'static str], &'static str, u32)] =
                &[$( (&[$($vdoc),*], stringify!($cpp), $value), )*];
        }
    };
}

/// Constants of both languages. Each group also gives `fn constants()` for the header.
macro_rules! abi_const {
    (
        $( $(#[doc = $doc:literal])* pub const $name:ident: $ty:ident = $value:expr; )*
    ) => {
        $( $(#[doc = $doc])* pub const $name: $ty = $value; )*

        /// The constants of this file, for the header.
        pub(super) fn constants() -> Vec<$crate::abi::header::Constant> {
            vec![$($crate::abi::header::Constant {
                doc: &[$($doc),*],
                declaration: <$ty as $crate::abi::AbiType>::declare(stringify!($name)),
                value: u64::from($name),
            }),*]
        }
    };
}
