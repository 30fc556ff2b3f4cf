//! The settings of a QP for its way to the peer and for its patience. They are checked once, when they are used.

use std::time::Duration;

use mlx5_prm::qpc::Qpc;

use crate::config::setters;
use crate::verbs::address::AddressVector;
use crate::verbs::device::caps::Caps;
use crate::verbs::device::port::{Mtu, PortInfo};
use crate::verbs::error::VerbsError;
use crate::verbs::limits::{in_24_bits, in_range};

/// The way to the peer. Values of a peer or a store go in here, so all of them are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathAttr {
    /// QP number of the peer, 24 bits.
    pub remote_qpn: u32,
    /// How packets reach the peer's port.
    pub address: AddressVector,
    /// Number of the first packet that the peer will send, 24 bits. The peer chooses it at random.
    pub psn: u32,
    /// Largest payload of a packet. Default: what the port carries. Both ends must have the same value.
    pub mtu: Option<Mtu>,
    /// PRM code of the delay that a receiver-not-ready answer asks for, 0 to 31. Default 12 (0.64 ms).
    pub min_rnr_timer: u8,
    /// Number of the rail, which spreads source ports. Default 0.
    pub rail: u8,
    /// Options of enhanced connection establishment that the peer's QP has ([`Qp::ece`](crate::verbs::Qp::ece)), each a bit. The QP uses
    /// the options that both QPs have. Default 0: none.
    pub ece: u32,
}

setters! {
    const PathAttr {
        with_remote_qpn(remote_qpn: u32),
        with_address(address: AddressVector),
        with_psn(psn: u32),
        with_mtu(mtu: Option<Mtu>),
        with_min_rnr_timer(min_rnr_timer: u8),
        with_rail(rail: u8),
        with_ece(ece: u32),
    }
}

impl PathAttr {
    /// Returns a path with defaults for all else.
    #[must_use]
    pub fn new(remote_qpn: u32, address: impl Into<AddressVector>, psn: u32) -> Self {
        Self {
            remote_qpn,
            address: address.into(),
            psn,
            mtu: None,
            min_rnr_timer: 12,
            rail: 0,
            ece: 0,
        }
    }

    /// Checks all values for which no device is needed, and returns the MTU.
    pub(in crate::verbs) fn check(&self, port: &PortInfo) -> Result<Mtu, VerbsError> {
        in_24_bits("remote QPN", self.remote_qpn)?;
        in_24_bits("PSN", self.psn)?;
        in_range("RNR timer", self.min_rnr_timer, 0, 31)?;
        self.address.check()?;
        let mtu = self.mtu.unwrap_or(port.active_mtu);
        if mtu > port.active_mtu {
            let limit = format!("at most the port's {}", port.active_mtu);
            return Err(VerbsError::argument("MTU", mtu, limit));
        }
        Ok(mtu)
    }
}

/// The patience of a QP. It gives the peer up after about `4.096 us * 2^timeout * (retry + 1)`, often after a few times that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendAttr {
    /// Number of the first packet, 24 bits. Choose it at random, and at least 2^22 away from the number in the QP's life before.
    pub psn: u32,
    /// Retransmission timeout 4.096 us * 2^n, 12 to 20. Default 14 (67 ms).
    pub timeout: u8,
    /// Retries after a timeout or a sequence error, 0 to 7. Default 7.
    pub retry: u8,
    /// Retries after receiver-not-ready, 0 to 7; 7 means for ever. Default 7.
    pub rnr_retry: u8,
    /// log2 of the packets between two requests for acknowledgement. Default 0: every packet.
    pub log_ack_req_freq: u8,
    /// log2 of the number of reads and atomics that the peer takes at once, at most 7. The QP has no more under way. Default: as many as
    /// the own device can have.
    pub log_peer_reads: Option<u8>,
}

setters! {
    const SendAttr {
        with_psn(psn: u32),
        with_timeout(timeout: u8),
        with_retry(retry: u8),
        with_rnr_retry(rnr_retry: u8),
        with_log_ack_req_freq(log_ack_req_freq: u8),
        with_log_peer_reads(log_peer_reads: Option<u8>),
    }
}

impl SendAttr {
    /// Returns settings with this first packet number, and defaults for all else.
    #[must_use]
    pub fn new(psn: u32) -> Self {
        Self {
            psn,
            timeout: 14,
            retry: 7,
            rnr_retry: 7,
            log_ack_req_freq: 0,
            log_peer_reads: None,
        }
    }

    /// Returns how long the HCA tries before it gives a peer up. Some HCAs try four times as long.
    pub(crate) fn patience(&self) -> Duration {
        let once = 4096u64.checked_shl(self.timeout.into()).unwrap_or(u64::MAX);
        Duration::from_nanos(once).saturating_mul(u32::from(self.retry) + 1)
    }

    pub(in crate::verbs) fn check(&self) -> Result<(), VerbsError> {
        in_24_bits("PSN", self.psn)?;
        in_range("timeout", self.timeout, 12, 20)?;
        in_range("retry", self.retry, 0, 7)?;
        in_range("RNR retry", self.rnr_retry, 0, 7)?;
        in_range("log_ack_req_freq", self.log_ack_req_freq, 0, 8)?;
        in_range(
            "log of the peer's reads",
            self.log_peer_reads.unwrap_or(0),
            0,
            7,
        )
    }
}

