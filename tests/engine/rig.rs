//! Engines on software HCAs of this process, connected over loopback, and memory whose every byte is known. Another provider may drive
//! them (`drivers`).

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use softhca::{Hca, HcaConfig};
use test_support::hca::hca_with;
use test_support::limits::HANG;
use warpverbs::internal::engine::{
    Engine, EngineAddress, EngineConfig, EnginePath, HostMemory, Outcome, Peer, RegionId,
    SinkFault, Status, TransferId, over,
};
use warpverbs::internal::provider::Sink;
use warpverbs::verbs::{Context, DeviceSelector};

use crate::drivers::engine_on;

pub(crate) const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Where the engine listens on loopback from now on.
pub(crate) fn listens(engine: &Engine) -> SocketAddr {
    match engine.listen(LOOPBACK.into()).unwrap() {
        EngineAddress::Tcp(address) => address,
        other @ EngineAddress::Unix(_) => panic!("{other}"),
    }
}

/// Returns an engine over lanes without an HCA, and its only peer. All addresses below `bytes` are registered at both ends. The first lane has
/// the fault.
pub(crate) fn over_sinks(
    config: EngineConfig,
    bytes: u64,
    fault: Option<SinkFault>,
) -> (Engine, Peer) {
    over(config, bytes, |config| Sink::lanes(config, fault)).unwrap()
}

/// An engine with one region.
pub(crate) struct Side {
    pub(crate) memory: Arc<HostMemory>,
    pub(crate) region: RegionId,
    pub(crate) engine: Engine,
}

impl Side {
    pub(crate) fn new(engine: Engine, memory: HostMemory) -> Self {
        let memory = Arc::new(memory);
        let region = engine.register(&memory).unwrap();
        Self {
            memory,
            region,
            engine,
        }
    }

    /// Where byte `offset` of its region lies.
    pub(crate) fn at(&self, offset: u64) -> u64 {
        self.memory.address() + offset
    }

    pub(crate) fn fill(&self, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.memory.bytes()).unwrap()];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        self.memory.write(0, &bytes).unwrap();
        bytes
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.memory.bytes()).unwrap()];
        self.memory.read(0, &mut bytes).unwrap();
        bytes
    }

    #[track_caller]
    pub(crate) fn concluded(&self, id: TransferId) -> Outcome {
        match self.engine.wait(id, HANG).unwrap() {
            Status::Concluded(outcome) => outcome,
            other => panic!("{id:?}: {other:?}"),
        }
    }
}

/// One on an HCA of its own. Where libfabric drives the engine, nothing uses the HCA.
pub(crate) struct End {
    pub(crate) side: Side,
    pub(crate) context: Arc<Context>,
    /// Goes last.
    pub(crate) hca: Hca,
}

impl Deref for End {
    type Target = Side;

    fn deref(&self) -> &Side {
        &self.side
    }
}

impl End {
    pub(crate) fn new(config: EngineConfig, bytes: u64) -> Self {
        Self::on(HcaConfig::default(), config, bytes)
    }

    pub(crate) fn on(hca: HcaConfig, config: EngineConfig, bytes: u64) -> Self {
        Self::over(hca, config, HostMemory::new(bytes).unwrap())
    }

    /// On the port of the HCA that the configuration of the engine names.
    pub(crate) fn on_port(hca: HcaConfig, port: u8, config: EngineConfig, bytes: u64) -> Self {
        let hca = hca_with(hca);
        let name = format!("{}:{port}", hca.name());
        let config = config.with_device(name.parse().unwrap());
        let context = Engine::open_devices(&config).unwrap().remove(0);
        let engine = engine_on(&context, config);
        let memory = HostMemory::new(bytes).unwrap();
        Self {
            side: Side::new(engine, memory),
            context,
            hca,
        }
    }

    pub(crate) fn over(hca: HcaConfig, config: EngineConfig, memory: HostMemory) -> Self {
        let (hca, context) = device(hca);
        let engine = engine_on(&context, config);
        Self {
            side: Side::new(engine, memory),
            context,
            hca,
        }
    }
}

/// An HCA, opened.
pub(crate) fn device(config: HcaConfig) -> (Hca, Arc<Context>) {
    let hca = hca_with(config);
    let context = Context::open(&DeviceSelector::Name(hca.name().to_owned())).unwrap();
    (hca, context)
}

