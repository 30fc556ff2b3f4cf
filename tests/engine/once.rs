//! Runs of two engines whose HCA loses, doubles and delays packets, or fails WQEs, while transfers are cancelled and meet
//! deadlines. Each transfer is concluded once, what is done is right byte for byte, and nothing is written after a conclusion.

use std::time::Duration;

use softhca::HcaConfig;
use softhca::device::FaultSpec;
use test_support::limits::HANG;
use warpverbs::internal::engine::{
    EngineError, Kind, Operation, Options, Outcome, Peer, Remote, TransferId,
};

use crate::rig::{End, config, listens};

/// Bytes of a tile, which one transfer at a time has at both ends.
const TILE: u64 = 160_000;
const TILES: u64 = 6;
const TILE_COUNT: usize = 6;
const _: () = assert!(TILE_COUNT as u64 == TILES);
/// Transfers of a run.
const TRANSFERS: u64 = 40;
/// What buffers of a concluded transfer are filled with at once.
const CANARY: u8 = 0xc7;

struct Running {
    id: TransferId,
    kind: Kind,
    tile: u64,
    /// What the target must have when it is done.
    bytes: Vec<u8>,
}

struct Run {
    seed: u64,
    random: fastrand::Rng,
    a: End,
    b: End,
    address: String,
    peer: Peer,
    /// What each tile of both ends must be now, where nothing runs.
    canaries: [[bool; 2]; TILE_COUNT],
    outcomes: [u64; 4],
}

