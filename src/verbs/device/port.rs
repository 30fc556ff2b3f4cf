//! The port of a device.

// UNSAFETY: asks libibverbs about the port.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::fmt;

use crate::sys::bindings::{
    IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_PORT_ACTIVE, ibv_port_attr,
};
pub use crate::topology::LinkLayer;
use crate::verbs::device::list::DeviceInfo;
use crate::verbs::device::open::OpenDevice;
use crate::verbs::error::VerbsError;
use crate::verbs::limits::UNICAST_LIDS;

/// The largest payload of a packet. The values are those of the QP context.
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
    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// Returns the MTU with this value in a QP context.
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

/// The active port, with its properties at the time when the device was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortInfo {
    /// Port number, from 1.
    pub number: u8,
    /// The link layer that carries the port's packets.
    pub link_layer: LinkLayer,
    /// The port's first LID, whose lowest `lmc` bits are 0; 0 on Ethernet.
    pub lid: u16,
    /// log2 of the number of the port's LIDs, 0 to 7.
    pub lmc: u8,
    /// True if every packet needs a GRH. On Ethernet every packet has the addresses of a GRH.
    pub grh_required: bool,
    /// Megabits per second of all lanes together; 0 if the codes of width and speed are unknown.
    pub speed_mbps: u32,
    /// Partition keys by index. On Ethernet the key that every port has.
    pub pkeys: Vec<u16>,
    /// The largest MTU that the link carries now.
    pub active_mtu: Mtu,
    /// Length of the GID table, valid or not.
    pub gid_table_length: usize,
}

impl PortInfo {
    /// Reads port `number` of the device, which the list shows as `info`.
    pub(in crate::verbs) fn query(
        device: &OpenDevice,
        info: &DeviceInfo,
        number: u8,
    ) -> Result<Self, VerbsError> {
        let attr = match Self::ask(device, number) {
            Ok(attr) => attr,
            Err(errno) => return Err(Self::missing(device, info, number, errno)),
        };
        Self::check(device, info, number, &attr)
    }

    /// Returns the port's attributes from the device, or an errno.
    fn ask(device: &OpenDevice, number: u8) -> Result<ibv_port_attr, i32> {
        // The exported function fills the fields up to `flags` of a buffer that may be longer. No field after `flags` is used.
        let mut attr = std::mem::MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: the context is open; the buffer is at least as long as what the function writes.
        let errno = unsafe {
            device
                .rdma()
                .ibv_query_port(device.raw(), number, attr.as_mut_ptr().cast())
        };
        match errno {
            // SAFETY: all fields are integers and the buffer was zeroed, so every bit is initialised and valid.
            0 => Ok(unsafe { attr.assume_init() }),
            errno => Err(errno),
        }
    }

    /// Returns the largest number of bytes of a message by port `number`.
    pub(in crate::verbs) fn most_message(
        device: &OpenDevice,
        number: u8,
    ) -> Result<u32, VerbsError> {
        let attr = Self::ask(device, number);
        attr.map(|attr| attr.max_msg_sz)
            .map_err(|errno| device.failed("ibv_query_port", errno))
    }

    /// Returns the number of entries of the GID tables of all ports. libibverbs lists the entries of all ports, and refuses a buffer that
    /// is too short.
    pub(in crate::verbs) fn gids_of_all(device: &OpenDevice) -> usize {
        let ports = (1..=u8::MAX).map_while(|port| Self::ask(device, port).ok());
        let lengths = ports.map(|attr| usize::try_from(attr.gid_tbl_len).unwrap_or(MAX_GIDS));
        lengths.map(|length| length.min(MAX_GIDS)).sum()
    }

    /// Returns why the device says nothing about port `number`: it may have fewer ports.
    fn missing(device: &OpenDevice, info: &DeviceInfo, number: u8, errno: i32) -> VerbsError {
        let answers = |port: &u8| Self::ask(device, *port).is_ok();
        match (1..number).take_while(answers).last() {
            Some(most) => {
                let name = &info.name;
                let limit = match most {
                    1 => format!("{name}:1"),
                    most => format!("{name}:1 to {name}:{most}"),
                };
                VerbsError::argument("port", format!("{name}:{number}"), limit)
            }
            None => device.failed("ibv_query_port", errno),
        }
    }

