//! From the address path of a QP context to the wire's configuration.

use crate::device::work::Work;
use crate::engine::transport::Service;
use crate::wire::datagram::DatagramConfig;
use crate::wire::endpoint::Endpoint;
use crate::wire::psn::Psn;
use crate::wire::requester::RequesterConfig;
use crate::wire::responder::ResponderConfig;
use mlx5_prm::qp::Qpc;
use std::net::Ipv4Addr;

/// Packets of a QP under way at once.
const WINDOW: u32 = 128;

/// The IPv4 address in a GID of the form `::ffff:a.b.c.d`.
fn remote_address(qpc: &Qpc) -> Ipv4Addr {
    let [.., a, b, c, d] = qpc.primary_address_path().rgid_rip();
    Ipv4Addr::new(a, b, c, d)
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
pub(crate) fn connect(wire: &mut Endpoint<Work>, qpn: u32, service: Service, qpc: &Qpc) {
    let config = ResponderConfig {
        service,
        remote_qpn: qpc.remote_qpn(),
        first_psn: Psn::new(qpc.next_rcv_psn()),
        mtu: mtu_bytes(qpc),
        min_rnr_timer: byte(qpc.min_rnr_nak()),
        max_read_atomic: 1 << qpc.log_rra_max(),
    };
    wire.connect(qpn, remote_address(qpc), config);
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
    use mlx5_prm::qp::Ads;

    #[test]
    fn the_address_is_the_end_of_the_gid_and_the_mtu_is_a_power_of_two() {
        let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];
        let qpc = Qpc::default()
            .with_mtu(5)
            .with_primary_address_path(Ads::default().with_rgid_rip(gid));
        assert_eq!(remote_address(&qpc), Ipv4Addr::new(10, 1, 2, 3));
        assert_eq!(mtu_bytes(&qpc), 4096);
        assert_eq!(mtu_bytes(&qpc.with_mtu(1)), 256);
    }
}
