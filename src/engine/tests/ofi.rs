//! Engines over libfabric: over providers of the installed library that need no device, and over softofi.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use softhca::Hca;
use test_basics::limits::{HANG, until};

use crate::engine::{
    Engine, EngineConfig, EngineCq, EngineDevice, EnginePath, HostMemory, Kind, Operation, Options,
    Outcome, Peer, RegionId, Remote, Report, Rights, Status, TransferId,
};
use crate::provider::OfiDevice;
use crate::provider::ofi::tests::device;
use crate::verbs::{Context, DeviceSelector};

mod draw;
mod end;
mod run;
mod seeds;

const MIB: u64 = 1 << 20;
/// The providers, of which a test leaves out those that the machine has not.
const PROVIDERS: [&str; 3] = [
    "tcp;ofi_rxm",
    "softofi:profile=efa-direct,again=100,warmup=20,seed=5",
    "softofi:profile=efa,again=100,warmup=20,seed=6",
];

struct End {
    memory: Arc<HostMemory>,
    region: RegionId,
    engine: Engine,
}

fn config(name: &str) -> EngineConfig {
    EngineConfig::new(name)
        .with_workers(1)
        .with_qps(2)
        .with_log_depth(8)
        .with_log_entries(11)
        .with_transfers(64)
        .with_engine_path(EnginePath::Nic)
        .with_connect_timeout(HANG)
        .with_drain(HANG)
}

impl End {
    fn new(name: &str, device: &OfiDevice) -> Self {
        let engine = Engine::new(device, config(name)).unwrap();
        let memory = Arc::new(HostMemory::new(MIB).unwrap());
        Self {
            region: engine.register(&memory).unwrap(),
            memory,
            engine,
        }
    }

    fn report(&self, id: TransferId) -> Report {
        let status = self.engine.wait(id, HANG).unwrap();
        assert!(matches!(status, Status::Concluded(_)), "{id:?}: {status:?}");
        self.engine.report(id).unwrap()
    }

    fn fill(&self) -> Vec<u8> {
        let bytes: Vec<u8> = (0..MIB).map(|_| fastrand::u8(..)).collect();
        self.memory.write(0, &bytes).unwrap();
        bytes
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(MIB).unwrap()];
        self.memory.read(0, &mut bytes).unwrap();
        bytes
    }
}

fn listen(engine: &Engine) -> String {
    let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    engine.listen(loopback.into()).unwrap().to_string()
}

fn connect(from: &End, to: &End) -> [Peer; 2] {
    let there = from.engine.connect(&listen(&to.engine)).unwrap();
    let here = to.engine.accept(HANG).expect("it has connected");
    [there, here]
}

fn each_provider(more: &[&str], test: impl Fn(&str, [End; 2])) {
    each_of(PROVIDERS.iter().chain(more), test);
}

fn each_of<'a>(providers: impl Iterator<Item = &'a &'a str>, test: impl Fn(&str, [End; 2])) {
    for provider in providers {
        if let Some(device) = device(provider) {
            println!("{provider}");
            test(provider, ["a", "b"].map(|name| End::new(name, &device)));
        }
    }
}

#[test]
fn engines_over_libfabric_write_read_count_and_close() {
    each_provider(&["shm"], |provider, [a, b]| {
        let [to_b, _to_a] = connect(&a, &b);
        to_b.import(&b.engine.descriptor(b.region).unwrap())
            .unwrap();
        let (here, there) = (a.memory.address(), b.memory.address());
        let sent = a.fill();
        let write = to_b.write(here, there, MIB).unwrap();
        let report = a.report(write);
        assert_eq!(report.outcome, Outcome::Done, "{provider}: {report:?}");
        assert!(b.bytes() == sent, "{provider}");
        let theirs = b.fill();
        let read = to_b.read(here, there, MIB).unwrap();
        assert_eq!(a.report(read).outcome, Outcome::Done, "{provider}");
        assert!(a.bytes() == theirs, "{provider}");
        // Each operation counts once.
        let counter = b.engine.counter(3).unwrap();
        let pages = (0..200).map(|page| Operation {
            kind: Kind::Write,
            local: here + page * 4096,
            remote: there + page * 4096,
            bytes: 4096,
        });
        let pages: Vec<Operation> = pages.collect();
        let options = Options::default().with_counter(Some(3));
        let counted = to_b.submit(&pages, &options).unwrap();
        assert_eq!(a.report(counted).outcome, Outcome::Done, "{provider}");
        assert_eq!(counter.wait(200, HANG), Some(200), "{provider}");
        println!(
            "{provider}: {} refused for now",
            a.engine.rails()[0].refusals
        );
        assert_eq!(a.engine.close().cut_off, 0);
        assert_eq!(b.engine.close().failed, 0);
    });
}

