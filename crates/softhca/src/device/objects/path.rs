//! Makes the wire's configuration from the address path of a QP context.

use crate::device::objects::work::Work;
use crate::envelope::{Destination, Envelope, Gid, Name, Version};
use crate::link::{self, Link};
use crate::sysfs::{GidType, PortIdentity};
use crate::transport::{Datagram, Service};
use crate::wire::datagram::DatagramConfig;
use crate::wire::endpoint::Endpoint;
use crate::wire::psn::Psn;
use crate::wire::requester::RequesterConfig;
use crate::wire::responder::ResponderConfig;
use mlx5_prm::qp::{Ads, Qpc};

/// Number of packets that a QP may have under way at once.
const WINDOW: u32 = 128;

/// The reason why a path leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nowhere {
    /// The GID table of the port has no such entry.
    Source,
    /// No HCA can have the remote GID or LID.
    Peer,
    /// The port has no LID with these path bits.
    PathBits,
    /// `RoCE` v2 is asked for between an IPv4 GID and one that is not, or a GID from elsewhere is used to reach an IPv6 subnet.
    Families,
}

/// Returns the address and the headers of packets that go from `own` by an address path.
pub(crate) fn destination(own: &PortIdentity, path: &Ads) -> Result<Destination, Nowhere> {
    let (index, gid) = (byte(path.src_addr_index()), path.rgid_rip());
    match own.link {
        Link::Ethernet => by_gid(own, index, &gid),
        Link::InfiniBand if path.grh() != 0 && index != 0 => Err(Nowhere::Source),
        Link::InfiniBand => {
            let rlid = u16::try_from(path.rlid()).map_err(|_| Nowhere::Peer)?;
            let path_bits = byte(path.mlid());
            if path_bits >> own.lmc != 0 {
                return Err(Nowhere::PathBits);
            }
            let address = link::peer(own.ip, rlid, (path.grh() != 0).then_some(&gid));
            address
                .map(|address| Destination {
                    path_bits,
                    ..address.into()
                })
                .ok_or(Nowhere::Peer)
        }
    }
}

/// Returns where a datagram from entry `index` of the GID table of `own` goes; `None` if it is lost on its way.
pub(crate) fn datagram_destination(
    own: &PortIdentity,
    index: u8,
    to: &Datagram,
) -> Option<Destination> {
    match own.link {
        Link::Ethernet => by_gid(own, index, &to.gid).ok(),
        // The port has no LID with these path bits, so the datagram is lost.
        Link::InfiniBand if to.path_bits >> own.lmc != 0 => None,
        // The decoder has put the address into the GID.
        Link::InfiniBand => Name::of(&to.gid).map(|(address, _)| Destination {
            path_bits: to.path_bits,
            ..address.into()
        }),
    }
}

/// Returns where packets from entry `index` of the GID table of `own` to `gid` go.
fn by_gid(own: &PortIdentity, index: u8, gid: &Gid) -> Result<Destination, Nowhere> {
    let (kind, source) = own.gids.get(usize::from(index)).ok_or(Nowhere::Source)?;
    let (_, source) = Name::of(source).ok_or(Nowhere::Source)?;
    let (address, destination) = Name::of(gid).ok_or(Nowhere::Peer)?;
    let version = match kind {
        GidType::RoceV1 => Version::V1,
        GidType::RoceV2 | GidType::InfiniBand => Version::V2,
    };
    // Both addresses of an IP packet are of one version. A GRH holds any two GIDs, but only GIDs of the IPv6 subnet reach into that subnet.
    let one_family = version == Version::V2 || matches!(destination, Name::Ipv6(_));
    if one_family && source != destination {
        return Err(Nowhere::Families);
    }
    let envelope = Envelope {
        version,
        source,
        destination,
    };
    Ok(Destination {
        address,
        envelope,
        path_bits: 0,
    })
}

/// Returns the payload of a packet in bytes.
pub(crate) fn mtu_bytes(qpc: &Qpc) -> u32 {
    128 << qpc.mtu()
}

/// Returns the number that a field of at most 8 bits holds.
pub(crate) fn byte(field: u32) -> u8 {
    field.to_be_bytes()[3]
}

/// Connects QP `qpn` on the wire: the QP is ready to receive.
pub(crate) fn connect(
    wire: &mut Endpoint<Work>,
    qpn: u32,
    service: Service,
    qpc: &Qpc,
    remote: Destination,
    pkey: u16,
) {
    let config = ResponderConfig {
        service,
        remote_qpn: qpc.remote_qpn(),
        first_psn: Psn::new(qpc.next_rcv_psn()),
        mtu: mtu_bytes(qpc),
        min_rnr_timer: byte(qpc.min_rnr_nak()),
        max_read_atomic: 1 << qpc.log_rra_max(),
    };
    wire.connect(qpn, remote, config);
    wire.set_pkey(qpn, pkey);
}

/// Lets the wire send for QP `qpn`: the QP is ready to send.
pub(crate) fn start(wire: &mut Endpoint<Work>, qpn: u32, service: Service, qpc: &Qpc) {
    let config = RequesterConfig {
        service,
        remote_qpn: qpc.remote_qpn(),
        first_psn: Psn::new(qpc.next_send_psn()),
        mtu: mtu_bytes(qpc),
        retry_count: byte(qpc.retry_count()),
        rnr_retry: byte(qpc.rnr_retry()),
        ack_timeout: byte(qpc.primary_address_path().ack_timeout()),
        max_read_atomic: 1 << qpc.log_sra_max(),
        window: WINDOW,
    };
    wire.start(qpn, config);
}

