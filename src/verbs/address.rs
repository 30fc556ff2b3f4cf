//! Address vectors, which say how packets reach the port of a peer.
//!
//! InfiniBand Architecture Specification, "Address Vector"; PRM "Address Path Structure" (`struct mlx5_ifc_ads_bits` in
//! rdma-core).

use mlx5_prm::qpc::Ads;

use crate::config::setters;
use crate::verbs::context::Context;
use crate::verbs::device::port::LinkLayer;
use crate::verbs::error::VerbsError;
use crate::verbs::gid::Gid;
use crate::verbs::limits::{UNICAST_LIDS, in_range};
use crate::verbs::mac::{Way, resolve_mac};
use crate::verbs::memory::pd::Pd;

/// The way of packets to the port of a peer. Values of a peer or a store go in here, so all of them are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressVector {
    /// By RoCEv2, over UDP.
    RoceV2(RoceAddress),
    /// By LID in an InfiniBand fabric, with or without a GRH.
    InfiniBand(InfinibandAddress),
}

/// The way of packets to the port of a peer over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoceAddress {
    /// GID of the peer, which is its IP address.
    pub remote_gid: Gid,
    /// Index of the own GID. Default: the context's RoCEv2 GID of the address family of `remote_gid`.
    pub gid_index: Option<u32>,
    /// IP traffic class; its upper six bits are the DSCP. Default 0.
    pub traffic_class: u8,
    /// Ethernet priority, 0 to 7. Default 0.
    pub priority: u8,
    /// IP time to live, at least 1. Default 64.
    pub hop_limit: u8,
    /// Ethernet address of the next hop to `remote_gid`. By default the QP asks Linux for it while it connects, which may take as long as
    /// ARP takes.
    pub remote_mac: Option<[u8; 6]>,
}

/// The way of packets to the port of a peer in an InfiniBand fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InfinibandAddress {
    /// LID of the peer's port, 0x1 to 0xbfff. If a router leads to the peer, the router's LID.
    pub remote_lid: u16,
    /// Number of the LID, among the own port's 2^LMC LIDs, from which packets go, 0 to 127. Default 0.
    pub path_bits: u8,
    /// Service level, 0 to 15. Default 0.
    pub service_level: u8,
    /// The global route header. Packets without one stay in the subnet. Default none.
    pub grh: Option<GlobalRoute>,
}

/// The fields of a global route header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GlobalRoute {
    /// GID of the peer's port.
    pub remote_gid: Gid,
    /// Index of the own GID. Default 0.
    pub gid_index: u32,
    /// Largest number of routers on the way, at least 1. Default 64.
    pub hop_limit: u8,
    /// Traffic class. Default 0.
    pub traffic_class: u8,
}

setters! {
    const RoceAddress {
        with_remote_gid(remote_gid: Gid),
        with_gid_index(gid_index: Option<u32>),
        with_traffic_class(traffic_class: u8),
        with_priority(priority: u8),
        with_hop_limit(hop_limit: u8),
        with_remote_mac(remote_mac: Option<[u8; 6]>),
    }
}

setters! {
    const InfinibandAddress {
        with_remote_lid(remote_lid: u16),
        with_path_bits(path_bits: u8),
        with_service_level(service_level: u8),
        with_grh(grh: Option<GlobalRoute>),
    }
}

setters! {
    const GlobalRoute {
        with_remote_gid(remote_gid: Gid),
        with_gid_index(gid_index: u32),
        with_hop_limit(hop_limit: u8),
        with_traffic_class(traffic_class: u8),
    }
}

impl RoceAddress {
    /// Returns an address of the port with this GID, with defaults for all else.
    #[must_use]
    pub const fn new(remote_gid: Gid) -> Self {
        Self {
            remote_gid,
            gid_index: None,
            traffic_class: 0,
            priority: 0,
            hop_limit: 64,
            remote_mac: None,
        }
    }
}

