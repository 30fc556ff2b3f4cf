//! Teams on every kind of port: RoCEv2 over IPv4 and IPv6, InfiniBand with and without a GRH; and ports that do not fit.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use mlx5_prm::cmd::{Opcode, Status};
use serde_json::Value;
use softhca::link::Link;
use softhca::profile::Profile;
use softhca::{FailCommand, Hca, HcaConfig};
use warpverbs::config::{Config, GpuSelector, GrhUse, PathConfig};
use warpverbs::team::{JoinOptions, MemoryStore, RankDevices, RankSet, Store, TeamConfig};

use crate::fleet::DrivenFleet;
use crate::modes::exchange;
use crate::rank::{ALONE, Rank, run, run_on, setup};
use test_support::counts::full;
use test_support::device::test_gpu;
use test_support::fleet::{Hcas, Setup};
use test_support::ranks::Meeting;

fn on(link: Link, path: PathConfig) -> Setup {
    let mut setup = setup(2);
    setup.team.qps_per_peer = 4;
    setup.team.path = path;
    setup.hca = HcaConfig {
        link,
        ..HcaConfig::default()
    };
    setup
}

#[test]
fn a_moe_step_is_right_on_every_kind_of_port() {
    let plain = PathConfig::default();
    let ports = [
        // Entry 3 of a software HCA is its IPv4 address, entry 1 its link-local IPv6 address.
        (Link::Ethernet, plain),
        (Link::Ethernet, plain.with_gid_index(Some(1))),
        (
            Link::Ethernet,
            plain.with_traffic_class(Some(104)).with_priority(3),
        ),
        (Link::InfiniBand, plain),
        (Link::InfiniBand, plain.with_grh(GrhUse::Always)),
        (
            Link::InfiniBand,
            plain
                .with_grh(GrhUse::Never)
                .with_service_level(5)
                .with_pkey(Some(0xffff)),
        ),
        // The second of the port's partitions.
        (Link::InfiniBand, plain.with_pkey(Some(0x8001))),
    ];
    for (link, path) in ports {
        println!("{link}: {path:?}");
        let mut setup = on(link, path);
        if link == Link::InfiniBand {
            setup.hca.pkeys = "0xffff,0x8001".parse().unwrap();
        }
        run(&setup, |rank| exchange(rank, 2));
    }
}

/// The options of enhanced connection establishment in force at each QP of both ranks, whose HCAs have these.
fn options_in_force(own: [u32; 2]) -> Vec<[u32; 4]> {
    let setups = own.map(|ece| {
        let mut setup = on(Link::Ethernet, PathConfig::default());
        setup.hca.ece = ece;
        setup
    });
    let hcas = setups.each_ref().map(Hcas::new);
    let found = test_support::ranks::on_threads(2, |number, store| {
        let at = usize::from(number == 1);
        let rank = Rank::alone(setups[at].of_rank(number), hcas[at].of(number), store).unwrap();
        let status = |qp| rank.team.qp_status(1 - number, qp).unwrap();
        let found = [0, 1, 2, 3].map(|qp| status(qp).hca.ece);
        rank.team.barrier("read").unwrap();
        found
    });
    hcas.iter().for_each(Hcas::check);
    found
}

#[test]
fn ranks_take_the_options_of_connections_that_both_hcas_have() {
    assert_eq!(options_in_force([0x0107, 0x110e]), [[0x0106; 4]; 2]);
    assert_eq!(options_in_force([0x0107, 0]), [[0; 4]; 2]);
}

