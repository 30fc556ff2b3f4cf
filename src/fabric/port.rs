//! What a rank publishes of its ports, whether two ports fit each other, and the path between them.

use serde::{Deserialize, Serialize};

use crate::config::{GrhUse, PathConfig};
use crate::verbs::{
    AddressVector, FULL_MEMBER, Gid, GlobalRoute, InfinibandAddress, LinkLayer, Mtu, OwnPort,
    PathAttr, RoceAddress, UNICAST_LIDS, VerbsError,
};

/// A port, as its rank publishes it to all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortRecord {
    link_layer: LinkLayer,
    /// The LID that the rank sends from, and that peers send to; 0 on Ethernet.
    lid: u16,
    gid: [u8; 16],
    /// Index of `gid` in the GID table of the port. Other ranks do not use it.
    gid_index: u32,
    /// Code of the port's MTU.
    mtu: u32,
    speed_mbps: u32,
    pkey: u16,
    /// log2 of the number of reads and atomics that the port takes at once.
    log_reads: u8,
    /// True if the port takes only packets with a GRH.
    grh_required: bool,
}

/// Why two ports do not reach each other: what differs, with both values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    pub(crate) what: &'static str,
    pub(crate) own: String,
    pub(crate) theirs: String,
}

impl PortRecord {
    /// Returns the record of `own`, a port of an open device. Paths from it go as `config` says.
    ///
    /// # Errors
    /// If the port has no usable GID, or does not have the partition key.
    pub(crate) fn of(own: &OwnPort, config: &PathConfig) -> Result<Self, VerbsError> {
        let port = own.port();
        let source = own.source_gid(config.gid_index)?;
        Ok(Self {
            link_layer: port.link_layer,
            lid: port.lid_with(config.path_bits)?,
            gid: source.gid.0,
            gid_index: source.index,
            mtu: mtu_of(port.active_mtu, config)? as u32,
            speed_mbps: port.speed_mbps,
            pkey: port.pkey(config.pkey)?.1,
            log_reads: log_reads_of(own.log_reads(), config),
            grh_required: port.grh_required,
        })
    }

    /// Returns log2 of the number of reads and atomics that a QP between both ports may have under way at once.
    pub(crate) fn reads_with(&self, theirs: &Self) -> u8 {
        self.log_reads.min(theirs.log_reads)
    }

    /// Returns whether both records have the same addresses.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        (self.link_layer, self.lid, self.gid) == (other.link_layer, other.lid, other.gid)
    }

    /// Returns the speed of the port in Mbit/s, or 0 if it is unknown.
    pub(crate) const fn speed(&self) -> u32 {
        self.speed_mbps
    }

    /// Checks that a rank can have written this record. The error says which value is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        if Mtu::from_code(self.mtu).is_none() {
            return Err(format!("MTU code {}; it must be 1 to 5", self.mtu));
        }
        if self.log_reads > 7 {
            return Err(format!("log_reads {}; it must be 0 to 7", self.log_reads));
        }
        if self.gid == [0; 16] {
            return Err("GID ::; it must be an address".to_owned());
        }
        if self.link_layer == LinkLayer::InfiniBand && !UNICAST_LIDS.contains(&self.lid) {
            return Err(format!("LID {:#x}; it must be 0x1 to 0xbfff", self.lid));
        }
        Ok(())
    }

    /// Checks whether packets from this port reach `theirs`.
    pub(crate) fn fits(&self, theirs: &Self, config: &PathConfig) -> Result<(), Unfit> {
        let unfit = |what, own: String, theirs: String| Err(Unfit { what, own, theirs });
        if self.link_layer != theirs.link_layer {
            let [own, theirs] = [self, theirs].map(|port| port.link_layer.to_string());
            return unfit("link layer", own, theirs);
        }
        match self.link_layer {
            LinkLayer::Ethernet => {
                let [own_gid, their_gid] = [self.gid, theirs.gid].map(Gid);
                let family = |gid: Gid| match gid.ipv4() {
                    Some(address) => format!("IPv4 ({address})"),
                    None => format!("IPv6 ({gid})"),
                };
                if own_gid.ipv4().is_some() != their_gid.ipv4().is_some() {
                    return unfit("address family", family(own_gid), family(their_gid));
                }
            }
            LinkLayer::InfiniBand if config.grh != GrhUse::Never => {}
            LinkLayer::InfiniBand => {
                let [own, their] = [self, theirs].map(Self::subnet);
                if own != their {
                    let what = "subnet prefix (paths have no GRH)";
                    return unfit(what, format!("{own:#018x}"), format!("{their:#018x}"));
                }
                let [own, their] = [self, theirs].map(|port| port.grh_required);
                if own || their {
                    let what = "need of a GRH (paths have none)";
                    return unfit(what, own.to_string(), their.to_string());
                }
            }
        }
        let same_partition = (self.pkey ^ theirs.pkey) & !FULL_MEMBER == 0;
        if !same_partition || (self.pkey | theirs.pkey) & FULL_MEMBER == 0 {
            let key = |key: u16| match key & FULL_MEMBER {
                0 => format!("{key:#06x} (limited)"),
                _ => format!("{key:#06x}"),
            };
            return unfit("partition key", key(self.pkey), key(theirs.pkey));
        }
        Ok(())
    }

    /// Returns the path to `theirs`, which fits, on this rail. QP and packet numbers are set later.
    pub(crate) fn path(&self, theirs: &Self, config: &PathConfig, class: u8, rail: u8) -> PathAttr {
        let gid = Gid(theirs.gid);
        let address: AddressVector = match self.link_layer {
            LinkLayer::Ethernet => RoceAddress::new(gid)
                .with_gid_index(Some(self.gid_index))
                .with_traffic_class(class)
                .with_priority(config.priority)
                .with_hop_limit(config.hop_limit)
                .into(),
            LinkLayer::InfiniBand => {
                let route = GlobalRoute::new(gid)
                    .with_gid_index(self.gid_index)
                    .with_traffic_class(class)
                    .with_hop_limit(config.hop_limit);
                InfinibandAddress::new(theirs.lid)
                    .with_service_level(config.service_level)
                    .with_path_bits(config.path_bits)
                    .with_grh(self.needs_route(theirs, config).then_some(route))
                    .into()
            }
        };
        PathAttr::new(0, address, 0)
            .with_mtu(Mtu::from_code(theirs.mtu.min(self.mtu)))
            .with_min_rnr_timer(config.min_rnr_timer)
            .with_rail(rail)
    }

    fn needs_route(&self, theirs: &Self, config: &PathConfig) -> bool {
        let is_needed =
            self.subnet() != theirs.subnet() || self.grh_required || theirs.grh_required;
        match config.grh {
            GrhUse::Always => true,
            GrhUse::Never => false,
            GrhUse::Auto => is_needed,
        }
    }

    fn subnet(&self) -> u64 {
        Gid(self.gid).subnet_prefix()
    }
}

