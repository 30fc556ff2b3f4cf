//! HCAs with an address of an IPv6 subnet: connections and datagrams by it, in memory, by UDP and by Ethernet frames. Also
//! addresses that an HCA refuses.

use std::env;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::qp::Ads;
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};
use softhca::link::Link;
use softhca::wire::config::CarrierConfig;
use softhca::wire::envelope::Name;
use softhca::wire::memory::Network;
use softhca::wire::subnet::Ipv6Subnet;
use softhca::{Hca, HcaConfig};
use softhca_rig::segments::datagram_from;
use softhca_rig::{End, Kind, QKEY, Shape, data, inline};
use test_basics::ipv6::{SUBNET, network};

const SIGNALLED: u8 = CtrlSeg::CE_ALWAYS;
/// The entry of the GID table.
const INDEX: u8 = 4;

fn subnet() -> Ipv6Subnet {
    SUBNET.parse().unwrap()
}

fn free_port() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

/// Two HCAs whose packets a carrier takes.
fn pair(carriers: [CarrierConfig; 2]) -> [Hca; 2] {
    let third = fastrand::u8(..);
    let mut last = 0;
    carriers.map(|carrier| {
        last += 1;
        let is_udp = matches!(carrier, CarrierConfig::Udp);
        let config = HcaConfig {
            ip: (!is_udp).then(|| Ipv4Addr::new(10, 78, third, last)),
            ipv6: Some(subnet()),
            loopback: false,
            carrier,
            ..HcaConfig::default()
        };
        Hca::with_config(config).unwrap()
    })
}

fn path(to: &Hca) -> Ads {
    Ads::default()
        .with_src_addr_index(INDEX.into())
        .with_rgid_rip(Name::Ipv6(subnet()).gid(to.ip()))
        .with_hop_limit(64)
}

fn shape(kind: Kind) -> Shape {
    Shape {
        kind,
        log_receive: Some(4),
        ..Shape::default()
    }
}

fn ends(hcas: &[Hca; 2], kind: Kind) -> [End; 2] {
    let [a, b] = hcas.each_ref().map(|hca| End::new(hca, shape(kind)));
    for (end, there, far) in [(&a, &hcas[1], &b), (&b, &hcas[0], &a)] {
        end.init();
        let (path, qpn) = match kind {
            Kind::Ud => (Ads::default(), 0),
            _ => (path(there), far.qpn),
        };
        end.ready_to_receive_by(path, qpn, 7).unwrap();
        end.ready_to_send(7);
    }
    [a, b]
}

/// A message of several packets arrives, and a datagram with its IPv6 header.
fn check(hcas: &[Hca; 2]) {
    let [mut a, mut b] = ends(hcas, Kind::Rc);
    b.post_receive(0x4000, 0x8000);
    let text: Vec<u8> = (0..30_000u32).map(|n| n.to_le_bytes()[0] ^ 0x55).collect();
    a.data.write(0, &text);
    let bytes = data(30_000, a.keys.lkey, a.data.address());
    a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &bytes);
    assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ);
    assert_eq!(b.completion().opcode(), CqeOpcode::RESP_SEND);
    assert_eq!(b.data.read(0x4000, 30_000), text);

    let [mut a, mut b] = ends(hcas, Kind::Ud);
    b.post_receive(0x100, 128);
    let there = Name::Ipv6(subnet()).gid(hcas[1].ip());
    let to = datagram_from(INDEX, there, b.qpn, QKEY);
    let rest = [to.as_slice(), &inline(b"twelve bytes")].concat();
    a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
    assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ);
    let cqe = b.completion();
    assert_eq!(cqe.flags_rqpn.get() >> 24 & 3, 1, "RoCE v2 over IPv6");
    let found = b.data.read(0x100, 52);
    assert_eq!((found[0] >> 4, found[6]), (6, 17));
    let here = Name::Ipv6(subnet()).gid(hcas[0].ip());
    assert_eq!((&found[8..24], &found[24..40]), (&here[..], &there[..]));
    assert_eq!(&found[40..], b"twelve bytes");
    for hca in hcas {
        assert_eq!(hca.findings(), [""; 0]);
        assert!(hca.counters().packets_received > 0);
    }
}

#[test]
fn ethernet_frames_and_a_network_in_memory_carry_ipv6() {
    let (one, two) = (free_port(), free_port());
    let frames = |local, remote| CarrierConfig::Frames { local, remote };
    check(&pair([frames(one, two), frames(two, one)]));
    let network = Network::default();
    check(&pair(
        [(); 2].map(|()| CarrierConfig::Memory(network.clone())),
    ));
}

#[test]
fn sockets_carry_ipv6() {
    const INSIDE: &str = "WV_TEST_IPV6_SUBNET";
    if env::var_os(INSIDE).is_some() {
        let hcas = pair([CarrierConfig::Udp, CarrierConfig::Udp]);
        check(&hcas);
        // The kernel has the address for one HCA, as it has the IPv4 address.
        let config = HcaConfig {
            ip: Some(hcas[0].ip()),
            ipv6: Some(subnet()),
            ..HcaConfig::default()
        };
        let error = Hca::with_config(config).unwrap_err().to_string();
        assert!(error.contains("is in use"), "{error}");
        return;
    }
    let Some(mut again) = network("UDP over IPv6") else {
        return;
    };
    let output = again
        .arg(env::current_exe().unwrap())
        .args(["--exact", "ipv6::sockets_carry_ipv6", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{told}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(told.contains("1 passed"), "{told}");
}

#[test]
fn addresses_that_cannot_be_are_refused_by_name() {
    let refused = |config: HcaConfig| Hca::with_config(config).unwrap_err().to_string();
    let documentation: Ipv6Subnet = "2001:db8:7::".parse().unwrap();
    let text = refused(HcaConfig {
        ipv6: Some(documentation),
        ..HcaConfig::default()
    });
    assert!(
        text.contains("`ip -6 route add local 2001:db8:7::/96 dev lo`"),
        "{text}"
    );
    let text = refused(HcaConfig {
        ipv6: Some(documentation),
        link: Link::InfiniBand,
        ..HcaConfig::default()
    });
    assert!(
        text.starts_with("2001:db8:7::/96 is for Ethernet"),
        "{text}"
    );
}

#[test]
fn paths_out_of_the_subnet_and_into_it_are_refused() {
    let network = Network::default();
    let hcas = pair([(); 2].map(|()| CarrierConfig::Memory(network.clone())));
    let end = End::new(&hcas[0], shape(Kind::Rc));
    end.init();
    let elsewhere: Ipv6Addr = "fd00:6::a4e:102".parse().unwrap();
    let inside = Name::Ipv6(subnet()).gid(hcas[1].ip());
    for (index, gid) in [
        (INDEX, elsewhere.octets()),
        (INDEX, Name::Ip.gid(hcas[1].ip())),
        (INDEX, Name::LinkLocal.gid(hcas[1].ip())),
        (0, inside),
        (1, inside),
        (3, inside),
    ] {
        let path = path(&hcas[1])
            .with_src_addr_index(index.into())
            .with_rgid_rip(gid);
        let error = end.ready_to_receive_by(path, 0x77, 7).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("of one family"), "{index}: {text}");
    }
    let past = path(&hcas[1]).with_src_addr_index(5);
    let text = end
        .ready_to_receive_by(past, 0x77, 7)
        .unwrap_err()
        .to_string();
    assert!(text.contains("4 with an IPv6 subnet"), "{text}");
    end.ready_to_receive_by(path(&hcas[1]), 0x77, 7).unwrap();
}