#[test]
fn the_packets_of_a_rank_go_between_the_lids_that_path_bits_name() {
    // Each rank has path bits of its own: the largest, and some.
    let differ = |config: &mut TeamConfig| config.path.path_bits = [7, 2][config.rank as usize];
    for (lmc, bits) in [(3, [7, 2]), (3, [0, 0]), (0, [0, 0])] {
        let mut setup = on(Link::InfiniBand, PathConfig::default());
        setup.hca.lmc = lmc;
        // Every packet crosses the wire.
        setup.hca.loopback = false;
        if bits != [0, 0] {
            setup.change = differ;
        }
        let hcas = Hcas::new(&setup);
        run_on(&setup, &hcas, |rank| exchange(rank, 2));
        for (hca, bits) in hcas.all().zip(bits) {
            let lids = hca.port_counters(1).unwrap().lids;
            assert_eq!(lids.len(), 1 << lmc);
            for (lid, of) in lids.iter().enumerate() {
                let used = [of.sent, of.received].map(|packets| packets > 0);
                assert_eq!(used, [lid == bits; 2], "path bits {bits}: {lids:?}");
            }
        }
        hcas.check();
    }
}

/// Joins as a rank whose configuration names this port of its HCA.
fn join_by<'a>(
    port: u8,
    config: TeamConfig,
    hcas: &'a [Arc<Hca>],
    store: Arc<dyn Store>,
    meeting: &'a Meeting,
) -> Result<Rank<'a>, Box<dyn Error>> {
    let name = format!("{}:{port}", hcas[0].name());
    let named = Config::default()
        .with_gpu(GpuSelector::Simt)
        .with_device(name.parse()?);
    let contexts = RankDevices::open(&named)?.contexts;
    let team = JoinOptions::new(config)
        .with_contexts(&contexts)
        .with_gpu(&test_gpu())
        .with_store(store)
        .join()?;
    Ok(Rank::of(team, hcas, meeting)?)
}

/// Two ranks on HCAs with two ports, of which they name these, send rows to each other; `meanwhile` is called before the second call.
fn exchange_by(link: Link, ports: [u8; 2], loopback: bool, meanwhile: fn(&Hca)) -> Hcas {
    let mut setup = on(link, PathConfig::default());
    setup.hca.ports = 2;
    setup.hca.loopback = loopback;
    let hcas = Hcas::new(&setup);
    let meeting = Meeting::new(2);
    test_support::ranks::on_threads(2, |number, store| {
        let _attendance = meeting.attend();
        let own = hcas.of(number);
        let config = setup.of_rank(number);
        let rank = join_by(ports[number as usize], config, own, store, &meeting).unwrap();
        exchange(&rank, 1);
        meanwhile(&own[0]);
        rank.sync();
        exchange(&rank, 1);
        rank.sync();
    });
    hcas
}

#[test]
fn a_team_that_names_a_port_sends_by_that_port_alone() {
    for link in [Link::Ethernet, Link::InfiniBand] {
        for (ports, loopback) in [([2, 2], true), ([2, 2], false), ([1, 2], false)] {
            let hcas = exchange_by(link, ports, loopback, |_| ());
            for (hca, port) in hcas.all().zip(ports) {
                let of = |port| hca.port_counters(port).unwrap();
                let (used, other) = (of(port), of(3 - port));
                assert_eq!(used.wqes, hca.counters().wqes, "{link}, {ports:?}");
                assert_eq!([other.wqes, other.sent(), other.received()], [0; 3]);
                let packets = [used.sent(), used.received()].map(|packets| packets > 0);
                assert_eq!(packets, [!loopback; 2], "{link}, {ports:?}");
            }
            hcas.check();
        }
    }
}

#[test]
fn a_team_goes_on_while_the_other_port_of_its_device_is_down() {
    for ports in [[1, 1], [2, 2]] {
        let down: fn(&Hca) = match ports {
            [1, _] => |hca| hca.set_port_of(2, false),
            _ => |hca| hca.set_port_of(1, false),
        };
        let hcas = exchange_by(Link::Ethernet, ports, true, down);
        hcas.check();
    }
}