/// The sender knows that all is done, and ends the connection before the receiver has found all of it in its queue.
#[test]
fn what_is_done_over_libfabric_has_counted_when_its_connection_ends() {
    for profile in ["efa-direct", "efa"] {
        let provider = format!("softofi:profile={profile},data_us=400000,seed=9");
        let device = device(&provider).unwrap();
        let [a, b] = ["a", "b"].map(|name| End::new(name, &device));
        let address = listen(&b.engine);
        let counter = b.engine.counter(3).unwrap();
        for round in 1..=3 {
            let to_b = a.engine.connect(&address).unwrap();
            let _to_a = b.engine.accept(HANG).expect("it has connected");
            to_b.import(&b.engine.descriptor(b.region).unwrap())
                .unwrap();
            let words = (0..50).map(|nth| Operation {
                kind: Kind::Write,
                local: a.memory.address() + nth * 64,
                remote: b.memory.address() + nth * 64,
                bytes: 64,
            });
            let words: Vec<Operation> = words.collect();
            let options = Options::default().with_counter(Some(3));
            let counted = to_b.submit(&words, &options).unwrap();
            assert_eq!(a.report(counted).outcome, Outcome::Done, "{provider}");
            assert_eq!(to_b.close(), 0);
            let gone = b.engine.peer_gone(HANG).expect("it has ended");
            assert_eq!(gone.remote, Remote::Quiet, "{provider}: {gone:?}");
            assert_eq!(counter.read(), 50 * round, "{provider}");
        }
    }
}

#[test]
fn nothing_lands_after_a_grant_over_libfabric_is_revoked() {
    each_provider(&[], |provider, [a, b]| {
        let [to_b, to_a] = connect(&a, &b);
        let (here, there) = (a.memory.address(), b.memory.address());
        let sent = a.fill();
        let grant = to_a.grant(there + 4096, 8192, Rights::Both, None).unwrap();
        let grant = crate::engine::Grant::from_bytes(&grant.to_bytes()).unwrap();
        to_b.import_grant(&grant).unwrap();
        let write = to_b.write(here, grant.address, 8192).unwrap();
        let report = a.report(write);
        assert_eq!(report.outcome, Outcome::Done, "{provider}: {report:?}");
        assert!(b.bytes()[4096..12288] == sent[..8192], "{provider}");
        b.engine.revoke(&grant).unwrap();
        let theirs = b.fill();
        let late = to_b.write(here, grant.address, 8192).unwrap();
        let report = a.report(late);
        assert_eq!(report.outcome, Outcome::Failed, "{provider}: {report:?}");
        println!(
            "{provider}: {:?}",
            report.first.and_then(|first| first.cause)
        );
        assert!(b.bytes() == theirs, "{provider}");
        // The connection goes on.
        let again = to_a.grant(there, MIB, Rights::Both, None).unwrap();
        to_b.import_grant(&again).unwrap();
        let read = to_b.read(here, again.address, MIB).unwrap();
        let report = a.report(read);
        assert_eq!(report.outcome, Outcome::Done, "{provider}: {report:?}");
        assert!(a.bytes() == theirs, "{provider}");
    });
}

