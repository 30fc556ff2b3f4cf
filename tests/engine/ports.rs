//! Engines on every kind of port, as teams: RoCEv2 over IPv4 and IPv6, InfiniBand with and without a GRH, and a bond. Also ports
//! that do not fit.

use softhca::HcaConfig;
use softhca::link::Link;
use softhca::profile::Profile;
use warpverbs::config::{GrhUse, PathConfig};
use warpverbs::internal::engine::Outcome;

use crate::rig::{End, config, connect, listens};

const BYTES: u64 = 300_000;

fn end(name: &str, (link, profile): (Link, Profile), path: PathConfig) -> End {
    let mut hca = HcaConfig {
        link,
        profile,
        ..HcaConfig::default()
    };
    if link == Link::InfiniBand {
        hca.pkeys = "0xffff,0x8001".parse().unwrap();
    }
    let config = config(name)
        .with_path(path)
        .with_slice(4096)
        .with_fragment(0);
    End::on(hca, config.with_chain(4), BYTES)
}

#[test]
fn a_write_and_a_read_arrive_on_every_kind_of_port() {
    let plain = PathConfig::default();
    let ethernet = (Link::Ethernet, Profile::default());
    let infiniband = (Link::InfiniBand, Profile::default());
    for (port, path) in [
        (ethernet, plain),
        // Its link-local IPv6 address.
        (ethernet, plain.with_gid_index(Some(1))),
        (infiniband, plain),
        (infiniband, plain.with_grh(GrhUse::Always)),
        (infiniband, plain.with_pkey(Some(0x8001))),
        ((Link::Ethernet, Profile::ConnectX7Lag), plain),
        ((Link::Ethernet, Profile::ConnectX7LagHash), plain),
    ] {
        let [a, b] = ["a", "b"].map(|name| end(name, port, path));
        let [to_b, _to_a] = connect(&a, &b);
        let written = a.fill(1);
        let id = to_b.write(a.at(0), b.at(0), BYTES).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done, "{port:?}, {path:?}");
        assert!(b.bytes() == written, "{port:?}, {path:?}");
        let read = b.fill(2);
        let id = to_b.read(a.at(0), b.at(0), BYTES).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done, "{port:?}, {path:?}");
        assert!(a.bytes() == read, "{port:?}, {path:?}");
        let by_port = a.hca.counters().wqes_by_lag_port;
        if port.1 == Profile::ConnectX7Lag {
            assert!(by_port.iter().all(|wqes| *wqes > 0), "{by_port:?}");
        }
    }
}

#[test]
fn the_packets_of_an_engine_go_between_the_lids_that_path_bits_name() {
    for (lmc, bits) in [(3, [7, 2]), (3, [0, 0]), (2, [3, 0])] {
        let ends = ["a", "b"].iter().zip(bits).map(|(name, bits)| {
            let hca = HcaConfig {
                link: Link::InfiniBand,
                lmc,
                // Every packet crosses the wire.
                loopback: false,
                ..HcaConfig::default()
            };
            let path = PathConfig::default().with_path_bits(bits);
            End::on(hca, config(name).with_path(path), BYTES)
        });
        let ends: Vec<End> = ends.collect();
        let [a, b] = &ends[..] else {
            unreachable!("two names")
        };
        let [to_b, _to_a] = connect(a, b);
        let written = a.fill(1);
        let id = to_b.write(a.at(0), b.at(0), BYTES).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        assert!(b.bytes() == written);
        for (end, bits) in ends.iter().zip(bits) {
            let lids = end.hca.port_counters(1).unwrap().lids;
            assert_eq!(lids.len(), 1 << lmc);
            for (lid, of) in lids.iter().enumerate() {
                let used = [of.sent, of.received].map(|packets| packets > 0);
                let expected = lid == usize::from(bits);
                assert_eq!(used, [expected; 2], "path bits {bits}: {lids:?}");
            }
        }
    }
}

#[test]
fn an_engine_that_names_a_port_sends_by_that_port_alone() {
    for link in [Link::Ethernet, Link::InfiniBand] {
        for port in [1, 2] {
            let ends = ["a", "b"].map(|name| {
                let hca = HcaConfig {
                    link,
                    ports: 2,
                    loopback: false,
                    ..HcaConfig::default()
                };
                End::on_port(hca, port, config(name), BYTES)
            });
            let [a, b] = &ends;
            let [to_b, _to_a] = connect(a, b);
            let written = a.fill(1);
            let id = to_b.write(a.at(0), b.at(0), BYTES).unwrap();
            assert_eq!(a.concluded(id), Outcome::Done);
            assert!(b.bytes() == written);
            for end in &ends {
                let of = |port| end.hca.port_counters(port).unwrap();
                let (used, other) = (of(port), of(3 - port));
                assert_eq!(used.wqes, end.hca.counters().wqes, "{link}, port {port}");
                assert!(used.sent() > 0 && used.received() > 0);
                assert_eq!([other.wqes, other.sent(), other.received()], [0; 3]);
            }
        }
    }
}

#[test]
fn ports_that_do_not_reach_each_other_are_refused_with_what_both_have() {
    let plain = PathConfig::default();
    let v6 = plain.with_gid_index(Some(1));
    for (link, path, reason) in [
        (
            Link::InfiniBand,
            plain,
            "its link layer is InfiniBand: this one's is Ethernet",
        ),
        (Link::Ethernet, v6, "its address family is IPv6 (fe80::"),
    ] {
        let a = end("a", (Link::Ethernet, Profile::default()), plain);
        let b = end("b", (link, Profile::default()), path);
        let address = listens(&b.engine).to_string();
        let refused = a.engine.connect(&address).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}