    /// Returns index and value of the partition key `wanted`; without `wanted`, of the port's first key. If the port has the key both as a
    /// full and as a limited member, the full membership counts.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] with the table, if the port has no such key.
    pub fn pkey(&self, wanted: Option<u16>) -> Result<(u16, u16), VerbsError> {
        let table = || {
            (0u16..)
                .zip(self.pkeys.iter().copied())
                .filter(|(_, key)| *key != 0)
        };
        let found = match wanted {
            None => table().next(),
            Some(wanted) => table()
                .filter(|(_, key)| (key ^ wanted) & !FULL_MEMBER == 0)
                .max_by_key(|(index, key)| (*key, std::cmp::Reverse(*index))),
        };
        // A port of Ethernet has one key, whether sysfs shows it or not.
        let found = match (self.link_layer, wanted.unwrap_or(DEFAULT_PKEY)) {
            (LinkLayer::Ethernet, DEFAULT_PKEY) => found.or(Some((0, DEFAULT_PKEY))),
            _ => found,
        };
        found.ok_or_else(|| {
            let keys: Vec<String> = table().map(|(_, key)| format!("{key:#06x}")).collect();
            let value = wanted.map_or("the first".to_owned(), |key| format!("{key:#06x}"));
            let limit = format!("one of the port's {}: {}", keys.len(), keys.join(", "));
            VerbsError::argument("partition key", value, limit)
        })
    }

    /// Returns the LID with these path bits. Ports of Ethernet have no path bits.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for path bits that the port's LMC does not allow.
    pub fn lid_with(&self, path_bits: u8) -> Result<u16, VerbsError> {
        let most = (1u16 << self.lmc) - 1;
        match self.link_layer {
            LinkLayer::Ethernet => Ok(self.lid),
            LinkLayer::InfiniBand if u16::from(path_bits) > most => {
                let limit = format!("0 to {most}, as the port's LMC is {}", self.lmc);
                Err(VerbsError::argument("path bits", path_bits, limit))
            }
            LinkLayer::InfiniBand => Ok(self.lid | u16::from(path_bits)),
        }
    }

    fn check(
        device: &OpenDevice,
        info: &DeviceInfo,
        number: u8,
        attr: &ibv_port_attr,
    ) -> Result<Self, VerbsError> {
        let link_layer = match u32::from(attr.link_layer) {
            IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
            other => {
                let needed = "1 (InfiniBand) or 2 (Ethernet)";
                return Err(device.lacks("link_layer", other, needed));
            }
        };
        if attr.state != IBV_PORT_ACTIVE {
            return Err(device.lacks("port state", attr.state, active(info, number, link_layer)));
        }
        let active_mtu = Mtu::from_code(attr.active_mtu)
            .ok_or_else(|| device.lacks("active_mtu", attr.active_mtu, "1 to 5"))?;
        let gid_table_length = usize::try_from(attr.gid_tbl_len)
            .ok()
            .filter(|length| *length <= MAX_GIDS)
            .ok_or_else(|| {
                device.lacks("gid_tbl_len", attr.gid_tbl_len, format!("0 to {MAX_GIDS}"))
            })?;
        let lid = (attr.lid, attr.lmc);
        if link_layer == LinkLayer::InfiniBand && !UNICAST_LIDS.contains(&lid.0) {
            let needed = "0x1 to 0xbfff: a subnet manager gives a port its LID";
            return Err(device.lacks("lid", format!("{:#x}", lid.0), needed));
        }
        if lid.1 > 7 {
            return Err(device.lacks("lmc", lid.1, "0 to 7"));
        }
        Ok(Self {
            number,
            link_layer,
            lid: lid.0,
            lmc: lid.1,
            grh_required: attr.flags & GRH_REQUIRED != 0,
            speed_mbps: speed_mbps(attr.active_width, attr.active_speed),
            pkeys: info.pkeys(number, attr.pkey_tbl_len),
            active_mtu,
            gid_table_length,
        })
    }
}

/// The length of the longest GID table that this library accepts from a device.
const MAX_GIDS: usize = 1 << 16;

/// The membership bit of a partition key. A port without the bit talks only to ports with it. IBTA, "Partition Keys".
pub(crate) const FULL_MEMBER: u16 = 0x8000;

/// The partition key of every port of Ethernet, and of most ports of InfiniBand.
const DEFAULT_PKEY: u16 = 0xffff;