/// The owner's memory is never open by a key that has ended, not even for the moment in which it is granted anew.
#[test]
fn a_revoked_key_stays_shut_while_its_memory_is_granted_anew() {
    const ROUNDS: usize = 200;
    const WRITES: u64 = 6;
    const LENGTH: u64 = 10_000;
    // Those whose keys come back.
    each_of(PROVIDERS[1..].iter(), |provider, [a, b]| {
        let [to_b, to_a] = connect(&a, &b);
        let (here, there) = (a.memory.address(), b.memory.address());
        a.fill();
        for round in 0..ROUNDS {
            let old = to_a.grant(there, MIB, Rights::Both, None).unwrap();
            to_b.import_grant(&old).unwrap();
            let write = |nth: u64| {
                let written = to_b.write(here, old.address + nth * LENGTH, LENGTH);
                written.unwrap()
            };
            let writes: Vec<TransferId> = (0..WRITES).map(write).collect();
            b.engine.revoke(&old).unwrap();
            let theirs = b.fill();
            let new = to_a.grant(there, MIB, Rights::Both, None).unwrap();
            for id in writes {
                a.report(id);
                a.engine.release(id).unwrap();
            }
            assert!(b.bytes() == theirs, "{provider} {round}");
            b.engine.revoke(&new).unwrap();
            to_b.forget(old.address);
        }
    });
}

#[test]
fn an_engine_over_libfabric_restarts_at_one_address() {
    each_provider(&[], |provider, [a, b]| {
        drop(b);
        let device = device(provider).unwrap();
        for life in 0..3 {
            let b = End::new("b", &device);
            let [to_b, _to_a] = connect(&a, &b);
            to_b.import(&b.engine.descriptor(b.region).unwrap())
                .unwrap();
            let sent = a.fill();
            let write = to_b
                .write(a.memory.address(), b.memory.address(), MIB)
                .unwrap();
            let report = a.report(write);
            assert_eq!(
                report.outcome,
                Outcome::Done,
                "{provider}, life {life}: {report:?}"
            );
            assert!(b.bytes() == sent, "{provider}, life {life}");
            // Under way when the other engine ends.
            let last = to_b
                .write(a.memory.address(), b.memory.address(), MIB)
                .unwrap();
            let _ = b.engine.close();
            a.report(last);
            until("the end is known", || !to_b.is_open());
        }
    });
}

#[test]
fn a_domain_is_told_with_its_provider_fabric_and_library() {
    let Some(device) = device(PROVIDERS[1]) else {
        return;
    };
    let (name, library) = (device.name().to_owned(), device.library());
    let told = EngineDevice::from(device).to_string();
    let expected = format!("{name} by ofi:efa (fabric efa-direct, {library})");
    assert_eq!(told, expected);
    let library_is_told = library.starts_with("libfabric ") && library.contains("libsoftofi");
    assert!(library_is_told, "{library}");
}

#[test]
fn a_setting_that_libfabric_has_not_is_refused() {
    let Some(device) = device(PROVIDERS[1]) else {
        return;
    };
    let config = config("a").with_cq(EngineCq::Nic);
    let text = Engine::new(&device, config).unwrap_err().to_string();
    assert!(
        text.contains("WARPVERBS_ENGINE_CQ") && text.contains("nic"),
        "{text}"
    );
}

#[test]
fn ends_of_different_wires_refuse_each_other_and_name_both() {
    let Some(device) = device(PROVIDERS[1]) else {
        return;
    };
    let over = End::new("over", &device);
    let hca = Hca::new().unwrap();
    let context = Context::open(&DeviceSelector::Name(hca.name().to_owned())).unwrap();
    let engine = Engine::new(&context, config("rc")).unwrap();
    let text = engine
        .connect(&listen(&over.engine))
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("'ofi:efa'") && text.contains("'rc'"),
        "{text}"
    );
    let text = over
        .engine
        .connect(&listen(&engine))
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("'ofi:efa'") && text.contains("'rc'"),
        "{text}"
    );
}
