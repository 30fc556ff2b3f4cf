//! The identity of a software HCA: its name, addresses and ids. All of these follow from its number and the IP addresses of its ports.

use crate::envelope::{Gid, Name};
use crate::interface::Interface;
use crate::link::{self, Link, mac_of};
use crate::partition::PkeyTable;
use crate::profile::{LAG_PORTS, Lag, Profile};
use crate::subnet::Ipv6Subnet;
use crate::wire::config::CarrierConfig;
use mlx5_prm::qp::Qpc;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Once;

/// The use of a GID table entry on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GidType {
    InfiniBand,
    RoceV1,
    RoceV2,
}

/// The constant facts about one HCA.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The number `N` of `mlx5_N`, `uverbsN` and the PCI address.
    pub(crate) index: u32,
    pub(crate) name: String,
    /// The card that the HCA looks like.
    pub(crate) profile: Profile,
    /// The link layer of all ports of the HCA.
    pub(crate) link: Link,
    /// The EUI-64 of the MAC address of the first port.
    pub(crate) node_guid: [u8; 8],
    /// The ports, from port 1 on. There are one or two.
    ports: Vec<PortIdentity>,
}

/// The constant facts about a port.
#[derive(Clone, Debug)]
pub(crate) struct PortIdentity {
    /// The number of the port, from 1 on.
    pub(crate) number: u8,
    pub(crate) ip: Ipv4Addr,
    pub(crate) link: Link,
    /// The port has 2^`lmc` LIDs, and as many addresses from [`Self::ip`] on.
    pub(crate) lmc: u8,
    pub(crate) pkeys: PkeyTable,
    /// The locally administered MAC address, which is unique because the IP address is unique. The port GUID is its EUI-64.
    pub(crate) mac: [u8; 6],
    /// The GID table: on Ethernet the GIDs of [`crate::envelope`], on `InfiniBand` one GID.
    pub(crate) gids: Vec<(GidType, Gid)>,
    /// The interface of this machine that carries the port's packets, if there is one.
    pub(crate) interface: Option<Interface>,
    /// The interface of the port's address in an IPv6 subnet, if there is one.
    ipv6_interface: Option<Interface>,
    /// True if packets that are too large for the interface travel in fragments.
    has_fragments: bool,
}

/// The most ports of an HCA.
pub(crate) const MAX_PORTS: u8 = 2;

impl Identity {
    /// The PCI vendor: Mellanox.
    pub(crate) const PCI_VENDOR: u16 = 0x15b3;
    /// The vendor id of `ibv_query_device`: the OUI of Mellanox.
    pub(crate) const VENDOR_ID: u32 = 0x02c9;
    /// The number of indices that have a PCI address (32 per bus).
    pub(crate) const MAX_INDEX: u32 = 256 * 32;

    /// Makes the identity of an HCA with one port, which has the address `ip`.
    pub(crate) fn new(index: u32, ip: Ipv4Addr) -> Self {
        Self {
            index,
            name: format!("mlx5_{index}"),
            profile: Profile::default(),
            link: Link::Ethernet,
            node_guid: link::guid(ip),
            ports: vec![PortIdentity::new(1, ip)],
        }
    }

    /// Returns the number of the character device, as in `st_rdev`: the number that the kernel gives `uverbsN`.
    pub(crate) fn character_device(&self) -> u64 {
        libc::makedev(231, 192 + self.index)
    }

    /// Returns the PCI address, as `domain:bus:slot.function`.
    pub(crate) fn pci_address(&self) -> String {
        format!("0000:{:02x}:{:02x}.0", self.index / 32, self.index % 32)
    }

    /// Returns this HCA as another card.
    pub(crate) fn with_profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// Returns this HCA with one more port, at `ip`.
    pub(crate) fn with_port(mut self, ip: Ipv4Addr) -> Self {
        let number = self.last_port() + 1;
        self.ports.push(PortIdentity::new(number, ip));
        self
    }

