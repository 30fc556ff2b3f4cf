//! The types that may appear in an `abi_struct!`.

// UNSAFETY: `DevicePtr` has a phantom type parameter, for which bytemuck cannot derive `Pod`.
#![expect(
    unsafe_code,
    reason = "Pod of a transparent u64 with a phantom parameter"
)]

use core::fmt;
use core::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

/// A type that has the same layout in Rust and in C++.
pub trait AbiType {
    /// Returns the C++ declaration of a member called `name`, without the semicolon.
    fn declare(name: &str) -> String;
}

/// A struct made by `abi_struct!`.
pub trait AbiStruct: AbiType + Pod {
    /// Its name, the same in both languages.
    const NAME: &'static str;
    /// Doc comment, line by line.
    const DOC: &'static [&'static str];
    /// Fields, in order.
    fn fields() -> Vec<AbiField>;
}

/// An open set of `u32` values made by `abi_enum!`.
pub trait AbiEnum: AbiType {
    /// Its name, the same in both languages.
    const NAME: &'static str;
    /// Doc comment, line by line.
    const DOC: &'static [&'static str];
    /// Doc comment, C++ name and number of each value.
    const VALUES: &'static [(&'static [&'static str], &'static str, u32)];
}

/// One field of an [`AbiStruct`].
#[derive(Debug)]
pub struct AbiField {
    /// Doc comment, line by line.
    pub doc: &'static [&'static str],
    /// Name, the same in both languages.
    pub name: &'static str,
    /// C++ declaration.
    pub declaration: String,
    /// Byte offset.
    pub offset: usize,
}

/// A device address that a kernel may dereference; the host never does.
#[repr(transparent)]
pub struct DevicePtr<T> {
    addr: u64,
    target: PhantomData<fn() -> T>,
}

impl<T> DevicePtr<T> {
    /// No address.
    pub const NULL: Self = Self::new(0);

    /// The pointer to device address `addr`.
    #[must_use]
    pub const fn new(addr: u64) -> Self {
        Self {
            addr,
            target: PhantomData,
        }
    }

    /// Returns the device address.
    #[must_use]
    pub const fn addr(self) -> u64 {
        self.addr
    }
}

// SAFETY: transparent over `u64`, for which zero is a value.
unsafe impl<T> Zeroable for DevicePtr<T> {}
// SAFETY: transparent over `u64`: any bits are a value, no padding, Copy and 'static (the phantom is a function type).
unsafe impl<T: 'static> Pod for DevicePtr<T> {}

impl<T> Clone for DevicePtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DevicePtr<T> {}

impl<T> Default for DevicePtr<T> {
    fn default() -> Self {
        Self::NULL
    }
}

impl<T> PartialEq for DevicePtr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.addr == other.addr
    }
}

impl<T> Eq for DevicePtr<T> {}

impl<T> From<u64> for DevicePtr<T> {
    fn from(addr: u64) -> Self {
        Self::new(addr)
    }
}

impl<T> fmt::Debug for DevicePtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.addr)
    }
}

impl<T: AbiType> AbiType for DevicePtr<T> {
    fn declare(name: &str) -> String {
        T::declare(&format!("*{name}"))
    }
}

impl<T: AbiType, const N: usize> AbiType for [T; N] {
    fn declare(name: &str) -> String {
        T::declare(&format!("{name}[{N}]"))
    }
}

macro_rules! abi_scalar {
    ($($rust:ty => $cpp:literal),* $(,)?) => {
        $(impl AbiType for $rust {
            fn declare(name: &str) -> String {
                format!(concat!($cpp, " {}"), name)
            }
        })*
    };
}

abi_scalar! {
    u8 => "uint8_t", u16 => "uint16_t", u32 => "uint32_t", u64 => "uint64_t",
    i32 => "int32_t", i64 => "int64_t", f32 => "float",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_read_like_cpp() {
        assert_eq!(u32::declare("a"), "uint32_t a");
        assert_eq!(<[u8; 64]>::declare("cqe"), "uint8_t cqe[64]");
        assert_eq!(DevicePtr::<u64>::declare("flags"), "uint64_t *flags");
        assert_eq!(
            DevicePtr::<DevicePtr<u64>>::declare("rows"),
            "uint64_t **rows"
        );
        assert_eq!(<[DevicePtr<u64>; 2]>::declare("rows"), "uint64_t *rows[2]");
    }
}