impl InfinibandAddress {
    /// Returns an address of the port with this LID, with defaults for all else.
    #[must_use]
    pub const fn new(remote_lid: u16) -> Self {
        Self {
            remote_lid,
            path_bits: 0,
            service_level: 0,
            grh: None,
        }
    }
}

impl GlobalRoute {
    /// Returns a route to the port with this GID, with defaults for all else.
    #[must_use]
    pub const fn new(remote_gid: Gid) -> Self {
        Self {
            remote_gid,
            gid_index: 0,
            hop_limit: 64,
            traffic_class: 0,
        }
    }
}

/// Makes the address of the `RoCEv2` port with this GID, with defaults for all else.
impl From<Gid> for AddressVector {
    fn from(remote_gid: Gid) -> Self {
        Self::RoceV2(RoceAddress::new(remote_gid))
    }
}

impl From<RoceAddress> for AddressVector {
    fn from(address: RoceAddress) -> Self {
        Self::RoceV2(address)
    }
}

impl From<InfinibandAddress> for AddressVector {
    fn from(address: InfinibandAddress) -> Self {
        Self::InfiniBand(address)
    }
}

impl AddressVector {
    /// Returns the link layer of the port.
    #[must_use]
    pub const fn link_layer(&self) -> LinkLayer {
        match self {
            Self::RoceV2(_) => LinkLayer::Ethernet,
            Self::InfiniBand(_) => LinkLayer::InfiniBand,
        }
    }

    /// Returns this address with the Ethernet address of its GID, for which it asks the kernel. Then a QP need not wait for that when it
    /// connects. The call may take as long as ARP takes.
    ///
    /// # Errors
    ///
    /// An own GID that the device does not have; the kernel's answer.
    pub fn resolved(self, pd: &Pd) -> Result<Self, VerbsError> {
        match self {
            Self::RoceV2(address) if address.remote_mac.is_none() => {
                let remote_mac = Some(address.resolve_mac(pd)?);
                Ok(Self::RoceV2(RoceAddress {
                    remote_mac,
                    ..address
                }))
            }
            resolved => Ok(resolved),
        }
    }

    /// Checks all values for which no device is needed.
    pub(super) fn check(&self) -> Result<(), VerbsError> {
        match self {
            Self::RoceV2(address) => address.check(),
            Self::InfiniBand(address) => address.check(),
        }
    }

    /// Returns the address path of a QP of `pd`. A RoCEv2 QP sends from UDP port `source_port`.
    pub(super) fn path(&self, pd: &Pd, source_port: u16) -> Result<Ads, VerbsError> {
        let port = pd.context().port();
        if self.link_layer() != port.link_layer {
            let (layer, own) = (self.link_layer(), port.link_layer);
            let limit = format!("{own}, the link layer of the own port");
            return Err(VerbsError::argument("link layer of the peer", layer, limit));
        }
        let path = match self {
            Self::RoceV2(address) => address.path(pd, source_port)?,
            Self::InfiniBand(address) => address.path(pd.context())?,
        };
        Ok(path.with_vhca_port_num(port.number.into()))
    }
}

impl RoceAddress {
    fn check(&self) -> Result<(), VerbsError> {
        in_range("priority", self.priority, 0, 7)?;
        in_range("hop limit", self.hop_limit, 1, u8::MAX)?;
        is_address("remote GID", self.remote_gid)
    }

    fn path(&self, pd: &Pd, source_port: u16) -> Result<Ads, VerbsError> {
        let gid_index = self.source_gid(pd.context())?;
        let mac = match self.remote_mac {
            Some(mac) => mac,
            None => self.resolve_mac(pd)?,
        };
        Ok(Ads::default()
            .with_src_addr_index(gid_index.into())
            .with_rgid_rip(self.remote_gid.0)
            .with_rmac(mac)
            .with_hop_limit(self.hop_limit.into())
            .with_tclass(self.traffic_class.into())
            .with_dscp(u32::from(self.traffic_class >> 2))
            .with_eth_prio(self.priority.into())
            .with_udp_sport(source_port.into()))
    }