#[test]
fn a_port_that_is_down_or_that_the_device_lacks_is_refused_by_name() {
    let mut setup = on(Link::Ethernet, PathConfig::default());
    setup.hca.ports = 2;
    let hcas = Hcas::new(&setup);
    let own = hcas.of(0);
    own[0].set_port_of(2, false);
    let refused = |port| {
        let store = Arc::new(MemoryStore::new());
        let joined = join_by(port, setup.team, own, store, &ALONE);
        joined.map(drop).unwrap_err().to_string()
    };
    let name = own[0].name();
    assert_eq!(
        refused(3),
        format!("port is {name}:3; it must be {name}:1 to {name}:2")
    );
    let text = refused(2);
    assert!(text.contains("is the cable of port 2 in"), "{text}");
    hcas.check();
}

#[test]
fn a_peer_is_replaced_on_infiniband() {
    for grh in [GrhUse::Auto, GrhUse::Always] {
        let setup = on(Link::InfiniBand, PathConfig::default().with_grh(grh));
        let hcas = Hcas::new(&setup);
        let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
        fleet.talk_all();
        fleet.kill(1);
        fleet.fail(1);
        fleet.come(1, 2);
        fleet.connect(1);
        fleet.open(1);
        fleet.talk_all();
        drop(fleet);
        hcas.check();
    }
}

#[test]
fn the_qps_to_a_peer_leave_by_the_ports_of_a_bond_in_turn() {
    for (lag_port, unused, refuses) in [
        (None, None, false),
        // Firmware that does not let a QP name its port once more.
        (None, None, true),
        (Some(1), Some(1), false),
        (Some(2), Some(0), false),
    ] {
        let mut setup = on(
            Link::Ethernet,
            PathConfig::default().with_lag_port(lag_port),
        );
        setup.hca.profile = Profile::ConnectX7Lag;
        let hcas = Hcas::new(&setup);
        let refusal = FailCommand {
            opcode: Some(Opcode::RTS2RTS_QP.0),
            nth: 1,
            status: Status::BAD_PARAM.0,
            syndrome: 1,
        };
        let refusing = hcas.all().filter(|_| refuses);
        refusing.for_each(|hca| hca.fail_command(refusal));
        run_on(&setup, &hcas, |rank| exchange(rank, 2));
        for hca in hcas.all() {
            let counters = hca.counters();
            let by_port = counters.wqes_by_lag_port;
            assert_eq!(by_port[0] + by_port[1], counters.wqes, "{by_port:?}");
            for (port, count) in by_port.iter().enumerate() {
                let used = *count > 0;
                assert_eq!(used, unused != Some(port), "{lag_port:?}: {by_port:?}");
            }
        }
        hcas.check();
    }
}

#[test]
fn no_qp_names_a_port_of_a_bond_whose_ports_a_hash_finds() {
    let on_bond = |lag_port| {
        let path = PathConfig::default().with_lag_port(lag_port);
        let mut setup = on(Link::Ethernet, path);
        setup.hca.profile = Profile::ConnectX7LagHash;
        setup
    };
    // The device refuses a QP that names one.
    run(&on_bond(None), |rank| exchange(rank, 2));
    let setup = on_bond(Some(1));
    let hcas = Hcas::new(&setup);
    let refused = test_support::ranks::on_threads(2, |number, store| {
        let joined = Rank::alone(setup.of_rank(number), hcas.of(number), store);
        joined.map(drop).unwrap_err().to_string()
    });
    for text in refused {
        assert!(text.contains("mode of the bond is hash"), "{text}");
        assert!(
            text.contains("queue affinity for a QP that names its port (lag_port 1)"),
            "{text}"
        );
    }
    hcas.check();
}

/// Packets that rank 0 sends to its peer in a step, with this path at both.
fn packets(path: PathConfig) -> u32 {
    let sent = run(&on(Link::Ethernet, path), |rank| {
        let peer = 1 - rank.number();
        let next = |qp| {
            let status = rank.team.qp_status(peer, qp).unwrap();
            status.hca.next_send_psn
        };
        let before: Vec<u32> = (0..4).map(next).collect();
        exchange(rank, 2);
        let after = (0..4).map(next);
        let sent = after
            .zip(before)
            .map(|(after, before)| after.wrapping_sub(before) & 0xff_ffff);
        sent.sum::<u32>()
    });
    sent[0]
}

