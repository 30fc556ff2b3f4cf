//! A QP of ours and an RC QP of pyverbs (Debian's python3-pyverbs), which is no program of this project. They meet by LID, by LID
//! and GRH, over IPv4 and over IPv6. Each writes into the other's memory, and the other reads what was written.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv6Addr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use mlx5_prm::cqe::CqeOpcode;
use serde_json::{Value, json};
use softhca::HcaConfig;
use softhca::link::Link;
use softhca::profile::Profile;
use test_basics::pyverbs;
use test_support::hca::hca_with;
use test_support::node::Node;
use warpverbs::verbs::{
    AddressVector, Ads, Gid, GlobalRoute, InfinibandAddress, Mtu, PathAttr, QpConfig, QpState, Qpc,
    RoceAddress, SendAttr,
};

use crate::poster::{End, Poster, WINDOW};

const PSN: u32 = 0x54_3210;

/// The program at the other end, killed when it is dropped.
struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    fn start(way: Way, runtime: &Path) -> Self {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verbs/qp_lifecycle/rc_peer.py");
        let library = std::env::current_exe()
            .unwrap()
            .with_file_name("libsofthca.so");
        assert!(library.exists(), "{} was not built", library.display());
        let mut child = Command::new(pyverbs::PYTHON)
            .arg(script)
            .args(["mlx5_0", &way.gid_index().to_string()])
            .env("LD_PRELOAD", library)
            .env("XDG_RUNTIME_DIR", runtime)
            .env("SOFTHCA_LINK", way.link().to_string())
            .env("SOFTHCA_PROFILE", way.profile().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            to: child.stdin.take().unwrap(),
            from: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    #[track_caller]
    fn heard(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn tell(&mut self, word: &str) {
        writeln!(self.to, "{word}").unwrap();
        self.to.flush().unwrap();
    }

    #[track_caller]
    fn ask(&mut self, word: &str) -> Value {
        self.tell(word);
        self.heard()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn number(of: &Value, name: &str) -> u32 {
    u32::try_from(of[name].as_u64().unwrap()).unwrap()
}

/// How the QPs find each other.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// By these entries of both GID tables.
    Roce(u32),
    /// By IPv4, from ports of link aggregation groups.
    Bond,
    Lid,
    LidAndGid,
}

impl Way {
    fn link(self) -> Link {
        match self {
            Self::Roce(_) | Self::Bond => Link::Ethernet,
            Self::Lid | Self::LidAndGid => Link::InfiniBand,
        }
    }

    fn profile(self) -> Profile {
        match self {
            Self::Bond => Profile::ConnectX7Lag,
            _ => Profile::default(),
        }
    }

    fn gid_index(self) -> u32 {
        match self {
            Self::Roce(index) => index,
            Self::Bond => 3,
            Self::Lid | Self::LidAndGid => 0,
        }
    }

    /// From here to `peer`.
    fn address(self, peer: &Value) -> AddressVector {
        let gid = peer["gid"].as_str().unwrap().parse::<Ipv6Addr>().unwrap();
        let gid = Gid(gid.octets());
        let lid = InfinibandAddress::new(u16::try_from(number(peer, "lid")).unwrap());
        match self {
            Self::Roce(_) | Self::Bond => RoceAddress::new(gid)
                .with_gid_index(Some(self.gid_index()))
                .into(),
            Self::Lid => lid.with_service_level(3).into(),
            Self::LidAndGid => lid.with_grh(Some(GlobalRoute::new(gid))).into(),
        }
    }
}

fn talk(way: Way) {
    let runtime = tempfile::tempdir().unwrap();
    let mut peer = Peer::start(way, runtime.path());
    let theirs = peer.heard();
    let hca = hca_with(HcaConfig {
        link: way.link(),
        profile: way.profile(),
        ..HcaConfig::default()
    });
    let node = Node::open(&hca, 1 << 20).unwrap();
    let gid = node.context.gid(way.gid_index()).unwrap();
    let port = node.context.port().clone();
    let window = node.window(WINDOW as usize).unwrap();
    let end = End { window, node, hca };
    end.fill(b'o');

    let qp = end.node.qp(&QpConfig::default()).unwrap();
    let path = PathAttr::new(
        number(&theirs, "qpn"),
        way.address(&theirs),
        number(&theirs, "psn"),
    );
    let qp = qp.init().unwrap();
    let qp = qp
        .ready_to_receive(&path.with_mtu(Some(Mtu::B1024)))
        .unwrap();
    let qp = qp
        .ready_to_send(
            &SendAttr::new(PSN)
                .with_timeout(17)
                .with_log_peer_reads(Some(2)),
        )
        .unwrap();
    let has_gid = !matches!(way, Way::Lid);
    let service_level = u32::from(matches!(way, Way::Lid)) * 3;
    let own = json!({
        "qpn": qp.qpn(),
        "psn": PSN,
        "gid": has_gid.then(|| gid.to_string()),
        "gid_index": way.gid_index(),
        "lid": port.lid,
        "service_level": service_level,
        "addr": end.window.addr(),
        "rkey": end.window.rkey(),
    });
    let seen = peer.ask(&own.to_string());
    let context = qp.query_context().unwrap();
    assert_contexts_agree(&context, (&theirs, &own), &seen, way.link());

    // Ours writes, and they find it in their memory.
    let mut poster = Poster::new(&end, &qp, 0);
    let to = (theirs["addr"].as_u64().unwrap(), number(&theirs, "rkey"));
    let index = poster.write_to(to, None);
    poster.ring();
    assert_eq!(poster.completion(index).opcode(), CqeOpcode::REQ);
    assert_eq!(peer.ask("look"), json!({"bytes": ["o"]}));
    // They write.
    assert_eq!(peer.ask("write"), json!({"status": 0}));
    assert_eq!(end.bytes(), [b'w'; WINDOW as usize]);
    // They read.
    end.fill(b'r');
    assert_eq!(peer.ask("read"), json!({"status": 0}));
    assert_eq!(peer.ask("look"), json!({"bytes": ["r"]}));
    peer.tell("end");
    assert!(peer.child.wait().unwrap().success());
    drop(qp);
    assert_eq!(end.hca.findings(), Vec::<String>::new());
}

/// What each end keeps for itself, and why the other's need not be the same.
const OWN: [(&str, &str); 8] = [
    (
        "max_dest_rd_atomic",
        "what an end takes at once is its own affair, up to its device's limit: ours takes all that it can",
    ),
    ("max_send_wr", "the depth of each queue is its own"),
    ("max_recv_wr", "ours has no receive queue"),
    ("max_send_sge", "the form of its WQEs is each end's own"),
    ("max_recv_sge", "ours has no receive queue"),
    ("max_inline_data", "the form of its WQEs is each end's own"),
    (
        "en_sqd_async_notify",
        "asks a transition for an event; no context keeps it",
    ),
    (
        "rate_limit",
        "asks for a pace of packets; no context keeps it",
    ),
];

/// Fields of `struct ibv_qp_attr` at their end, as the context of ours has them: straight, or crosswise where one end is named to
/// the other.
fn state(ours: &Qpc, own: &Value) -> Vec<(&'static str, Value)> {
    /// `IBV_QPS_RTS`, `IBV_MIG_MIGRATED`, and the bits of rights.
    const RTS: u32 = 3;
    const MIGRATED: u32 = 0;
    let rights = ours.rwe() << 1 | ours.rre() << 2 | ours.rae() << 3;
    let (path, other) = (ours.primary_address_path(), ours.secondary_address_path());
    vec![
        ("qp_state", json!(RTS)),
        ("cur_qp_state", json!(RTS)),
        ("path_mtu", json!(ours.mtu())),
        ("path_mig_state", json!(MIGRATED)),
        ("qkey", json!(ours.q_key())),
        ("rq_psn", json!(ours.next_send_psn())),
        ("sq_psn", json!(ours.next_rcv_psn())),
        ("dest_qp_num", own["qpn"].clone()),
        ("qp_access_flags", json!(rights)),
        ("pkey_index", json!(path.pkey_index())),
        ("sq_draining", json!(0)),
        ("max_rd_atomic", json!(1 << ours.log_sra_max())),
        ("min_rnr_timer", json!(ours.min_rnr_nak())),
        ("port_num", json!(path.vhca_port_num())),
        ("timeout", json!(path.ack_timeout())),
        ("retry_cnt", json!(ours.retry_count())),
        ("rnr_retry", json!(ours.rnr_retry())),
        ("alt_pkey_index", json!(other.pkey_index())),
        ("alt_port_num", json!(other.vhca_port_num())),
        ("alt_timeout", json!(other.ack_timeout())),
    ]
}

/// As `state`, of `struct ibv_ah_attr`.
fn address(path: &Ads, own: &Value, link: Link) -> Vec<(&'static str, Value)> {
    let has_gid = own["gid"] != Value::Null;
    let (priority, global) = match link {
        Link::Ethernet => (path.eth_prio(), true),
        Link::InfiniBand => (path.sl(), path.grh() != 0),
    };
    assert_eq!(global, has_gid, "{path:?}");
    let mut fields = vec![
        ("is_global", json!(u32::from(has_gid))),
        ("dlid", own["lid"].clone()),
        ("sl", json!(priority)),
        ("src_path_bits", json!(path.mlid())),
        ("static_rate", json!(path.stat_rate())),
    ];
    if has_gid {
        let gid: Ipv6Addr = own["gid"].as_str().unwrap().parse().unwrap();
        fields.extend([
            ("dgid", json!(gid)),
            ("sgid_index", json!(path.src_addr_index())),
            ("flow_label", json!(path.flow_label())),
            ("traffic_class", json!(path.tclass())),
            ("hop_limit", json!(path.hop_limit())),
        ]);
    }
    fields
}

/// QUERY_QP of ours agrees with what `ibv_query_qp` at the other end says, `seen`, in every field that it has.
fn assert_contexts_agree(ours: &Qpc, (theirs, own): (&Value, &Value), seen: &Value, link: Link) {
    let path = ours.primary_address_path();
    assert_eq!(ours.state(), u32::from(QpState::RTS.0));
    assert_eq!(ours.pm_state(), Qpc::PM_STATE_MIGRATED);
    assert_eq!(ours.remote_qpn(), number(theirs, "qpn"));
    assert_eq!(ours.next_rcv_psn(), number(theirs, "psn"));
    assert_eq!(ours.next_send_psn(), PSN);
    match link {
        Link::Ethernet => assert_eq!(path.rlid(), 0),
        Link::InfiniBand => assert_eq!(path.rlid(), number(theirs, "lid")),
    }
    if own["gid"] != Value::Null {
        let gid: Ipv6Addr = theirs["gid"].as_str().unwrap().parse().unwrap();
        assert_eq!(Ipv6Addr::from(path.rgid_rip()), gid);
    }
    let mut seen = seen.as_object().unwrap().clone();
    if let Some(text) = seen["dgid"].as_str() {
        // pyverbs writes the address out in full.
        seen["dgid"] = json!(text.parse::<Ipv6Addr>().unwrap());
    }
    for (name, expected) in [state(ours, own), address(path, own, link)].concat() {
        let found = seen.remove(name);
        assert_eq!(found, Some(expected), "{name} at the other end");
    }
    for (name, why) in OWN {
        let found = seen.remove(name);
        assert!(found.is_some(), "{name}: {why}");
    }
    // Without a GRH pyverbs reports nothing of one.
    seen.retain(|_, value| *value != Value::Null);
    assert!(
        seen.is_empty(),
        "neither compared nor with a reason: {seen:?}"
    );
}

#[test]
fn a_qp_talks_to_one_of_pyverbs_in_every_way() {
    if !pyverbs::is_installed("a QP beside one of pyverbs") {
        return;
    }
    // Entries 1 and 3 of a software HCA: RoCEv2 by its link-local IPv6 address, and by its IPv4 address.
    for way in [
        Way::Roce(3),
        Way::Roce(1),
        Way::Bond,
        Way::Lid,
        Way::LidAndGid,
    ] {
        println!("{way:?}");
        talk(way);
    }
}
