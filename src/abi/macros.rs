//! `abi_struct!`, `abi_enum!` and `abi_const!`: one definition, read by Rust and rendered for C++.

/// Defines a `#[repr(C)]` struct without padding, for the parameters of a kernel; C++ checks the layout of the header that
/// [`abi::header`](crate::abi::header) renders of it.
///
/// `align(N)` after the doc comment raises its alignment. Fields are of types that implement [`AbiType`](crate::abi::AbiType):
/// numbers, [`DevicePtr`](crate::abi::DevicePtr), arrays, other structs of this kind. The crate that uses the macro depends on
/// `bytemuck` with its feature `derive`, which refuses a struct with implicit padding.
///
/// ```
/// use warpverbs::abi::{DevicePtr, TeamContext, header};
///
/// warpverbs::abi_struct! {
///     /// What `hello` takes.
///     pub struct HelloParams {
///         /// The team.
///         pub team: DevicePtr<TeamContext>,
///         /// How many.
///         pub count: u64,
///     }
/// }
///
/// let items = vec![header::struct_item::<HelloParams>()];
/// let text = header::file("Rendered from src/abi.rs.", "mine", &["<warpverbs/abi.h>"], items);
/// assert!(text.contains("#include <warpverbs/abi.h>"));
/// assert!(text.contains("static_assert(offsetof(HelloParams, count) == 8);"));
/// ```
#[macro_export]
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

/// Defines an open set of `u32` values: a newtype with constants in Rust, an `enum class` in C++. A kernel may store a number that
/// has no name here, so it is never a Rust `enum`.
///
/// ```
/// warpverbs::abi_enum! {
///     /// A colour.
///     pub enum Colour {
///         /// Red.
///         RED / red = 0,
///         /// Blue.
///         BLUE / blue = 1,
///     }
/// }
///
/// assert_eq!(Colour(1), Colour::BLUE);
/// assert_eq!(Colour::BLUE.name(), Some("blue"));
/// ```
#[macro_export]
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

/// Defines constants of both languages, once in a module, and `fn constants()` for
/// [`header::constant_items`](crate::abi::header::constant_items).
///
/// ```
/// warpverbs::abi_const! {
///     /// Most items of a call.
///     pub const MAX_ITEMS: u32 = 32;
/// }
///
/// # fn main() {
/// assert_eq!(constants()[0].value, u64::from(MAX_ITEMS));
/// # }
/// ```
#[macro_export]
macro_rules! abi_const {
    (
        $( $(#[doc = $doc:literal])* pub const $name:ident: $ty:ident = $value:expr; )*
    ) => {
        $( $(#[doc = $doc])* pub const $name: $ty = $value; )*

        /// Returns the constants of this file, for the header.
        pub(crate) fn constants() -> Vec<$crate::abi::header::Constant> {
            vec![$($crate::abi::header::Constant {
                doc: &[$($doc),*],
                declaration: <$ty as $crate::abi::AbiType>::declare(stringify!($name)),
                value: u64::from($name),
            }),*]
        }
    };
}