#[test]
fn a_smaller_mtu_makes_more_packets_and_one_that_is_none_ends_the_start() {
    let path = PathConfig::default();
    let (whole, cut) = (packets(path), packets(path.with_mtu(Some(256))));
    assert!(cut > whole, "{whole} packets, and {cut} with an MTU of 256");
    let few = path.with_read_depth(Some(1)).with_ack_timeout(Some(20));
    assert_eq!(packets(few), whole);
    for (path, named) in [
        (
            path.with_mtu(Some(1000)),
            "mtu is 1000; it must be one of auto, 256",
        ),
        (
            path.with_read_depth(Some(3)),
            "read_depth is 3; it must be one of auto, 1",
        ),
        (
            path.with_ack_timeout(Some(11)),
            "ack_timeout is 11; it must be 12 to 20",
        ),
        (
            path.with_retry_count(8),
            "retry_count is 8; it must be 0 to 7",
        ),
        (path.with_rnr_retry(8), "rnr_retry is 8; it must be 0 to 7"),
        (
            path.with_hop_limit(0),
            "hop_limit is 0; it must be 1 to 255",
        ),
        (path.with_pkey(Some(0)), "pkey is 0; it must be 1 to 65535"),
    ] {
        let setup = on(Link::Ethernet, path);
        let hcas = Hcas::new(&setup);
        let refused = Rank::alone(setup.team, hcas.of(0), Arc::new(MemoryStore::new()));
        let error = refused.err().expect("a team with this path").to_string();
        assert!(error.contains(named), "{error}");
    }
}

/// What founders that ask for these numbers of QPs come to, and a rank that comes later, and a founder that comes back. Every pair
/// writes to each other by each of its QPs.
fn settled(founders: [u32; 2], later: u32) -> [u32; 3] {
    let mut setup = setup(3);
    setup.team.qps_per_peer = founders[0];
    let hcas = Hcas::new(&setup);
    let [first, second] = founders;
    let mut fleet = DrivenFleet::found_by(&setup, &hcas, RankSet::first(2), |config| {
        config.qps_per_peer = if config.rank == 0 { first } else { second };
    });
    let asks = |config: TeamConfig| config.with_qps_per_peer(later);
    // The founder that has asked for the fewest may be gone by then.
    let fewest = if first < second { 0 } else { 1 };
    fleet.talk_all();
    fleet.kill(fewest);
    fleet.fail(fewest);
    for (rank, generation) in [(2, 1), (fewest, 2)] {
        let config = asks(fleet.joining(rank, generation));
        let new = Rank::alone(config, hcas.of(rank), Arc::clone(&fleet.store)).unwrap();
        new.team.hello().unwrap();
        fleet.settle(new);
        fleet.connect(rank);
        fleet.open(rank);
        fleet.talk_all();
    }
    let counts = [1 - fewest, 2, fewest].map(|rank| fleet.rank(rank).team.config().qps_per_peer);
    drop(fleet);
    hcas.check();
    counts
}

