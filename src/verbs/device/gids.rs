//! The GID table of a port: the port's addresses, and the choice of the address from which packets go.

// UNSAFETY: reads the GID table through libibverbs.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::net::Ipv6Addr;

use crate::config::GidChoice;
use crate::sys::bindings::{IBV_GID_TYPE_ROCE_V2, ibv_gid, ibv_gid_entry};
use crate::topology::{self, GidFact};
use crate::verbs::device::open::OpenDevice;
use crate::verbs::device::port::{LinkLayer, PortInfo};
use crate::verbs::error::VerbsError;
use crate::verbs::gid::Gid;

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// Index in the table, by which packets name their source.
    pub index: u32,
    /// The 128 bits by which packets name this entry.
    pub gid: Gid,
    /// True if packets from this entry are RoCEv2, that is UDP.
    pub roce_v2: bool,
}

impl GidEntry {
    /// Returns the valid entries of the table of `port`.
    pub(in crate::verbs) fn query(
        device: &OpenDevice,
        port: &PortInfo,
    ) -> Result<Vec<Self>, VerbsError> {
        let empty = ibv_gid_entry {
            gid: ibv_gid { raw: [0; 16] },
            gid_index: 0,
            port_num: 0,
            gid_type: 0,
            ndev_ifindex: 0,
        };
        let mut entries = vec![empty; PortInfo::gids_of_all(device)];
        // SAFETY: the context is open, and `entries` has room for `entries.len()` entries of the size stated.
        let count = unsafe {
            device.rdma()._ibv_query_gid_table(
                device.raw(),
                entries.as_mut_ptr(),
                entries.len(),
                0,
                size_of::<ibv_gid_entry>(),
            )
        };
        let Ok(count) = usize::try_from(count) else {
            // A negative result is minus errno.
            let errno = i32::try_from(-count).unwrap_or(libc::EIO);
            return Err(device.failed("ibv_query_gid_table", errno));
        };
        entries.truncate(count);
        entries.retain(|entry| entry.port_num == u32::from(port.number));
        Ok(entries.iter().map(Self::from_entry).collect())
    }

    /// Chooses the entry of [`Context::own_gid`](crate::verbs::Context::own_gid).
    pub(in crate::verbs) fn choose(entries: &[Self], link_layer: LinkLayer) -> Option<Self> {
        let is_usable = |entry: &&Self| entry.roce_v2 || link_layer == LinkLayer::InfiniBand;
        let usable = entries.iter().filter(is_usable);
        let key = |entry: &&Self| {
            let gid = &entry.gid;
            match link_layer {
                LinkLayer::Ethernet => (gid.is_link_local(), gid.ipv4().is_none(), entry.index),
                LinkLayer::InfiniBand => (false, false, entry.index),
            }
        };
        usable.min_by_key(key).copied()
    }

    /// Returns the RoCEv2 entry from which packets reach `remote`. It is of the same address family, since a packet has only one family.
    pub(in crate::verbs) fn towards(entries: &[Self], remote: &Gid) -> Option<Self> {
        let is_ipv4 = remote.ipv4().is_some();
        let same = entries
            .iter()
            .filter(|entry| entry.gid.ipv4().is_some() == is_ipv4);
        let same: Vec<Self> = same.copied().collect();
        Self::choose(&same, LinkLayer::Ethernet)
    }

    /// Returns the best entry that `choice` allows. None if it allows all entries. libibverbs knows a network interface by its number,
    /// sysfs by its name.
    pub(in crate::verbs) fn named(
        entries: &[Self],
        choice: &GidChoice,
        device: &str,
        port: &PortInfo,
    ) -> Result<Option<Self>, VerbsError> {
        if *choice == GidChoice::Auto {
            return Ok(None);
        }
        let facts = topology::gids(device, port.number);
        Self::named_among(entries, choice, device, port.link_layer, &facts).map(Some)
    }

    fn named_among(
        entries: &[Self],
        choice: &GidChoice,
        device: &str,
        link_layer: LinkLayer,
        facts: &[GidFact],
    ) -> Result<Self, VerbsError> {
        let interface = |entry: &Self| {
            let fact = facts.iter().find(|fact| fact.index == entry.index);
            fact.and_then(|fact| fact.interface.as_deref())
        };
        let allowed = entries.iter().filter(|entry| {
            let address = Ipv6Addr::from(entry.gid.0);
            choice.allows(entry.index, address, interface(entry))
        });
        let allowed: Vec<Self> = allowed.copied().collect();
        if let Some(best) = Self::choose(&allowed, link_layer) {
            return Ok(best);
        }
        let line = |entry: &Self| {
            let kind = match (link_layer, entry.roce_v2) {
                (LinkLayer::InfiniBand, _) => "InfiniBand",
                (LinkLayer::Ethernet, true) => "RoCE v2",
                (LinkLayer::Ethernet, false) => "RoCE v1",
            };
            let interface = interface(entry).unwrap_or("no interface");
            format!("{} {} ({kind}, {interface})", entry.index, entry.gid)
        };
        let kind = match link_layer {
            LinkLayer::Ethernet => "an entry of RoCE v2",
            LinkLayer::InfiniBand => "an entry",
        };
        let table: Vec<_> = entries.iter().map(line).collect();
        Err(VerbsError::argument(
            "GID",
            choice,
            format!("{kind} in the table of {device}: {}", table.join("; ")),
        ))
    }

