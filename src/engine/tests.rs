//! Engines whose threads panic, as only this module can make them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use softhca::device::FaultSpec;
use softhca::{Hca, HcaConfig};
use test_basics::limits::{HANG, until};

use super::link::Planted;
use super::queue::Item;
use super::{
    Engine, EngineConfig, EngineError, HostMemory, Outcome, Peer, RegionId, Remote, Report, Status,
    TransferId,
};
use crate::verbs::{Context, DeviceSelector};

const MIB: u64 = 1 << 20;

struct End {
    memory: Arc<HostMemory>,
    region: RegionId,
    engine: Engine,
    hca: Hca,
}

impl End {
    fn new(name: &str) -> Self {
        let config = HcaConfig {
            loopback: false,
            ..HcaConfig::default()
        };
        let hca = Hca::with_config(config).unwrap();
        let context = Context::open(&DeviceSelector::Name(hca.name().to_owned())).unwrap();
        let config = EngineConfig::new(name)
            .with_workers(2)
            .with_log_depth(8)
            .with_log_entries(12)
            .with_transfers(64)
            .with_connect_timeout(HANG)
            .with_drain(HANG);
        let engine = Engine::new(&context, config).unwrap();
        let memory = Arc::new(HostMemory::new(MIB).unwrap());
        let region = engine.register(&memory).unwrap();
        Self {
            memory,
            region,
            engine,
            hca,
        }
    }

    fn listen(&self) -> String {
        let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        self.engine.listen(loopback).unwrap().to_string()
    }

    fn report(&self, id: TransferId) -> Report {
        let status = self.engine.wait(id, HANG).unwrap();
        assert!(matches!(status, Status::Concluded(_)), "{id:?}: {status:?}");
        self.engine.report(id).unwrap()
    }
}

fn connect(from: &End, to: &End) -> [Peer; 2] {
    let there = from.engine.connect(&to.listen()).unwrap();
    let here = to.engine.accept(HANG).expect("it has connected");
    let descriptor = to.engine.descriptor(to.region).unwrap();
    there.import(&descriptor).unwrap();
    [there, here]
}

#[test]
fn a_worker_that_panics_ends_its_connections_and_what_it_held_is_concluded() {
    let [a, b, c] = ["a", "b", "c"].map(End::new);
    let [to_b, from_a] = connect(&a, &b);
    let [to_c, _] = connect(&b, &c);
    // Nothing that is posted completes: both workers hold slices.
    let partition: FaultSpec = "partition=*".parse().unwrap();
    a.hca.set_faults(&partition);
    let address = [&a, &b].map(|end| end.memory.address());
    let write = to_b.write(address[0], address[1], MIB).unwrap();
    // Small ones go to the workers in turn.
    let small = [0, 8].map(|at| to_b.read(address[0] + at, address[1], 8).unwrap());
    let cancelled = to_b.write(address[0], address[1], MIB).unwrap();
    a.engine.cancel(cancelled).unwrap();
    a.engine.inner.transfers.queue(1).push(Item::Panic);
    let mut lost = 0;
    for (id, outcome) in [
        (write, Outcome::Failed),
        (small[0], Outcome::Failed),
        (small[1], Outcome::Failed),
        (cancelled, Outcome::Cancelled),
    ] {
        let report = a.report(id);
        assert_eq!((report.outcome, report.remote), (outcome, Remote::Quiet));
        assert_eq!(report.bytes_landed, 0, "{report:?}");
        match (report.panicked, report.first.and_then(|first| first.cause)) {
            (Some(panicked), _) => {
                let found = (&*panicked.thread, &*panicked.message);
                assert_eq!(found, ("wv-engine-1", "planted"));
                lost += 1;
            }
            (None, Some(cause)) => assert!(cause.is_flush(), "{cause}"),
            (None, None) => assert_eq!(outcome, Outcome::Cancelled, "it has a cause"),
        }
    }
    assert!(lost > 0, "worker 1 had one of the small ones");
    a.hca.set_faults(&FaultSpec::default());
    // The connection has ended at both ends, and the engine takes no other.
    let refused = to_b.write(address[0], address[1], 8).unwrap_err();
    assert!(
        matches!(refused, EngineError::WorkerPanicked(_)),
        "{refused}"
    );
    until("the other end has found out", || !from_a.is_open());
    let refused = a.engine.connect(&c.listen()).unwrap_err().to_string();
    assert!(refused.contains("'wv-engine-1'"), "{refused}");
    let refused = c.engine.connect(&a.listen()).unwrap_err().to_string();
    assert!(refused.contains("'wv-engine-1'"), "{refused}");
    // Others go on.
    let id = to_c.write(address[1], c.memory.address(), MIB).unwrap();
    assert_eq!(b.report(id).outcome, Outcome::Done);
    assert_eq!(a.engine.close().cut_off, 0);
}

#[test]
fn a_control_thread_that_panics_ends_its_connection_and_no_transfer_hangs() {
    for planted in [Planted::Watch, Planted::End] {
        let [a, b] = ["a", "b"].map(End::new);
        let [to_b, from_a] = connect(&a, &b);
        let address = [&a, &b].map(|end| end.memory.address());
        // Nothing that is posted completes: the transfer runs when the thread panics.
        a.hca.set_faults(&"partition=*".parse().unwrap());
        let write = to_b.write(address[0], address[1], MIB).unwrap();
        to_b.link.plant(planted);
        if planted == Planted::End {
            from_a.break_off();
        }
        let report = a.report(write);
        assert_eq!(report.outcome, Outcome::Failed, "{planted:?}: {report:?}");
        assert_eq!(report.remote, Remote::Unknown, "{planted:?}");
        let gone = a.engine.peer_gone(HANG).expect("it is told");
        assert!(gone.reason.contains("'wv-engine-peer'"), "{gone:?}");
        assert!(gone.reason.contains("planted"), "{gone:?}");
        let refused = to_b.write(address[0], address[1], 8).unwrap_err();
        assert!(matches!(refused, EngineError::PeerGone { .. }), "{refused}");
        until("the other end has found out", || !from_a.is_open());
        a.hca.set_faults(&FaultSpec::default());
        // The engine goes on.
        let again = a.engine.connect(&b.listen()).unwrap();
        again
            .import(&b.engine.descriptor(b.region).unwrap())
            .unwrap();
        let id = again.write(address[0], address[1], MIB).unwrap();
        assert_eq!(a.report(id).outcome, Outcome::Done, "{planted:?}");
        a.engine.release(write).unwrap();
        assert_eq!(a.engine.close().cut_off, 0);
    }
}