#[test]
fn the_founder_that_asks_for_the_fewest_qps_decides_for_all() {
    let seed = fastrand::u64(..);
    println!("seed {seed:#x}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut cases = vec![[1, 64, 64], [64, 1, 1], [2, 3, 5], [3, 2, 1], [64, 64, 8]];
    cases.extend((0..3).map(|_| [(); 3].map(|()| random.u32(1..=64))));
    if full() {
        let counts = [1, 2, 3, 5, 8, 16, 33, 64];
        let pairs = counts.map(|a| counts.map(|b| [a, b, random.u32(1..=64)]));
        cases.extend(pairs.as_flattened());
    }
    println!("{} combinations of QP counts", cases.len());
    for [a, b, later] in cases {
        let fewest = a.min(b);
        assert_eq!(
            settled([a, b], later),
            [fewest; 3],
            "{a}, {b}, later {later}"
        );
    }
}

/// Returns what rank 0 says of rank 1, which comes with a port of its own.
fn refused(own: (Link, PathConfig), theirs: (Link, PathConfig)) -> String {
    refused_as(own, theirs, |_| ())
}

/// As `refused`, where `change` alters the port in the record of rank 1.
fn refused_as(
    own: (Link, PathConfig),
    theirs: (Link, PathConfig),
    change: impl Fn(&mut Value),
) -> String {
    let [own, theirs] = [own, theirs].map(|(link, path)| {
        let mut setup = on(link, path);
        if link == Link::InfiniBand {
            setup.hca.pkeys = KEYS.parse().unwrap();
        }
        setup
    });
    let (hcas, others) = (Hcas::new(&own), Hcas::new(&theirs));
    let fleet = DrivenFleet::found(&own, &hcas, RankSet::first(1));
    let config = fleet.joining(1, 1).with_path(theirs.team.path);
    let new = Rank::alone(config, others.of(1), Arc::clone(&fleet.store)).unwrap();
    new.team.hello().unwrap();
    let told = fleet.store.try_get(HELLO).unwrap().unwrap();
    let mut told: Value = serde_json::from_slice(&told).unwrap();
    change(&mut told["rails"][0]);
    fleet
        .store
        .put(HELLO, &serde_json::to_vec(&told).unwrap())
        .unwrap();
    let team = &fleet.rank(0).team;
    let before = team.commands();
    let refused = team.resolve_peer(1, 1, Duration::ZERO).unwrap_err();
    assert_eq!(team.commands(), before, "nothing is touched");
    refused.to_string()
}

/// The record of rank 1 for rank 0.
const HELLO: &str = "hello/1.1";
/// Partitions of the ports: the second and third have no member in common.
const KEYS: &str = "0xffff,0x8001,0x8002";

#[test]
fn ports_that_do_not_reach_each_other_are_refused_by_name() {
    let plain = PathConfig::default();
    let text = refused((Link::Ethernet, plain), (Link::InfiniBand, plain));
    assert_eq!(
        text,
        "link layer of rail 0 is Ethernet at rank 0 but InfiniBand at rank 1"
    );
    let v6 = plain.with_gid_index(Some(1));
    let text = refused((Link::Ethernet, plain), (Link::Ethernet, v6));
    assert!(
        text.starts_with("address family of rail 0 is IPv4 (127.") && text.contains("IPv6 (fe80::"),
        "{text}"
    );
}

#[test]
fn partitions_subnets_and_grhs_that_do_not_fit_are_refused_by_name() {
    let plain = PathConfig::default();
    let [own, theirs] = [0x8001, 0x8002].map(|key| (Link::InfiniBand, plain.with_pkey(Some(key))));
    assert_eq!(
        refused(own, theirs),
        "partition key of rail 0 is 0x8001 at rank 0 but 0x8002 at rank 1"
    );
    let local = (Link::InfiniBand, plain.with_grh(GrhUse::Never));
    let far = |port: &mut Value| port["gid"][1] = 0xc0.into();
    assert_eq!(
        refused_as(local, local, far),
        "subnet prefix (paths have no GRH) of rail 0 is 0xfe80000000000000 at rank 0 but 0xfec0000000000000 at rank 1"
    );
    let demands = |port: &mut Value| port["grh_required"] = true.into();
    assert_eq!(
        refused_as(local, local, demands),
        "need of a GRH (paths have none) of rail 0 is false at rank 0 but true at rank 1"
    );
}

#[test]
fn founders_whose_partitions_do_not_fit_take_no_qp_out_of_init() {
    let mut setup = on(Link::InfiniBand, PathConfig::default());
    setup.hca.pkeys = KEYS.parse().unwrap();
    let hcas = Hcas::new(&setup);
    hcas.all().for_each(|hca| hca.record_commands());
    let refused = test_support::ranks::on_threads(2, |number, store| {
        let key = if number == 0 { 0x8001 } else { 0x8002 };
        let config = setup.of_rank(number);
        let path = config.path.with_pkey(Some(key));
        let joined = Rank::alone(config.with_path(path), hcas.of(number), store);
        joined.map(drop).unwrap_err().to_string()
    });
    let of_rank_0 = "partition key of rail 0 is 0x8001 at rank 0 but 0x8002 at rank 1";
    let of_rank_1 = "partition key of rail 0 is 0x8002 at rank 1 but 0x8001 at rank 0";
    for text in refused {
        assert!(
            text.contains(of_rank_0) || text.contains(of_rank_1),
            "{text}"
        );
    }
    for hca in hcas.all() {
        let opcodes = hca.recorded_commands();
        let mut opcodes = opcodes.iter().map(|it| u16::from_be_bytes([it[0], it[1]]));
        assert!(opcodes.all(|opcode| opcode != Opcode::INIT2RTR_QP.0));
    }
    hcas.check();
}

#[test]
fn a_peer_without_a_mac_is_named_with_both_gids_and_the_interface() {
    let v6 = (
        Link::Ethernet,
        PathConfig::default().with_gid_index(Some(1)),
    );
    // An address that no software HCA has, and so no host that is asked for its MAC.
    let nowhere: Vec<u8> = [0xfe, 0x80]
        .into_iter()
        .chain([0; 13])
        .chain([0x77])
        .collect();
    let text = refused_as(v6, v6, |port| port["gid"] = nowhere.clone().into());
    let begin = "rank 1 is not reached: no MAC for fe80::77 from fe80::";
    assert!(text.starts_with(begin), "{text}");
    for part in [" on mlx5_", " (lo): ", "ip neigh", "ip route get"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn a_port_that_lacks_what_a_rank_asks_for_is_refused_with_its_table() {
    let plain = PathConfig::default();
    for (link, path, reason) in [
        (
            Link::InfiniBand,
            plain.with_pkey(Some(0x8001)),
            "partition key is 0x8001; it must be one of the port's 1: 0xffff",
        ),
        (
            Link::InfiniBand,
            plain.with_gid_index(Some(1)),
            "GID index is 1; it must be one of [0]",
        ),
        (
            Link::Ethernet,
            plain.with_gid_index(Some(4)),
            "GID index is 4; it must be one of [0, 1, 2, 3]",
        ),
        (
            Link::Ethernet,
            plain.with_priority(8),
            "priority is 8; it must be 0 to 7",
        ),
        (
            Link::Ethernet,
            plain.with_lag_port(Some(1)),
            "lag_port is 1; it must be 0 to 0",
        ),
        (
            Link::InfiniBand,
            plain.with_service_level(16),
            "service_level is 16; it must be 0 to 15",
        ),
        (
            Link::InfiniBand,
            plain.with_path_bits(128),
            "path_bits is 128; it must be 0 to 127",
        ),
        (
            Link::InfiniBand,
            plain.with_path_bits(1),
            "path bits is 1; it must be 0 to 0, as the port's LMC is 0",
        ),
        (
            Link::InfiniBand,
            plain.with_path_bits(8),
            "path bits is 8; it must be 0 to 7, as the port's LMC is 3",
        ),
    ] {
        let mut setup = on(link, path);
        setup.hca.lmc = if reason.ends_with('3') { 3 } else { 0 };
        let hcas = Hcas::new(&setup);
        let one = test_support::ranks::on_threads(2, |number, store| {
            let joined = Rank::alone(setup.of_rank(number), hcas.of(number), store);
            joined.map(drop).unwrap_err().to_string()
        });
        for text in one {
            assert!(text.contains(reason), "{text}");
        }
        hcas.check();
    }
}
