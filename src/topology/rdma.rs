//! RDMA devices and their ports.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::pci::{self, PciAddress};
use super::sysfs::{self, Sysfs, Unread};

/// One RDMA device, as `class/infiniband` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RdmaDevice {
    /// The kernel's name of the device, `mlx5_0`.
    pub name: String,
    /// The PCI function of the device. None for a software device.
    pub pci: Option<PciAddress>,
    /// The ports of the device, by number.
    pub ports: Vec<RdmaPort>,
}

/// One port of an RDMA device. A field is `None` if it could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RdmaPort {
    /// The number of the port, from 1.
    pub number: u8,
    /// The state of the port, which says whether it carries traffic.
    pub state: Option<PortState>,
    /// The link layer of the port.
    pub link_layer: Option<LinkLayer>,
    /// The rate of the port, in megabits per second.
    pub rate_mbps: Option<u32>,
}

/// The state of a port. The states are those of the InfiniBand specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// The port has no link.
    Down,
    /// The link is up, and the subnet manager has not configured the port.
    Initialize,
    /// The subnet manager has configured the port.
    Armed,
    /// The port carries traffic.
    Active,
    /// The port has just lost its link.
    ActiveDefer,
}

/// The link layer of a port: what carries its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkLayer {
    /// Ethernet, which carries RoCEv2.
    Ethernet,
    /// InfiniBand: a port has a LID, and GIDs count only if packets have a GRH.
    InfiniBand,
}

/// An entry of a port's GID table that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidFact {
    /// The index of the entry in the table.
    pub index: u32,
    /// The GID. An IPv4 address is stored as `::ffff:a.b.c.d`.
    pub gid: Ipv6Addr,
    /// The kind of packets that have this GID as their source.
    pub kind: Option<GidKind>,
    /// The network interface that the GID belongs to.
    pub interface: Option<String>,
}

/// The kind of packets that have a GID as their source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// Packets of InfiniBand or RoCE v1.
    IbOrRoceV1,
    /// Packets of RoCE v2, over UDP.
    RoceV2,
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::InfiniBand => "InfiniBand",
        })
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Initialize => "initialize (no subnet manager has been there)",
            Self::Armed => "armed",
            Self::Active => "active",
            Self::ActiveDefer => "active defer (the link has gone)",
        })
    }
}

impl PortState {
    /// Parses a state as sysfs writes it: `4: ACTIVE`.
    fn parse(text: &str) -> Option<Self> {
        match text.split_once(':')?.0 {
            "1" => Some(Self::Down),
            "2" => Some(Self::Initialize),
            "3" => Some(Self::Armed),
            "4" => Some(Self::Active),
            "5" => Some(Self::ActiveDefer),
            _ => None,
        }
    }
}

impl LinkLayer {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "Ethernet" => Some(Self::Ethernet),
            "InfiniBand" => Some(Self::InfiniBand),
            _ => None,
        }
    }
}

impl GidKind {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "IB/RoCE v1" => Some(Self::IbOrRoceV1),
            "RoCE v2" => Some(Self::RoceV2),
            _ => None,
        }
    }
}

impl GidFact {
    /// Returns an entry of which only the index is known.
    #[cfg(test)]
    pub(crate) fn unknown(index: u32) -> Self {
        Self {
            index,
            gid: Ipv6Addr::UNSPECIFIED,
            kind: None,
            interface: None,
        }
    }
}

impl RdmaDevice {
    /// Returns the port of this number.
    #[must_use]
    pub fn port(&self, number: u8) -> Option<&RdmaPort> {
        self.ports.iter().find(|port| port.number == number)
    }
}

/// Parses a rate as sysfs writes it, `400 Gb/sec (4X NDR)` or `2.5 Gb/sec (1X SDR)`. Returns megabits per second.
fn rate(text: &str) -> Option<u32> {
    let number = text.split_once(" Gb/sec")?.0;
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let tenth = sysfs::decimal(tenth).filter(|_| tenth.len() == 1)?;
    let whole = sysfs::decimal(whole)?.checked_mul(1000)?;
    whole.checked_add(tenth * 100)
}

/// Returns the RDMA devices of a machine, by name: `mlx5_2` before `mlx5_10`.
pub(super) fn devices(sysfs: &Sysfs, unread: &mut Vec<Unread>) -> Vec<RdmaDevice> {
    let directory = sysfs.rdma.join("class/infiniband");
    let mut names = sysfs::names(&directory, unread);
    names.sort_by(|one, other| by_number(one).cmp(&by_number(other)));
    let device = |name: String| {
        let directory = directory.join(&name);
        let place = sysfs::target(&directory.join("device"), unread);
        RdmaDevice {
            pci: place.and_then(|place| pci::function_of(sysfs, &place)),
            ports: ports(&directory.join("ports"), unread),
            name,
        }
    };
    names.into_iter().map(device).collect()
}