/// Returns the UDP source port of a QP. It spreads QPs over equal-cost paths, and depends only on the two QPNs and the rail.
///
/// The hash is that of Linux (`rdma_calc_flow_label`, `rdma_flow_label_to_udp_sport`), with the rail mixed in.
pub(in crate::verbs) fn udp_source_port(caps: &Caps, qpn: u32, remote_qpn: u32, rail: u8) -> u16 {
    let Some(ports) = &caps.udp_source_ports else {
        return 0;
    };
    let mut v = (u64::from(qpn) * u64::from(remote_qpn)) ^ (u64::from(rail) << 7);
    v ^= v >> 20;
    v ^= v >> 40;
    let label = (v & 0xf_ffff) as u32;
    let spread = (label & 0x3fff) ^ ((label & 0xf_c000) >> 14);
    #[expect(clippy::cast_possible_truncation, reason = "14 bits")]
    let wanted = 0xc000 | spread as u16;
    if ports.contains(&wanted) {
        return wanted;
    }
    let count = u32::from(ports.end().saturating_sub(*ports.start())) + 1;
    #[expect(clippy::cast_possible_truncation, reason = "below the number of ports")]
    let nth = (spread % count) as u16;
    ports.start() + nth
}

/// Returns the code of the QP context for the device's atomics.
pub(in crate::verbs) fn atomic_mode(caps: &Caps) -> u32 {
    if caps.atomics {
        Qpc::ATOMIC_MODE_UP_TO_8B
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::device::caps::tests::caps;
    use crate::verbs::device::port::LinkLayer;
    use crate::verbs::gid::Gid;

    #[test]
    fn a_path_from_a_peer_is_checked_field_by_field() {
        let port = PortInfo {
            number: 1,
            link_layer: LinkLayer::Ethernet,
            lid: 0,
            lmc: 0,
            grh_required: true,
            speed_mbps: 100_000,
            pkeys: vec![0xffff],
            active_mtu: Mtu::B1024,
            gid_table_length: 8,
        };
        let good = PathAttr::new(7, Gid([1; 16]), 0xff_ffff);
        assert_eq!(good.check(&port).unwrap(), Mtu::B1024);
        let bad = [
            good.with_remote_qpn(1 << 24),
            good.with_psn(1 << 24),
            good.with_address(Gid::default().into()),
            good.with_mtu(Some(Mtu::B2048)),
            good.with_min_rnr_timer(32),
        ];
        for path in bad {
            assert!(path.check(&port).is_err(), "{path:?}");
        }
    }

    #[test]
    fn patience_outside_the_context_field_is_refused() {
        let good = SendAttr::new(0);
        good.check().unwrap();
        for bad in [
            SendAttr {
                timeout: 11,
                ..good
            },
            SendAttr {
                timeout: 21,
                ..good
            },
            SendAttr { retry: 8, ..good },
            SendAttr {
                rnr_retry: 8,
                ..good
            },
            SendAttr {
                psn: 1 << 24,
                ..good
            },
            good.with_log_peer_reads(Some(8)),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn source_ports_spread_and_stay_in_the_range_of_the_device() {
        let wide = caps();
        let ports: std::collections::BTreeSet<u16> = (0..256)
            .map(|qpn| udp_source_port(&wide, 0x100 + qpn, 0x500 + 3 * qpn, 0))
            .collect();
        assert!(ports.len() > 200, "{} different ports of 256", ports.len());
        assert!(ports.iter().all(|port| *port >= 0xc000));
        let narrow = Caps {
            udp_source_ports: Some(0xd000..=0xd003),
            ..caps()
        };
        for qpn in 0..100 {
            let port = udp_source_port(&narrow, qpn, 77, 1);
            assert!((0xd000..=0xd003).contains(&port), "{port:#x}");
        }
        let none = Caps {
            udp_source_ports: None,
            ..caps()
        };
        assert_eq!(udp_source_port(&none, 1, 2, 0), 0);
    }

    /// gpunetio takes the time in seconds as the seed of its choice. NVSHMEM and Mooncake use one port for all QPs.
    #[test]
    fn qps_that_are_made_in_the_same_second_get_many_ports() {
        let caps = caps();
        let ports = |qpns: fn(u32) -> [u32; 2]| {
            let port = |i: u32| udp_source_port(&caps, qpns(i)[0], qpns(i)[1], 0);
            let ports: std::collections::BTreeSet<u16> = (0..64).map(port).collect();
            ports.len()
        };
        // QPNs that are given one after the other, at one end or at both ends.
        assert!(ports(|i| [0x100 + i, 0x100 + i]) >= 60);
        assert!(ports(|i| [0x100 + i, 0x200 + i]) >= 60);
        assert!(ports(|i| [7, 0x100 + i]) >= 60);
        let rails: std::collections::BTreeSet<u16> = (0..8)
            .map(|rail| udp_source_port(&caps, 0x100, 0x100, rail))
            .collect();
        assert_eq!(rails.len(), 8);
    }
}