/// Opens QP `qpn` on the wire for datagrams, which it sends and receives.
pub(crate) fn open_datagram(wire: &mut Endpoint<Work>, qpn: u32, qpc: &Qpc, own: &PortIdentity) {
    let config = DatagramConfig {
        mtu: mtu_bytes(qpc),
        first_psn: Psn::new(qpc.next_send_psn()),
        lmc: own.lmc,
    };
    wire.open_datagram(qpn, config);
    wire.set_pkey(qpn, own.pkey(qpc));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::Identity;
    use std::net::Ipv4Addr;

    const OWN: Ipv4Addr = Ipv4Addr::new(10, 1, 9, 9);
    const FAR: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);

    fn path(index: u32, gid: Gid) -> Ads {
        Ads::default()
            .with_rgid_rip(gid)
            .with_src_addr_index(index)
            .with_rlid(0x0304)
    }

    #[test]
    fn on_infiniband_a_lid_or_a_gid_names_the_peer() {
        let own = Identity::new(0, OWN).with_link(Link::InfiniBand);
        let path = path(0, Name::Ip.gid(FAR));
        let by_lid = Ipv4Addr::new(10, 1, 3, 4);
        assert_eq!(destination(own.first(), &path), Ok(by_lid.into()));
        let with_grh = path.with_grh(1);
        assert_eq!(destination(own.first(), &with_grh), Err(Nowhere::Peer));
        let with_grh = with_grh.with_rgid_rip(link::gid(FAR)).with_rlid(0);
        assert_eq!(destination(own.first(), &with_grh), Ok(FAR.into()));
        let with_grh = with_grh.with_src_addr_index(1);
        assert_eq!(destination(own.first(), &with_grh), Err(Nowhere::Source));
    }

    #[test]
    fn path_bits_name_a_lid_of_the_own_port() {
        for lmc in 0..=7 {
            let own = Identity::new(0, Ipv4Addr::new(10, 1, 9, 128))
                .with_link(Link::InfiniBand)
                .with_lmc(lmc);
            let bits = |bits: u32| {
                let found = destination(own.first(), &path(0, [0; 16]).with_mlid(bits));
                found.map(|there| u32::from(there.path_bits))
            };
            for within in [0, (1 << lmc) - 1] {
                assert_eq!(bits(within), Ok(within), "LMC {lmc}");
            }
            if lmc < 7 {
                for beyond in [1 << lmc, 127] {
                    assert_eq!(bits(beyond), Err(Nowhere::PathBits), "LMC {lmc}");
                }
            }
        }
    }

    #[test]
    fn a_datagram_with_path_bits_beyond_the_lmc_is_lost() {
        let own = Identity::new(0, Ipv4Addr::new(10, 1, 9, 128))
            .with_link(Link::InfiniBand)
            .with_lmc(3);
        let bits = |path_bits: u8| {
            let to = Datagram {
                gid: FAR.to_ipv6_mapped().octets(),
                has_grh: false,
                qpn: 1,
                qkey: 0,
                hop_limit: 0,
                traffic_class: 0,
                path_bits,
            };
            datagram_destination(own.first(), 0, &to).map(|there| (there.address, there.path_bits))
        };
        for within in [0, 7] {
            assert_eq!(bits(within), Some((FAR, within)));
        }
        for beyond in [8, 15, 127] {
            assert_eq!(bits(beyond), None, "{beyond}");
        }
    }

    #[test]
    fn every_gid_entry_leads_to_every_gid_that_its_headers_can_hold() {
        let own = Identity::new(0, OWN);
        let far = Identity::new(1, FAR);
        for (index, (kind, source)) in (0..).zip(&own.first().gids) {
            for (_, gid) in &far.first().gids {
                let found = destination(own.first(), &path(index, *gid));
                let names = [source, gid].map(|gid| Name::of(gid).unwrap().1);
                if *kind == GidType::RoceV2 && names[0] != names[1] {
                    assert_eq!(found, Err(Nowhere::Families), "{index}");
                    continue;
                }
                let found = found.unwrap();
                assert_eq!(found.address, FAR);
                let [source, destination] = names;
                assert_eq!(found.envelope.source, source);
                assert_eq!(found.envelope.destination, destination);
                let is_v1 = found.envelope.version == Version::V1;
                assert_eq!(is_v1, *kind == GidType::RoceV1, "{index}");
            }
        }
        let gid = far.first().gids[0].1;
        assert_eq!(
            destination(own.first(), &path(4, gid)),
            Err(Nowhere::Source)
        );
        assert_eq!(
            destination(own.first(), &path(255, gid)),
            Err(Nowhere::Source)
        );
        assert_eq!(
            destination(own.first(), &path(0, [0; 16])),
            Err(Nowhere::Peer)
        );
        assert_eq!(
            destination(own.first(), &path(0, link::gid(FAR))),
            Err(Nowhere::Peer)
        );
    }

    #[test]
    fn the_mtu_is_a_power_of_two() {
        let qpc = Qpc::default().with_mtu(5);
        assert_eq!(mtu_bytes(&qpc), 4096);
        assert_eq!(mtu_bytes(&qpc.with_mtu(1)), 256);
    }
}