/// Returns the key by which names are sorted: the name without the digits at its end, and their number. So `mlx5_10` comes after
/// `mlx5_2`.
pub(super) fn by_number(name: &str) -> (&str, u64, &str) {
    let head = name.trim_end_matches(|last: char| last.is_ascii_digit());
    let number = name[head.len()..].parse().unwrap_or(u64::MAX);
    (head, number, name)
}

fn ports(directory: &Path, unread: &mut Vec<Unread>) -> Vec<RdmaPort> {
    let numbers = sysfs::names(directory, unread);
    let number = |name: &String| {
        let number = sysfs::decimal(name).filter(|_| !name.starts_with('0'))?;
        u8::try_from(number).ok()
    };
    let mut numbers: Vec<u8> = numbers.iter().filter_map(number).collect();
    numbers.sort_unstable();
    let port = |number: u8| {
        let file = |name: &str| directory.join(number.to_string()).join(name);
        RdmaPort {
            number,
            state: sysfs::fact(&file("state"), "a port state", unread, PortState::parse),
            link_layer: sysfs::fact(
                &file("link_layer"),
                "a link layer",
                unread,
                LinkLayer::parse,
            ),
            rate_mbps: sysfs::fact(&file("rate"), "a rate in Gb/sec", unread, rate),
        }
    };
    numbers.into_iter().map(port).collect()
}

/// Returns the entries of a port's GID table that are in use, by index. The kernel refuses to read the attributes of an entry that
/// is not in use.
pub(super) fn gids(sysfs: &Sysfs, device: &str, port: u8) -> Vec<GidFact> {
    if device.contains('/') {
        return Vec::new();
    }
    let port = format!("class/infiniband/{device}/ports/{port}");
    let port = sysfs.rdma.join(port);
    let indices = sysfs::names(&port.join("gids"), &mut Vec::new());
    let mut indices: Vec<u32> = indices
        .iter()
        .filter_map(|name| sysfs::decimal(name))
        .collect();
    indices.sort_unstable();
    let text = |file: String| sysfs::text(&port.join(file)).ok().flatten();
    let entry = |index: u32| {
        let gid: Ipv6Addr = text(format!("gids/{index}"))?.parse().ok()?;
        let kind = text(format!("gid_attrs/types/{index}"));
        let is_used = !gid.is_unspecified() && !is_prefix_alone(gid);
        is_used.then(|| GidFact {
            index,
            gid,
            kind: kind.as_deref().and_then(GidKind::parse),
            interface: text(format!("gid_attrs/ndevs/{index}")),
        })
    };
    indices.into_iter().filter_map(entry).collect()
}

/// Returns whether a GID has the prefix of its subnet and zeros in place of a port's number, as unused entries of InfiniBand have.
fn is_prefix_alone(gid: Ipv6Addr) -> bool {
    gid.octets()[8..] == [0; 8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_in_megabits() {
        for (text, megabits) in [
            ("400 Gb/sec (4X NDR)", 400_000),
            ("2.5 Gb/sec (1X SDR)", 2_500),
            ("0 Gb/sec", 0),
        ] {
            assert_eq!(rate(text), Some(megabits), "{text}");
        }
        for text in [
            "",
            "400",
            "400 Mb/sec",
            "-1 Gb/sec",
            "4294968 Gb/sec",
            "1.25 Gb/sec",
            "x Gb/sec",
            ". Gb/sec",
        ] {
            assert_eq!(rate(text), None, "{text}");
        }
    }

    #[test]
    fn names_are_ordered_by_their_numbers() {
        let mut names = [
            "mlx5_10",
            "mlx5_bond_1",
            "mlx5_2",
            "rocep1s0",
            "mlx5_bond_0",
            "mlx5_bond",
        ];
        names.sort_by(|one, other| by_number(one).cmp(&by_number(other)));
        let sorted = [
            "mlx5_2",
            "mlx5_10",
            "mlx5_bond",
            "mlx5_bond_0",
            "mlx5_bond_1",
            "rocep1s0",
        ];
        assert_eq!(names, sorted);
    }

    #[test]
    fn a_state_is_its_number() {
        assert_eq!(PortState::parse("4: ACTIVE"), Some(PortState::Active));
        assert_eq!(PortState::parse("1: DOWN"), Some(PortState::Down));
        for text in ["", "ACTIVE", "6: LATER", "04: ACTIVE", "4 ACTIVE"] {
            assert_eq!(PortState::parse(text), None, "{text}");
        }
    }
}
