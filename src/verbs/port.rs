//! The port of a device.

// UNSAFETY: asks libibverbs about the port.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::fmt;

use super::context::{OpenDevice, PORT};
use super::error::VerbsError;
use crate::sys::bindings::{IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE, ibv_port_attr};

/// Most bytes of payload in one packet. The values are those of the QP context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1,024 bytes.
    B1024 = 3,
    /// 2,048 bytes.
    B2048 = 4,
    /// 4,096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// Number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The MTU with this value in a QP context.
    #[must_use]
    pub(crate) const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::B256),
            2 => Some(Self::B512),
            3 => Some(Self::B1024),
            4 => Some(Self::B2048),
            5 => Some(Self::B4096),
            _ => None,
        }
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

/// The port at the time when its device was opened: active, Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortInfo {
    /// Port number, from 1.
    pub number: u8,
    /// Largest MTU that the link carries now.
    pub active_mtu: Mtu,
    /// Length of the GID table, valid entries or not.
    pub gid_table_length: usize,
}

impl PortInfo {
    pub(super) fn query(device: &OpenDevice) -> Result<Self, VerbsError> {
        // The exported function fills the fields up to `flags` of a buffer that may be longer; none behind it is used.
        let mut attr = std::mem::MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: the context is open; the buffer is at least as long as what the function writes.
        let errno = unsafe {
            device
                .rdma()
                .ibv_query_port(device.raw(), PORT, attr.as_mut_ptr().cast())
        };
        if errno != 0 {
            return Err(device.failed("ibv_query_port", errno));
        }
        // SAFETY: all fields are integers and the buffer was zeroed, so every bit is initialised and valid.
        let attr = unsafe { attr.assume_init() };
        Self::check(device, &attr)
    }

    fn check(device: &OpenDevice, attr: &ibv_port_attr) -> Result<Self, VerbsError> {
        if u32::from(attr.link_layer) != IBV_LINK_LAYER_ETHERNET {
            return Err(device.lacks("link_layer", attr.link_layer, "2 (Ethernet)"));
        }
        if attr.state != IBV_PORT_ACTIVE {
            return Err(device.lacks("port state", attr.state, "4 (active)"));
        }
        let active_mtu = Mtu::from_code(attr.active_mtu)
            .ok_or_else(|| device.lacks("active_mtu", attr.active_mtu, "1 to 5"))?;
        let gid_table_length = usize::try_from(attr.gid_tbl_len)
            .ok()
            .filter(|length| *length <= MAX_GIDS)
            .ok_or_else(|| {
                device.lacks("gid_tbl_len", attr.gid_tbl_len, format!("0 to {MAX_GIDS}"))
            })?;
        Ok(Self {
            number: PORT,
            active_mtu,
            gid_table_length,
        })
    }
}

/// Longest GID table that is believed.
const MAX_GIDS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes_and_bytes_agree() {
        for code in 1..=5 {
            let mtu = Mtu::from_code(code).unwrap();
            assert_eq!((mtu as u32, mtu.bytes()), (code, 256 << (code - 1)));
        }
        assert_eq!((Mtu::from_code(0), Mtu::from_code(6)), (None, None));
    }
}