    /// Returns the Ethernet address of the next hop. May take as long as ARP takes.
    fn resolve_mac(&self, pd: &Pd) -> Result<[u8; 6], VerbsError> {
        let way = Way {
            source_index: self.source_gid(pd.context())?,
            remote_gid: self.remote_gid,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            priority: self.priority,
        };
        resolve_mac(pd, &way)
    }

    /// Returns the index of the own GID from which packets come.
    fn source_gid(&self, context: &Context) -> Result<u8, VerbsError> {
        let index = match self.gid_index {
            Some(index) => context.gid(index).map(|_| index)?,
            None => context.roce_v2_gid_towards(&self.remote_gid)?.index,
        };
        index_in_8_bits(index)
    }
}

impl InfinibandAddress {
    fn check(&self) -> Result<(), VerbsError> {
        if !UNICAST_LIDS.contains(&self.remote_lid) {
            let limit = format!("a unicast LID, 0x1 to {:#x}", UNICAST_LIDS.end());
            let lid = format!("{:#x}", self.remote_lid);
            return Err(VerbsError::argument("remote LID", lid, limit));
        }
        in_range("path bits", self.path_bits, 0, 127)?;
        in_range("service level", self.service_level, 0, 15)?;
        match &self.grh {
            None => Ok(()),
            Some(route) => {
                in_range("hop limit", route.hop_limit, 1, u8::MAX)?;
                is_address("remote GID", route.remote_gid)
            }
        }
    }

    fn path(&self, context: &Context) -> Result<Ads, VerbsError> {
        let port = context.port();
        port.lid_with(self.path_bits)?;
        let local = Ads::default()
            .with_rlid(self.remote_lid.into())
            .with_mlid(self.path_bits.into())
            .with_sl(self.service_level.into());
        let Some(route) = &self.grh else {
            if port.grh_required {
                let limit = "a GRH, which the own port demands";
                return Err(VerbsError::argument("GRH", "none", limit));
            }
            return Ok(local);
        };
        context.gid(route.gid_index)?;
        Ok(local
            .with_grh(1)
            .with_src_addr_index(index_in_8_bits(route.gid_index)?.into())
            .with_rgid_rip(route.remote_gid.0)
            .with_hop_limit(route.hop_limit.into())
            .with_tclass(route.traffic_class.into()))
    }
}

fn is_address(what: &'static str, gid: Gid) -> Result<(), VerbsError> {
    if gid == Gid::default() {
        return Err(VerbsError::argument(what, gid, "an address"));
    }
    Ok(())
}

fn index_in_8_bits(index: u32) -> Result<u8, VerbsError> {
    u8::try_from(index).map_err(|_| VerbsError::argument("GID index", index, u8::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_peer_is_checked_field_by_field() {
        let roce = RoceAddress::new(Gid([1; 16]));
        let local = InfinibandAddress::new(0xbfff);
        let route = GlobalRoute::new(Gid([2; 16]));
        let good = [
            roce.into(),
            local.into(),
            local.with_grh(Some(route)).into(),
            local.with_service_level(15).with_path_bits(127).into(),
        ];
        for address in good {
            AddressVector::check(&address).unwrap();
        }
        let bad: [(AddressVector, &str); 9] = [
            (roce.with_remote_gid(Gid::default()).into(), "remote GID"),
            (roce.with_priority(8).into(), "priority"),
            (roce.with_hop_limit(0).into(), "hop limit"),
            (local.with_remote_lid(0).into(), "remote LID"),
            (local.with_remote_lid(0xc000).into(), "remote LID"),
            (local.with_path_bits(128).into(), "path bits"),
            (local.with_service_level(16).into(), "service level"),
            (
                local.with_grh(Some(route.with_hop_limit(0))).into(),
                "hop limit",
            ),
            (
                local
                    .with_grh(Some(route.with_remote_gid(Gid::default())))
                    .into(),
                "remote GID",
            ),
        ];
        for (address, what) in bad {
            let refused = address.check().unwrap_err().to_string();
            assert!(refused.contains(what), "{refused}: {address:?}");
        }
    }
}