    /// Returns this HCA with an address of an IPv6 subnet in the GID table of each port. Without a subnet nothing changes.
    pub(crate) fn with_subnet(mut self, subnet: Option<Ipv6Subnet>) -> Self {
        for port in &mut self.ports {
            let gid = subnet.map(|subnet| Name::Ipv6(subnet).gid(port.ip));
            port.gids.extend(gid.map(|gid| (GidType::RoceV2, gid)));
        }
        self
    }

    /// Returns this HCA with the interface of each port: the interface that has the port's address, or the interface that the carrier
    /// names.
    pub(crate) fn with_interfaces(
        mut self,
        carrier: &CarrierConfig,
        subnet: Option<Ipv6Subnet>,
    ) -> Self {
        for port in &mut self.ports {
            match carrier {
                CarrierConfig::Udp => {
                    port.interface = Interface::of(port.ip.into());
                    let ipv6 = subnet.map(|subnet| subnet.address(port.ip));
                    port.ipv6_interface = ipv6.and_then(|ip| Interface::of(ip.into()));
                }
                CarrierConfig::Packet { interface } => {
                    port.interface = Interface::named(interface.clone());
                    port.ipv6_interface = port.interface.clone();
                    port.has_fragments = false;
                }
                CarrierConfig::Memory(_) | CarrierConfig::Frames { .. } => {}
            }
        }
        self
    }

    /// Returns this HCA with these partition keys at each port.
    pub(crate) fn with_pkeys(mut self, pkeys: &PkeyTable) -> Self {
        for port in &mut self.ports {
            port.pkeys = pkeys.clone();
        }
        self
    }

    /// Returns this HCA with 2^`lmc` LIDs of each port.
    pub(crate) fn with_lmc(mut self, lmc: u8) -> Self {
        for port in &mut self.ports {
            port.lmc = lmc;
        }
        self
    }

    /// Returns this HCA on another link layer.
    pub(crate) fn with_link(mut self, link: Link) -> Self {
        self.link = link;
        for port in &mut self.ports {
            port.link = link;
            if link.is_infiniband() {
                port.gids = vec![(GidType::InfiniBand, link::gid(port.ip))];
            }
        }
        self
    }

    /// Returns all ports.
    pub(crate) fn ports(&self) -> &[PortIdentity] {
        &self.ports
    }

    /// Returns the number of the last port, which is also the number of ports.
    pub(crate) fn last_port(&self) -> u8 {
        self.ports.last().map_or(0, |port| port.number)
    }

    /// Returns the port with this number.
    pub(crate) fn port(&self, number: u8) -> Option<&PortIdentity> {
        self.ports.get(usize::from(number).checked_sub(1)?)
    }

    /// Returns the first port.
    pub(crate) fn first(&self) -> &PortIdentity {
        &self.ports[0]
    }

    /// Returns the port of a QP. A QP that names no port yet counts as a QP of the first port.
    pub(crate) fn port_of(&self, qpc: &Qpc) -> &PortIdentity {
        self.port(port_number(qpc)).unwrap_or(self.first())
    }

    /// Returns whether `ip` is an address of this HCA.
    pub(crate) fn has(&self, ip: Ipv4Addr) -> bool {
        self.ports.iter().any(|port| port.has(ip))
    }

    /// Returns the mode of the link aggregation group; `None` if there is no such group. Only Ethernet is aggregated.
    pub(crate) fn lag(&self) -> Option<Lag> {
        match self.link {
            Link::Ethernet => self.profile.facts().lag,
            Link::InfiniBand => None,
        }
    }

    /// Returns whether the card has the fewest capabilities ([`Profile::ConnectX5`]).
    pub(crate) fn is_lean(&self) -> bool {
        self.profile.facts().lean
    }

    /// Returns the number of ports of the link aggregation group; 0 if there is no such group.
    pub(crate) fn lag_ports(&self) -> u8 {
        self.lag().map_or(0, |_| LAG_PORTS)
    }

    /// Returns the firmware version as sysfs and tools print it.
    pub(crate) fn firmware(&self) -> String {
        let [major, minor, patch] = self.profile.facts().firmware;
        format!("{major}.{minor}.{patch}")
    }
}