fn fault(random: &mut fastrand::Rng, seed: u64) -> String {
    let what = match random.u32(0..6) {
        0 => String::new(),
        1 => "drop=0.5%".to_owned(),
        2 => "delay=20us..500us@10%".to_owned(),
        3 => "dup=1%,reorder=1%".to_owned(),
        4 => format!("cqe=wqe#{}:syndrome=0x15", random.u32(1..40)),
        _ => format!("cqe=delay#{}:5ms,drop=0.1%", random.u32(1..20)),
    };
    format!("seed={seed},{what}")
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let hca = HcaConfig {
            // By UDP, so that packets meet faults, or within the process.
            loopback: random.bool(),
            ..HcaConfig::default()
        };
        let mut end = |name| {
            let config = config(name)
                .with_grace(Duration::from_millis(random.u64(0..30)))
                .with_retry(random.u32(0..4))
                .with_qps(random.u32(1..=4))
                .with_workers(random.u32(1..=2))
                .with_slice(1 << 14);
            End::on(hca.clone(), config, TILE * TILES)
        };
        let (a, b) = (end("a"), end("b"));
        let address = listens(&b.engine).to_string();
        let peer = connected(&a, &b, &address);
        let spec: FaultSpec = fault(&mut random, seed).parse().unwrap();
        a.hca.set_faults(&spec);
        Self {
            seed,
            random,
            a,
            b,
            address,
            peer,
            canaries: [[false; 2]; TILE_COUNT],
            outcomes: [0; 4],
        }
    }

    fn begin(&mut self, tile: u64) -> Running {
        let length = self.random.u64(1..=TILE);
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.random.fill(&mut bytes);
        let kind = if self.random.bool() {
            Kind::Write
        } else {
            Kind::Read
        };
        let source = match kind {
            Kind::Write => &self.a,
            Kind::Read => &self.b,
        };
        source.memory.write(tile * TILE, &bytes).unwrap();
        self.canaries[usize::try_from(tile).unwrap()] = [false; 2];
        let operation = Operation {
            kind,
            local: self.a.at(tile * TILE),
            remote: self.b.at(tile * TILE),
            bytes: length,
        };
        let deadline = match self.random.u32(0..4) {
            0 => Some(Duration::from_micros(self.random.u64(0..500))),
            _ => None,
        };
        let options = Options::default().with_deadline(deadline);
        let id = loop {
            match self.peer.submit(&[operation], &options) {
                Ok(id) => break id,
                Err(EngineError::PeerGone { .. }) => {
                    self.peer = connected(&self.a, &self.b, &self.address);
                }
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
        };
        if self.random.u32(0..5) == 0 {
            self.a.engine.cancel(id).unwrap();
        }
        Running {
            id,
            kind,
            tile,
            bytes,
        }
    }

    fn conclude(&mut self, running: &Running) {
        let seed = self.seed;
        let outcome = self.a.concluded(running.id);
        self.outcomes[outcome as usize] += 1;
        let report = self.a.engine.report(running.id).unwrap();
        assert_eq!(report.outcome, outcome, "seed {seed}");
        assert_eq!(report.remote, Remote::Quiet, "seed {seed}: {report:?}");
        let offset = running.tile * TILE;
        let target = match running.kind {
            Kind::Write => &self.b,
            Kind::Read => &self.a,
        };
        let mut found = vec![0; running.bytes.len()];
        target.memory.read(offset, &mut found).unwrap();
        if outcome == Outcome::Done {
            assert!(found == running.bytes, "seed {seed}: {report:?}");
            assert_eq!(report.bytes_landed, running.bytes.len() as u64);
        }
        assert!(
            report.bytes_landed <= running.bytes.len() as u64,
            "seed {seed}"
        );
        // Its buffers are used again at once.
        let canary = vec![CANARY; usize::try_from(TILE).unwrap()];
        self.a.memory.write(offset, &canary).unwrap();
        self.b.memory.write(offset, &canary).unwrap();
        self.canaries[usize::try_from(running.tile).unwrap()] = [true; 2];
        self.a.engine.release(running.id).unwrap();
    }

    fn check_canaries(&self) {
        for (tile, ends) in (0..).zip(self.canaries) {
            for (end, is_due) in [&self.a, &self.b].into_iter().zip(ends) {
                let mut bytes = vec![0; usize::try_from(TILE).unwrap()];
                end.memory.read(tile * TILE, &mut bytes).unwrap();
                let is_whole = bytes.iter().all(|byte| *byte == CANARY);
                assert!(is_whole || !is_due, "seed {}: tile {tile}", self.seed);
            }
        }
    }

    fn all(mut self) -> [u64; 4] {
        let mut running: Vec<Running> = Vec::new();
        for number in 0..TRANSFERS {
            if running.len() as u64 == TILES {
                let ids: Vec<_> = running.iter().map(|it| it.id).collect();
                let first = self.a.engine.wait_any(&ids, HANG).unwrap();
                let first = first.unwrap_or_else(|| panic!("seed {}: none ends", self.seed));
                let one = running.swap_remove(first);
                self.conclude(&one);
            }
            let is_free = |tile: &u64| running.iter().all(|it| it.tile != *tile);
            let tile = (number..number + TILES).map(|it| it % TILES).find(is_free);
            let begun = self.begin(tile.unwrap());
            running.push(begun);
        }
        for one in running {
            self.conclude(&one);
        }
        self.check_canaries();
        self.outcomes
    }
}

fn connected(a: &End, b: &End, address: &str) -> Peer {
    let peer = a.engine.connect(address).unwrap();
    let accepted = b.engine.accept(HANG).expect("it has connected");
    let descriptor = b.engine.descriptor(b.region).unwrap();
    peer.import(&descriptor).unwrap();
    drop(accepted);
    peer
}

#[test]
fn each_transfer_is_concluded_once_whatever_the_hca_does() {
    let first = match std::env::var("WV_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => fastrand::u64(..1 << 32),
    };
    let mut outcomes = [0; 4];
    for seed in first..first + 24 {
        let found = Run::new(seed).all();
        assert_eq!(found.iter().sum::<u64>(), TRANSFERS, "seed {seed}");
        for (sum, one) in outcomes.iter_mut().zip(found) {
            *sum += one;
        }
    }
    println!("from seed {first}: done, failed, cancelled, timed out: {outcomes:?}");
    assert!(outcomes[0] > 0);
}