    fn from_entry(entry: &ibv_gid_entry) -> Self {
        Self {
            index: entry.gid_index,
            // SAFETY: every bit pattern of the union is 16 bytes.
            gid: Gid(unsafe { entry.gid.raw }),
            roce_v2: entry.gid_type == IBV_GID_TYPE_ROCE_V2,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn entry(index: u32, address: &str, roce_v2: bool) -> GidEntry {
        let address: Ipv6Addr = address.parse().unwrap();
        GidEntry {
            index,
            gid: Gid(address.octets()),
            roce_v2,
        }
    }

    #[test]
    fn the_source_is_roce_v2_routable_and_ipv4_if_possible() {
        let table = [
            entry(0, "fe80::1", false),
            entry(1, "fe80::1", true),
            entry(2, "::ffff:10.0.0.1", false),
            entry(3, "::ffff:10.0.0.1", true),
            entry(4, "2001:db8::1", true),
            entry(5, "::ffff:10.0.0.2", true),
        ];
        let choose = |table: &[GidEntry]| GidEntry::choose(table, LinkLayer::Ethernet);
        assert_eq!(choose(&table), Some(table[3]));
        assert_eq!(choose(&table[..2]), Some(table[1]));
        assert_eq!(choose(&table[4..5]), Some(table[4]));
        assert_eq!(choose(&table[..1]), None);
        let towards = |remote: &GidEntry| GidEntry::towards(&table, &remote.gid);
        assert_eq!(towards(&table[5]), Some(table[3]));
        assert_eq!(towards(&table[4]), Some(table[4]));
        assert_eq!(
            GidEntry::towards(&table[..4], &table[4].gid),
            Some(table[1])
        );
        assert_eq!(GidEntry::towards(&table[..2], &table[3].gid), None);
    }

    #[test]
    fn the_source_on_infiniband_is_the_first_gid() {
        let table = [entry(2, "fe80::2", false), entry(0, "fe80::1", false)];
        let chosen = GidEntry::choose(&table, LinkLayer::InfiniBand);
        assert_eq!(chosen, Some(table[1]));
        assert_eq!(table[0].gid.subnet_prefix(), 0xfe80_0000_0000_0000);
    }

    #[test]
    fn a_gid_is_named_by_index_subnet_or_interface() {
        let table = [
            entry(0, "fe80::1", false),
            entry(1, "fe80::1", true),
            entry(2, "::ffff:10.0.0.1", false),
            entry(3, "::ffff:10.0.0.1", true),
            entry(5, "::ffff:10.1.0.1", true),
        ];
        let fact = |entry: &GidEntry| GidFact {
            interface: Some(if entry.index == 5 { "ens4" } else { "ens3" }.to_owned()),
            ..GidFact::unknown(entry.index)
        };
        let facts = table.each_ref().map(fact);
        let named = |text: &str| {
            let choice = text.parse().unwrap();
            GidEntry::named_among(&table, &choice, "mlx5_0", LinkLayer::Ethernet, &facts)
        };
        for (text, index) in [
            ("3", 3),
            ("1", 1),
            ("10.1.0.0/16", 5),
            ("10.0.0.0/8", 3),
            ("ens4", 5),
            ("ens3", 3),
            ("fe80::/10", 1),
        ] {
            assert_eq!(named(text).unwrap().index, index, "{text}");
        }
        // These are an index of RoCE v1, an unused index, and addresses that the table lacks.
        for text in ["2", "4", "10.2.0.0/16", "ens5", "fd00::/8"] {
            let error = named(text).unwrap_err().to_string();
            let table = "0 fe80::1 (RoCE v1, ens3); 1 fe80::1 (RoCE v2, ens3); 2 ::ffff:10.0.0.1 (RoCE v1, ens3)";
            assert!(error.starts_with(&format!("GID is {text}; ")), "{error}");
            assert!(error.contains(table), "{error}");
        }
    }

    #[test]
    fn an_ipv4_gid_prints_its_address() {
        let gid = entry(3, "::ffff:127.1.2.3", true).gid;
        assert_eq!(gid.to_string(), "::ffff:127.1.2.3");
        assert_eq!(gid.ipv4(), Some(Ipv4Addr::new(127, 1, 2, 3)));
    }
}