/// Returns the number of the port of a QP; 1 for a QP that names no port yet.
pub(crate) fn port_number(qpc: &Qpc) -> u8 {
    let [.., number] = qpc.primary_address_path().vhca_port_num().to_be_bytes();
    number.max(1)
}

impl PortIdentity {
    fn new(number: u8, ip: Ipv4Addr) -> Self {
        let [link_local, mapped] = [Name::LinkLocal, Name::Ip].map(|name| name.gid(ip));
        Self {
            number,
            ip,
            link: Link::Ethernet,
            lmc: 0,
            pkeys: PkeyTable::default(),
            mac: mac_of(ip),
            gids: vec![
                (GidType::RoceV1, link_local),
                (GidType::RoceV2, link_local),
                (GidType::RoceV1, mapped),
                (GidType::RoceV2, mapped),
            ],
            interface: None,
            ipv6_interface: None,
            has_fragments: true,
        }
    }

    /// Returns the interface of the GID table entry at `index`. A port of `InfiniBand` has none.
    pub(crate) fn interface_of(&self, index: usize) -> Option<&Interface> {
        /// The index of the IPv6 GID, which comes after the GIDs of the IPv4 and MAC addresses.
        const IPV6_INDEX: usize = 4;
        match self.link {
            Link::InfiniBand => None,
            Link::Ethernet if index == IPV6_INDEX => self.ipv6_interface.as_ref(),
            Link::Ethernet => self.interface.as_ref(),
        }
    }

    /// Returns the path MTU of a QP that asks for `wanted`, as a code like [`Self::mtu`]. Frames are not cut into fragments, so on a
    /// carrier of frames the result is at most what the interface takes. The first time that the result is smaller than `wanted`, a line on
    /// stderr says so.
    pub(crate) fn path_mtu(&self, wanted: u32) -> u32 {
        static ONCE: Once = Once::new();
        let most = u32::from(self.mtu());
        let Some(interface) = self
            .interface
            .as_ref()
            .filter(|_| !self.has_fragments && wanted > most)
        else {
            return wanted;
        };
        ONCE.call_once(|| {
            eprintln!(
                "softhca: a path MTU of {} bytes becomes {}: interface {} takes packets of {} bytes",
                128 << wanted,
                128 << most,
                interface.name,
                interface.mtu
            );
        });
        most
    }

    /// Returns the largest MTU of RoCE whose packets fit the port's interface. The result is the code that the PRM and verbs use: 1 is 256
    /// bytes, 5 is 4096.
    pub(crate) fn mtu(&self) -> u8 {
        /// The code `IB_MTU_4096`.
        const LARGEST: u8 = 5;
        /// The bytes of headers, as `iboe_get_mtu` of Linux counts them: GRH, UDP, BTH, the headers of XRC and of atomics, ICRC.
        const HEADERS: u32 = 40 + 8 + 12 + 4 + 28 + 4;
        let Some(interface) = &self.interface else {
            return LARGEST;
        };
        let room = interface.mtu.saturating_sub(HEADERS);
        (2..=LARGEST)
            .rev()
            .find(|code| 128 << code <= room)
            .unwrap_or(1)
    }

    /// Returns the partition key of a QP.
    pub(crate) fn pkey(&self, qpc: &Qpc) -> u16 {
        let index = usize::try_from(qpc.primary_address_path().pkey_index());
        let found = index.ok().and_then(|index| self.pkeys.keys().get(index));
        // No command takes an index that the table does not have.
        found.copied().unwrap_or(PkeyTable::DEFAULT_PKEY)
    }

    /// Returns the address that belongs to the LID with these path bits.
    pub(crate) fn address(&self, path_bits: u8) -> Ipv4Addr {
        link::address_with(self.ip, path_bits)
    }

    /// Returns whether `ip` is an address of this port.
    pub(crate) fn has(&self, ip: Ipv4Addr) -> bool {
        link::first_address(ip, self.lmc) == self.ip
    }

    /// Returns the path bits of `own`, which is an address of this port.
    pub(crate) fn path_bits_of(&self, own: Ipv4Addr) -> u8 {
        let [.., last] = own.octets();
        let [.., first] = self.ip.octets();
        last ^ first
    }

