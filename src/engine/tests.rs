//! Tests of engines whose threads panic or whose clocks are ahead. Only this module can make such engines.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use softhca::device::FaultSpec;
use softhca::{Hca, HcaConfig};
use test_basics::limits::{HANG, until};

use crate::engine::lock::lock;
use crate::engine::memory::registry::Step;
use crate::engine::route::fences::Planted;
use crate::engine::transfers::queue::Item;
use crate::engine::{
    Engine, EngineConfig, EngineCq, EngineError, EnginePath, HostError, HostMemory, Outcome, Peer,
    RegionId, Remote, Report, Rights, Status, TransferId,
};
use crate::verbs::{Context, DeviceSelector};

mod ofi;

const MIB: u64 = 1 << 20;

struct End {
    memory: Arc<HostMemory>,
    region: RegionId,
    engine: Engine,
    hca: Hca,
}

impl End {
    fn new(name: &str) -> Self {
        Self::with(name, EngineCq::Worker)
    }

    fn with(name: &str, cq: EngineCq) -> Self {
        let config = HcaConfig {
            loopback: false,
            ..HcaConfig::default()
        };
        let hca = Hca::with_config(config).unwrap();
        let context = Context::open(&DeviceSelector::Name(hca.name().to_owned())).unwrap();
        let config = EngineConfig::new(name)
            .with_workers(2)
            .with_cq(cq)
            .with_log_depth(8)
            .with_log_entries(12)
            .with_transfers(64)
            .with_engine_path(EnginePath::Nic)
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
        self.engine.listen(loopback.into()).unwrap().to_string()
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
fn a_panicking_worker_ends_its_connections_and_concludes_its_transfers() {
    for cq in [EngineCq::Worker, EngineCq::Nic] {
        one_worker_panics(["a", "b", "c"].map(|name| End::with(name, cq)));
    }
}

fn one_worker_panics([a, b, c]: [End; 3]) {
    let [to_b, from_a] = connect(&a, &b);
    let [to_c, _] = connect(&b, &c);
    // Nothing that is posted completes: both workers hold slices.
    let partition: FaultSpec = "partition=*".parse().unwrap();
    a.hca.set_faults(&partition);
    let address = [&a, &b].map(|end| end.memory.address());
    let write = to_b.write(address[0], address[1], MIB).unwrap();
    // Small transfers go to the workers in turn.
    let small = [0, 8].map(|at| to_b.read(address[0] + at, address[1], 8).unwrap());
    let cancelled = to_b.write(address[0], address[1], MIB).unwrap();
    a.engine.cancel(cancelled).unwrap();
    a.engine
        .inner
        .core
        .transfers
        .queues()
        .of(1)
        .push(Item::Panic);
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
    // Other connections go on.
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
        // No slice of a transfer can land before a worker has begun it.
        until("slices are posted", || {
            a.engine.statistics().slices.posted > 0
        });
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

#[test]
fn a_grant_ends_when_its_time_is_over_without_a_question() {
    const HOUR: Duration = Duration::from_secs(3600);
    let [a, b] = ["a", "b"].map(End::new);
    let [to_b, to_a] = connect(&a, &b);
    let here = a.memory.address();
    let region = b.memory.address();
    let grant = |time| to_a.grant(region, 64, Rights::Read, time).unwrap();
    let [short, long] = [grant(Some(HOUR)), grant(Some(2 * HOUR))];
    let without = grant(None);
    let read = |grant: &crate::engine::Grant| {
        to_b.import_grant(grant).unwrap();
        let id = to_b.read(here, grant.address, 64).unwrap();
        a.report(id).outcome
    };
    let outcomes = |of: [&crate::engine::Grant; 3]| of.map(read);
    let all = [&short, &long, &without];
    assert_eq!(outcomes(all), [Outcome::Done; 3]);
    let keys = &b.engine.inner.core.keys;
    for (left, expected) in [
        (2, [Outcome::Failed, Outcome::Done, Outcome::Done]),
        (1, [Outcome::Failed, Outcome::Failed, Outcome::Done]),
    ] {
        keys.clock.advance(HOUR);
        to_a.link.wake().unwrap().wake();
        until("its key is ended", || b.engine.grants() == left);
        assert_eq!(outcomes(all), expected);
    }
    // A thread that waits to take the region away wakes at the end of a key too.
    b.engine.revoke(&without).unwrap();
    grant(Some(HOUR));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| b.engine.deregister_wait(b.region, HANG));
        keys.clock.advance(HOUR);
        to_a.link.wake().unwrap().wake();
        waiter.join().unwrap().unwrap();
    });
}

#[test]
fn while_a_region_waits_for_peers_others_are_registered() {
    let end = End::new("a");
    let inner = &end.engine.inner;
    let leave = || lock(&inner.regions).leave(end.region).unwrap();
    let Step::Waits(leaving) = leave() else {
        panic!("it has one region");
    };
    // The lock is free now. In this time a peer may still copy.
    let other = Arc::new(HostMemory::new(4096).unwrap());
    let region = end.engine.register(&other).unwrap();
    end.engine.deregister(region).unwrap();
    assert!(matches!(leave(), Step::Taken));
    assert!(lock(&inner.regions).is_leaving(&(&end.memory).into()));
    assert!(!lock(&inner.regions).is_leaving(&(&other).into()));
    // The region stays if a peer does not end its copy.
    let number = end.region.number();
    let kept = lock(&inner.regions).finish(&leaving, Err(3)).unwrap_err();
    let busy = EngineError::Busy { number, users: 3 };
    assert!(matches!(kept, HostError::Refused(error) if error == busy));
    assert!(!lock(&inner.regions).is_leaving(&(&end.memory).into()));
    let again = end.engine.register(&end.memory).unwrap();
    end.engine.deregister(again).unwrap();
    let Step::Waits(leaving) = leave() else {
        panic!("it is the last");
    };
    std::thread::scope(|scope| {
        // A second caller waits for the result of the first.
        let second = scope.spawn(|| end.engine.deregister(end.region));
        lock(&inner.regions)
            .finish(&leaving, leaving.wait())
            .unwrap();
        inner.left.notify_all();
        let gone = second.join().unwrap().unwrap_err();
        let unknown = EngineError::UnknownRegion { number };
        assert!(matches!(gone, HostError::Refused(error) if error == unknown));
    });
    let anew = end.engine.register(&end.memory).unwrap();
    assert_ne!(anew, end.region);
}

#[test]
fn memory_for_queues_at_the_start_does_not_grow_with_peers() {
    let hca = Hca::new().unwrap();
    let context = Context::open(&DeviceSelector::Name(hca.name().to_owned())).unwrap();
    let start = |peers: Option<&str>| {
        let before = hca.live_objects();
        let variable = |name: &str| peers.filter(|_| name == "WARPVERBS_ENGINE_PEERS");
        let variable = |name: &str| variable(name).map(str::to_owned);
        let config = EngineConfig::from_variables("a", variable).unwrap();
        let engine = Engine::new(&context, config).unwrap();
        let after = hca.live_objects();
        let objects = [after.cq - before.cq, after.umem - before.umem];
        (engine.inner.core.rails.all()[0].bytes(), objects)
    };
    let (bytes, objects) = start(None);
    assert_eq!(objects, [2, 1]);
    assert!(bytes <= 5 * MIB, "{bytes}");
    for peers in ["16", "1024", "65536"] {
        assert_eq!(start(Some(peers)), (bytes, objects), "{peers} peers");
    }
    // An engine for fewer peers has less memory.
    let (least, _) = start(Some("1"));
    assert!(least < bytes / 8, "{least} of {bytes}");
}
