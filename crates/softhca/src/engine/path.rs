//! From the address path of a QP context to the wire's configuration.

use crate::device::work::Work;
use crate::engine::transport::Service;
use crate::link::{self, Link};
use crate::sysfs::Identity;
use crate::wire::datagram::DatagramConfig;
use crate::wire::endpoint::Endpoint;
use crate::wire::psn::Psn;
use crate::wire::requester::RequesterConfig;
use crate::wire::responder::ResponderConfig;
use mlx5_prm::qp::{Ads, Qpc};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Packets of a QP under way at once.
const WINDOW: u32 = 128;

/// The address of the HCA that a path of `own` names; `None` if no HCA can be there.
pub(crate) fn remote_address(own: &Identity, path: &Ads) -> Option<Ipv4Addr> {
    let gid = path.rgid_rip();
    match own.link {
        Link::Ethernet => Ipv6Addr::from(gid).to_ipv4_mapped(),
        Link::InfiniBand => {
            let rlid = u16::try_from(path.rlid()).ok()?;
            link::peer(own.ip, rlid, (path.grh() != 0).then_some(&gid))
        }
    }
}

/// Bytes per packet.
pub(crate) fn mtu_bytes(qpc: &Qpc) -> u32 {
    128 << qpc.mtu()
}

/// The number that a field of at most 8 bits holds.
pub(crate) fn byte(field: u32) -> u8 {
    field.to_be_bytes()[3]
}

/// The QP is ready to receive.
pub(crate) fn connect(
    wire: &mut Endpoint<Work>,
    qpn: u32,
    service: Service,
    qpc: &Qpc,
    remote: Ipv4Addr,
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
}

/// The QP is ready to send.
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

/// The QP sends and receives datagrams.
pub(crate) fn open_datagram(wire: &mut Endpoint<Work>, qpn: u32, qpc: &Qpc) {
    let config = DatagramConfig {
        mtu: mtu_bytes(qpc),
        first_psn: Psn::new(qpc.next_send_psn()),
    };
    wire.open_datagram(qpn, config);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_what_the_link_layer_names_and_the_mtu_is_a_power_of_two() {
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];
        let own = Identity::new(0, Ipv4Addr::new(10, 1, 9, 9));
        let path = Ads::default().with_rgid_rip(gid).with_rlid(0x0304);
        let [by_gid, by_lid] = [[10, 1, 2, 3], [10, 1, 3, 4]].map(Ipv4Addr::from);
        assert_eq!(remote_address(&own, &path), Some(by_gid));
        let own = own.with_link(Link::InfiniBand);
        assert_eq!(remote_address(&own, &path), Some(by_lid));
        assert_eq!(remote_address(&own, &path.with_grh(1)), None);
        let qpc = Qpc::default().with_mtu(5);
        assert_eq!(mtu_bytes(&qpc), 4096);
        assert_eq!(mtu_bytes(&qpc.with_mtu(1)), 256);
    }
}