    /// Returns the GID by which peers name this port.
    pub(crate) fn gid(&self) -> Gid {
        match self.link {
            Link::Ethernet => Name::Ip.gid(self.ip),
            Link::InfiniBand => link::gid(self.ip),
        }
    }

    /// Returns the first LID of the port; 0 on Ethernet.
    pub(crate) fn lid(&self) -> u16 {
        match self.link {
            Link::Ethernet => 0,
            Link::InfiniBand => link::low_bits(self.ip),
        }
    }

    /// Returns the LID of the subnet manager; 0 on Ethernet.
    pub(crate) fn sm_lid(&self) -> u16 {
        match self.link {
            Link::Ethernet => 0,
            Link::InfiniBand => link::SM_LID,
        }
    }
}

/// Bytes that print as 16-bit groups with colons, as sysfs prints GUIDs and GIDs.
pub(crate) struct Groups<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Groups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if at > 0 && at % 2 == 0 {
                f.write_str(":")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gid_3_is_the_mapped_ip_address() {
        let identity = Identity::new(0, Ipv4Addr::new(127, 1, 2, 3));
        let (kind, gid) = identity.first().gids[3];
        assert_eq!(kind, GidType::RoceV2);
        assert_eq!(
            gid,
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 1, 2, 3]
        );
    }

    #[test]
    fn the_link_local_gid_holds_the_mac_address() {
        let identity = Identity::new(0, Ipv4Addr::new(127, 1, 2, 3));
        assert_eq!(
            Groups(&identity.first().gids[1].1).to_string(),
            "fe80:0000:0000:0000:0000:7fff:fe01:0203"
        );
        assert_eq!(
            Groups(&identity.node_guid).to_string(),
            "0200:7fff:fe01:0203"
        );
    }

    #[test]
    fn a_qp_is_for_the_port_that_its_path_names() {
        let ips = [1, 2].map(|last| Ipv4Addr::new(127, 1, 2, last));
        let identity = Identity::new(0, ips[0]).with_port(ips[1]);
        for (named, port) in [(0, 1), (1, 1), (2, 2)] {
            let mut qpc = Qpc::default();
            qpc.primary_address_path_mut().set_vhca_port_num(named);
            let found = identity.port_of(&qpc);
            assert_eq!((found.number, found.ip), (port, ips[usize::from(port) - 1]));
        }
        assert!(ips.iter().all(|ip| identity.has(*ip)));
        assert!(identity.port(0).is_none() && identity.port(3).is_none());
    }

    #[test]
    fn the_mtu_of_a_port_is_the_largest_whose_packets_fit_the_interface() {
        let mut identity = Identity::new(0, Ipv4Addr::LOCALHOST);
        assert_eq!(identity.first().mtu(), 5, "of no interface");
        // These are the codes of Linux, except that an MTU too small for 256 bytes gives 256 bytes.
        for (mtu, code) in [
            (0, 1),
            (576, 1),
            (607, 1),
            (608, 2),
            (1500, 3),
            (2200, 4),
            (4191, 4),
            (4192, 5),
            (9000, 5),
        ] {
            identity.ports[0].interface = Some(Interface {
                name: "eth0".into(),
                index: 2,
                mtu,
            });
            let port = &mut identity.ports[0];
            assert_eq!(port.mtu(), code, "{mtu}");
            // UDP packets travel in fragments, frames do not.
            assert_eq!(port.path_mtu(5), 5, "{mtu}");
            port.has_fragments = false;
            assert_eq!(port.path_mtu(5), code.into(), "{mtu}");
            assert_eq!(port.path_mtu(1), 1, "{mtu}");
            port.has_fragments = true;
        }
    }

    #[test]
    fn pci_addresses_are_distinct() {
        let address = |index| Identity::new(index, Ipv4Addr::LOCALHOST).pci_address();
        assert_eq!(address(0), "0000:00:00.0");
        assert_eq!(address(31), "0000:00:1f.0");
        assert_eq!(address(32), "0000:01:00.0");
        assert_eq!(address(Identity::MAX_INDEX - 1), "0000:ff:1f.0");
    }
}
