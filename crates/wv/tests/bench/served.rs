//! The end that serves runs, beside peers that say nothing or too much.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};
use softhca::Hca;
use test_basics::limits::HANG;
use test_support::hca::hca;
use warpverbs::engine::{Engine, EngineConfig, EngineDevice, EnginePath, Peer};
use warpverbs::verbs::{Context, DeviceSelector};
use warpverbs_bench::host::fill::{FillOptions, measure_to};
use warpverbs_bench::host::memory::MemoryChoice;
use warpverbs_bench::host::served::{Patience, Served};

const OPTIONS: FillOptions = FillOptions {
    bytes: 1 << 16,
    page: 256,
    pages: 16,
    repeats: 4,
    batch: 4,
    in_flight: 4,
    seed: 3,
};

/// A device of this process.
struct Device {
    devices: Vec<EngineDevice>,
    /// Goes last.
    _hca: Hca,
}

impl Device {
    fn new() -> Self {
        let hca = hca();
        let selector = DeviceSelector::Name(hca.name().to_owned());
        let devices = vec![Context::open(&selector).unwrap().into()];
        Self { devices, _hca: hca }
    }

    /// A peer of the end at `place`.
    fn connect(&self, name: &str, place: &str) -> (Engine, Peer) {
        let config = EngineConfig::new(name).with_engine_path(EnginePath::Nic);
        let engine = Engine::on(&self.devices, config).unwrap();
        let peer = engine.connect(place).unwrap();
        (engine, peer)
    }
}

/// Lets an end serve while `does` runs, which gets its place and what it tells its user.
fn beside(patience: Patience, does: impl FnOnce(&str, &Receiver<String>)) {
    let there = Device::new();
    let address = "127.0.0.1:0".parse().unwrap();
    let config = EngineConfig::new("serves");
    let memory = (MemoryChoice::Host, OPTIONS.bytes);
    let served = Served::listen(&there.devices, address, config, memory).unwrap();
    let served = served.with_patience(patience);
    let (sender, told) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| served.serve(None, |error| sender.send(error.to_string()).unwrap()));
        // A test that fails ends it too.
        let ended = Ended(&served);
        does(&served.address().to_string(), &told);
        drop(ended);
    });
}

struct Ended<'a>(&'a Served);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn fills(from: &Device, place: &str) {
    let from = (&from.devices[..], MemoryChoice::Host);
    let report = measure_to(from, place, &OPTIONS, |_| {}).unwrap();
    assert_eq!(report.compared, 3 * 16 * 256);
}

/// The next that the end tells this engine.
fn hears(engine: &Engine) -> Value {
    serde_json::from_slice(&engine.notice(HANG).expect("it answers").bytes).unwrap()
}

fn begin() -> Vec<u8> {
    json!({"Begin": {"version": 4, "run": {"Fill": OPTIONS}}})
        .to_string()
        .into_bytes()
}

#[test]
fn a_peer_that_begins_no_run_holds_up_none_and_is_ended() {
    let here = Device::new();
    let patience = |begins| Patience {
        begins,
        continues: HANG,
    };
    // It may be silent for as long as this test takes.
    beside(patience(10 * HANG), |place, _| {
        let silent = here.connect("silent", place);
        fills(&here, place);
        assert!(silent.1.is_open());
    });
    beside(patience(Duration::from_millis(50)), |place, told| {
        let (silent, _peer) = here.connect("silent", place);
        let told = told.recv_timeout(HANG).unwrap();
        assert!(
            told.contains("silent has told no step of a run for 0.05 s"),
            "{told}"
        );
        silent.peer_gone(HANG).expect("it is ended");
    });
}

#[test]
fn a_run_whose_peer_tells_nothing_more_ends_with_that_reason() {
    let here = Device::new();
    let patience = Patience {
        begins: HANG,
        continues: Duration::from_millis(50),
    };
    beside(patience, |place, told| {
        let (engine, peer) = here.connect("stops", place);
        peer.notify(&begin()).unwrap();
        assert!(hears(&engine)["Region"].is_object());
        let told = told.recv_timeout(HANG).unwrap();
        let reason = "stops has told no step of a run for 0.05 s";
        assert!(told.contains(reason), "{told}");
        let failed = hears(&engine);
        let failed = failed["Failed"].as_str().unwrap();
        assert!(failed.contains(reason), "{failed}");
    });
}

#[test]
fn a_peer_that_tells_too_much_before_its_turn_takes_no_run_of_others() {
    let here = Device::new();
    let patience = Patience {
        begins: HANG,
        continues: 10 * HANG,
    };
    beside(patience, |place, told| {
        // Its run goes on until it goes.
        let (runs, its) = here.connect("runs", place);
        its.notify(&begin()).unwrap();
        assert!(hears(&runs)["Region"].is_object());
        let (_chatty, peer) = here.connect("chatty", place);
        let large = vec![b'x'; 1 << 16];
        // More than an inbox holds: so this end has taken them.
        for _ in 0..200 {
            peer.notify_wait(&large, HANG).unwrap();
        }
        its.notify(&serde_json::to_vec("Continues").unwrap())
            .unwrap();
        its.break_off();
        fills(&here, place);
        // Nothing of it was kept, and it has begun no run.
        assert_eq!(told.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
    });
}
