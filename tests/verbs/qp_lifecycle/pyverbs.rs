//! A QP of ours and an RC QP of pyverbs (Debian's python3-pyverbs), which is a program that nobody here wrote: by LID, by LID and
//! GRH, over IPv4 and over IPv6; each writes into the other's memory, and the other reads what was written.

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
    AddressVector, Gid, GlobalRoute, InfinibandAddress, Mtu, PathAttr, QpConfig, QpState,
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
        .ready_to_send(&SendAttr::new(PSN).with_timeout(17))
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
    // What the other end's kernel says of the connection, against what was given here.
    assert_eq!(number(&seen, "state"), u32::from(QpState::RTS.0), "{seen}");
    assert_eq!(number(&seen, "dest"), qp.qpn(), "{seen}");
    assert_eq!(number(&seen, "rq_psn"), PSN, "{seen}");
    assert_eq!(number(&seen, "mtu"), Mtu::B1024 as u32, "{seen}");
    if way.link() == Link::InfiniBand {
        assert_eq!(number(&seen, "lid"), u32::from(port.lid), "{seen}");
        assert_eq!(number(&seen, "service_level"), service_level, "{seen}");
    }
    assert_eq!(seen["is_global"], has_gid, "{seen}");
    let status = qp.query().unwrap();
    assert_eq!(status.state, QpState::RTS);
    assert_eq!(status.next_rcv_psn, number(&theirs, "psn"));

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