/// Connects two ends, each of which knows the region of the other.
pub(crate) fn connect(a: &Side, b: &Side) -> [Peer; 2] {
    let address = listens(&b.engine);
    connect_by(&address.to_string(), a, b)
}

/// Connects two ends, each of which knows the region of the other. The second listens, and the first reaches it at `address`.
pub(crate) fn connect_by(address: &str, a: &Side, b: &Side) -> [Peer; 2] {
    let to_b = a.engine.connect(address).unwrap();
    let to_a = b.engine.accept(HANG).expect("it has connected");
    let import = |peer: &Peer, end: &Side| {
        let descriptor = end.engine.descriptor(end.region).unwrap();
        peer.import(&descriptor).unwrap();
    };
    import(&to_b, b);
    import(&to_a, a);
    [to_b, to_a]
}

/// Writes all of this end's region to the peer, where its own lies at `at`, and reads it back.
pub(crate) fn moves(own: &Side, peer: &Peer, at: u64) {
    let expected = own.fill(5);
    let bytes = own.memory.bytes();
    let id = peer.write(own.at(0), at, bytes).unwrap();
    assert_eq!(own.concluded(id), Outcome::Done);
    own.fill(6);
    let id = peer.read(own.at(0), at, bytes).unwrap();
    assert_eq!(own.concluded(id), Outcome::Done);
    assert!(own.bytes() == expected);
}

pub(crate) fn config(name: &str) -> EngineConfig {
    EngineConfig::new(name)
        .with_log_depth(8)
        .with_log_entries(12)
        .with_transfers(64)
        .with_connect_timeout(HANG)
        .with_grace(HANG)
        .with_drain(HANG)
        .with_engine_path(EnginePath::Nic)
}

/// Two connected ends of `bytes` bytes each.
pub(crate) fn pair(bytes: u64) -> (End, End, [Peer; 2]) {
    let a = End::new(config("a"), bytes);
    let b = End::new(config("b"), bytes);
    let peers = connect(&a, &b);
    (a, b, peers)
}

/// Short enough that a test may wait for it in vain.
pub(crate) const SHORT: Duration = Duration::from_millis(20);

/// A message as engines send it, with the version that they speak.
pub(crate) fn frame(body: &str) -> Vec<u8> {
    let mut frame = b"WVEN".to_vec();
    frame.extend([7, 0, 1, 0]);
    frame.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
    frame.extend(body.as_bytes());
    frame
}

/// A hello of an engine as the other end of the connection would say it, from an engine of this name that has no board. Any other
/// message stays.
pub(crate) fn as_other(message: &str, name: &str) -> String {
    as_beside(message, name, None)
}

/// As `as_other`, with what the hello `beside` says of its process and its board; none: no board.
pub(crate) fn as_beside(message: &str, name: &str, beside: Option<&str>) -> String {
    let mut said: serde_json::Value = serde_json::from_str(message).unwrap();
    let Some(hello) = said.get_mut("hello") else {
        return message.to_owned();
    };
    hello["nonce"] = vec![fastrand::u64(..); 4].into();
    hello["end"] = match hello["end"].as_str() {
        Some("accepts") => "connects".into(),
        _ => "accepts".into(),
    };
    let engine = hello["engine"].as_object_mut().unwrap();
    engine.insert("name".to_owned(), name.into());
    engine.remove("local");
    if let Some(beside) = beside {
        let other: serde_json::Value = serde_json::from_str(beside).unwrap();
        for field in ["incarnation", "process", "local"] {
            let value = other["hello"]["engine"][field].clone();
            engine.insert(field.to_owned(), value);
        }
    }
    said.to_string()
}

/// Returns what an engine offers, with the numbers of other QPs.
pub(crate) fn other_qps(message: &str) -> String {
    let mut said: serde_json::Value = serde_json::from_str(message).unwrap();
    for offer in said["offers"].as_array_mut().unwrap() {
        let qpn = offer["qpn"].as_u64().unwrap();
        offer["qpn"] = (qpn ^ 0x80_0000).into();
    }
    said.to_string()
}

/// The next message of an engine.
pub(crate) fn message(stream: &mut impl Read) -> String {
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    let length = u32::from_le_bytes(head[8..].try_into().unwrap());
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}