/// `IBV_QPF_GRH_REQUIRED` of `ibv_port_attr::flags`.
const GRH_REQUIRED: u8 = 1;

/// Returns what a port must be, with a question about what may keep it from that.
fn active(info: &DeviceInfo, number: u8, link_layer: LinkLayer) -> String {
    let port = format!("4 (active): is the cable of port {number} in");
    match (link_layer, info.interface(number, 0)) {
        (LinkLayer::InfiniBand, _) => format!("{port}, and a subnet manager there?"),
        (LinkLayer::Ethernet, Some(interface)) => {
            format!("{port}, and its interface {interface} up (ip link set {interface} up)?")
        }
        (LinkLayer::Ethernet, None) => format!("{port}, and its interface up (ip link)?"),
    }
}

/// Returns the speed of a link with these codes. IBTA, "PortInfo": LinkWidthActive, LinkSpeedActive and LinkSpeedExtActive, as
/// `ibv_query_port` returns them.
fn speed_mbps(width: u8, speed: u8) -> u32 {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    let lane = match speed {
        1 => 2_500,
        2 => 5_000,
        4 | 8 => 10_000,
        16 => 14_000,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    };
    lanes * lane
}

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

    fn port(link_layer: LinkLayer, pkeys: &[u16]) -> PortInfo {
        PortInfo {
            number: 1,
            link_layer,
            lid: 1,
            lmc: 0,
            grh_required: false,
            speed_mbps: 0,
            pkeys: pkeys.to_vec(),
            active_mtu: Mtu::B4096,
            gid_table_length: 1,
        }
    }

    #[test]
    fn path_bits_name_one_of_the_lids_of_a_port() {
        let lid = |lmc, path_bits| {
            let base = port(LinkLayer::InfiniBand, &[]);
            let of = PortInfo {
                lid: 0x4580,
                lmc,
                ..base
            };
            of.lid_with(path_bits).map_err(|error| error.to_string())
        };
        assert_eq!(lid(0, 0), Ok(0x4580));
        assert_eq!(lid(3, 7), Ok(0x4587));
        assert_eq!(lid(7, 127), Ok(0x45ff));
        for (lmc, path_bits, most) in [(0, 1, 0), (3, 8, 7), (7, 128, 127), (7, 255, 127)] {
            let told = format!(
                "path bits is {path_bits}; it must be 0 to {most}, as the port's LMC is {lmc}"
            );
            assert_eq!(lid(lmc, path_bits), Err(told));
        }
        let ethernet = port(LinkLayer::Ethernet, &[]);
        assert_eq!(ethernet.lid_with(5).unwrap(), ethernet.lid);
    }

    #[test]
    fn a_partition_key_is_found_by_its_value() {
        let ib = port(LinkLayer::InfiniBand, &[0x7fff, 0x0001, 0, 0x8001, 0xffff]);
        assert_eq!(ib.pkey(None).unwrap(), (0, 0x7fff));
        assert_eq!(ib.pkey(Some(0xffff)).unwrap(), (4, 0xffff));
        assert_eq!(ib.pkey(Some(0x0001)).unwrap(), (3, 0x8001));
        let refused = ib.pkey(Some(0x8002)).unwrap_err().to_string();
        assert!(
            refused.contains("0x8002") && refused.contains("0x8001"),
            "{refused}"
        );
        assert!(ib.pkey(Some(0)).is_err(), "an empty entry is no key");
        assert!(port(LinkLayer::InfiniBand, &[]).pkey(None).is_err());
        let ethernet = port(LinkLayer::Ethernet, &[]);
        assert_eq!(ethernet.pkey(None).unwrap(), (0, 0xffff));
        assert!(ethernet.pkey(Some(0x8001)).is_err());
    }

    #[test]
    fn the_speed_of_a_link_is_that_of_all_its_lanes() {
        assert_eq!(speed_mbps(2, 32), 100_000, "EDR of 4 lanes");
        assert_eq!(speed_mbps(2, 64), 200_000, "HDR of 4 lanes");
        assert_eq!(speed_mbps(2, 128), 400_000, "NDR of 4 lanes");
        assert_eq!(speed_mbps(1, 1), 2_500, "SDR of one");
        for (width, speed) in [(0, 32), (3, 32), (2, 0), (2, 3)] {
            assert_eq!(speed_mbps(width, speed), 0, "no such code");
        }
    }
}