/// Returns the port's MTU, or the smaller one that the configuration asks for.
pub(crate) fn mtu_of(active: Mtu, config: &PathConfig) -> Result<Mtu, VerbsError> {
    let Some(bytes) = config.mtu else {
        return Ok(active);
    };
    let mut all = (1..=5).filter_map(Mtu::from_code);
    let asked = all.find(|mtu| mtu.bytes() == u32::from(bytes));
    match asked.filter(|mtu| *mtu <= active) {
        Some(mtu) => Ok(mtu),
        None => {
            let limit = format!("256, 512, 1024, 2048 or 4096, and at most the port's {active}");
            Err(VerbsError::argument("MTU", bytes, limit))
        }
    }
}

/// Returns log2 of the reads that the device takes at once, or of the smaller number that the configuration asks for.
fn log_reads_of(most: u8, config: &PathConfig) -> u8 {
    let asked = config.read_depth.and_then(u8::checked_ilog2);
    let asked = asked.and_then(|log| u8::try_from(log).ok());
    asked.map_or(most, |asked| asked.min(most))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn gid(address: &str) -> [u8; 16] {
        address.parse::<Ipv6Addr>().unwrap().octets()
    }

    fn ethernet() -> PortRecord {
        PortRecord {
            link_layer: LinkLayer::Ethernet,
            lid: 0,
            gid: gid("::ffff:10.0.0.1"),
            gid_index: 3,
            mtu: 5,
            speed_mbps: 100_000,
            pkey: 0xffff,
            log_reads: 4,
            grh_required: true,
        }
    }

    fn infiniband() -> PortRecord {
        PortRecord {
            link_layer: LinkLayer::InfiniBand,
            lid: 7,
            gid: gid("fe80::1"),
            gid_index: 0,
            grh_required: false,
            ..ethernet()
        }
    }

    #[test]
    fn a_smaller_mtu_and_fewer_reads_may_be_asked_for_and_not_more() {
        let default = PathConfig::default();
        let mtu = |bytes| mtu_of(Mtu::B1024, &default.with_mtu(bytes));
        assert_eq!(mtu(None).unwrap(), Mtu::B1024);
        assert_eq!(mtu(Some(256)).unwrap(), Mtu::B256);
        assert_eq!(mtu(Some(1024)).unwrap(), Mtu::B1024);
        for bad in [0, 257, 2048] {
            let text = mtu(Some(bad)).unwrap_err().to_string();
            assert!(text.starts_with(&format!("MTU is {bad}; ")), "{text}");
        }
        let reads = |depth| log_reads_of(4, &default.with_read_depth(depth));
        let depths = [None, Some(1), Some(2), Some(16), Some(128), Some(0)];
        assert_eq!(depths.map(reads), [4, 0, 1, 4, 4, 4]);
        let (few, many) = (
            ethernet(),
            PortRecord {
                log_reads: 2,
                ..ethernet()
            },
        );
        assert_eq!((few.reads_with(&many), many.reads_with(&few)), (2, 2));
    }

    fn unfit(own: &PortRecord, theirs: &PortRecord, config: &PathConfig) -> Option<String> {
        let unfit = own.fits(theirs, config).err()?;
        Some(format!("{}: {} / {}", unfit.what, unfit.own, unfit.theirs))
    }

    #[test]
    fn ports_that_do_not_reach_each_other_are_refused_with_both_values() {
        let config = PathConfig::default();
        let (eth, ib) = (ethernet(), infiniband());
        assert_eq!(unfit(&eth, &eth, &config), None);
        assert_eq!(unfit(&ib, &ib, &config), None);
        let refused = unfit(&ib, &eth, &config).unwrap();
        assert_eq!(refused, "link layer: InfiniBand / Ethernet");
        let v6 = PortRecord {
            gid: gid("2001:db8::1"),
            ..eth
        };
        let refused = unfit(&eth, &v6, &config).unwrap();
        assert_eq!(
            refused,
            "address family: IPv4 (10.0.0.1) / IPv6 (2001:db8::1)"
        );
        assert_eq!(unfit(&v6, &v6, &config), None);
        let far = PortRecord {
            gid: gid("fec0::1"),
            ..ib
        };
        assert_eq!(unfit(&ib, &far, &config), None, "a GRH leads there");
        let without = config.with_grh(GrhUse::Never);
        let refused = unfit(&ib, &far, &without).unwrap();
        assert!(refused.starts_with("subnet prefix"), "{refused}");
        let demands = PortRecord {
            grh_required: true,
            ..ib
        };
        assert!(unfit(&ib, &demands, &without).is_some());
        let keys = |own: u16, theirs: u16| {
            let of = |pkey| PortRecord { pkey, ..ib };
            unfit(&of(own), &of(theirs), &config)
        };
        assert_eq!(keys(0x8001, 0x0001), None, "one full member is enough");
        assert_eq!(
            keys(0x8001, 0x8002).unwrap(),
            "partition key: 0x8001 / 0x8002"
        );
        assert_eq!(
            keys(0x0001, 0x0001).unwrap(),
            "partition key: 0x0001 (limited) / 0x0001 (limited)"
        );
    }

    #[test]
    fn a_record_that_cannot_be_is_refused() {
        for good in [ethernet(), infiniband()] {
            good.check().unwrap();
        }
        let bad = [
            PortRecord {
                mtu: 0,
                ..ethernet()
            },
            PortRecord {
                mtu: 6,
                ..ethernet()
            },
            PortRecord {
                log_reads: 8,
                ..ethernet()
            },
            PortRecord {
                gid: [0; 16],
                ..ethernet()
            },
            PortRecord {
                lid: 0,
                ..infiniband()
            },
            PortRecord {
                lid: 0xc000,
                ..infiniband()
            },
        ];
        for record in bad {
            assert!(record.check().is_err(), "{record:?}");
        }
    }

    #[test]
    fn a_path_has_a_grh_where_one_is_needed_or_wanted() {
        let config = PathConfig::default();
        let ib = infiniband();
        let way = |own: &PortRecord, theirs: &PortRecord, config: &PathConfig| {
            let path = own.path(theirs, config, 9, 0);
            let AddressVector::InfiniBand(address) = path.address else {
                panic!("not of InfiniBand: {path:?}");
            };
            address.grh
        };
        let route = |theirs: &PortRecord, config: &PathConfig| way(&ib, theirs, config);
        let far = PortRecord {
            gid: gid("fec0::1"),
            ..ib
        };
        assert_eq!(route(&ib, &config), None);
        let there = route(&far, &config).unwrap();
        assert_eq!(there.remote_gid, Gid(far.gid));
        assert_eq!(there.traffic_class, 9);
        assert!(route(&ib, &config.with_grh(GrhUse::Always)).is_some());
        let demands = PortRecord {
            grh_required: true,
            ..ib
        };
        for (own, theirs) in [(&ib, &demands), (&demands, &ib), (&demands, &demands)] {
            let there = way(own, theirs, &config).unwrap();
            assert_eq!(there.remote_gid, Gid(ib.gid));
            assert_eq!(way(own, theirs, &config.with_grh(GrhUse::Never)), None);
        }
    }

    #[test]
    fn a_path_has_the_path_bits_of_the_configuration() {
        let bits = |own: PortRecord, config: PathConfig| {
            let path = own.path(&own, &config, 0, 0);
            match path.address {
                AddressVector::InfiniBand(address) => Some((address.remote_lid, address.path_bits)),
                AddressVector::RoceV2(_) => None,
            }
        };
        let config = PathConfig::default();
        assert_eq!(bits(infiniband(), config), Some((7, 0)));
        assert_eq!(bits(infiniband(), config.with_path_bits(5)), Some((7, 5)));
        assert_eq!(bits(ethernet(), config.with_path_bits(5)), None);
    }

    #[test]
    fn a_path_has_the_smaller_mtu() {
        let small = PortRecord {
            mtu: 3,
            ..ethernet()
        };
        let path = ethernet().path(&small, &PathConfig::default(), 0, 5);
        assert_eq!((path.mtu, path.rail), (Some(Mtu::B1024), 5));
    }
}
