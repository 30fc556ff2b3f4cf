//! Runs of two to four engines under seeded storms. Packets are lost, doubled and late. WQEs and commands fail, HCAs freeze, and
//! connections break. Transfers are cancelled or late, and grants are revoked under them.
//!
//! Whatever happens, an engine keeps its word. Each transfer is concluded once, and what is done is right byte for byte. Nothing is
//! written after a conclusion, and nothing after a revocation. Each notice comes once, in order. Every slice is accounted for, and
//! in the end the HCAs have what they had before.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use softhca::device::FaultSpec;
use softhca::{Hca, HcaConfig};
use test_support::counts::seeds;
use test_support::limits::HANG;
use warpverbs::internal::engine::{
    EngineError, Grant, HostError, Kind, Operation, OperationStatus, Options, Outcome, Peer,
    Remote, Rights, Status, TransferId,
};

use crate::rig::{End, SHORT, config, listens};

/// Bytes of a tile. Each transfer has one of its own in the memory of every engine.
const TILE: u64 = 48_000;
const TRANSFERS: u64 = 32;
/// So many run at a time.
const RUNNING: usize = 6;
/// What a tile is filled with at once after the conclusion of its transfer.
const CANARY: u8 = 0xc7;
/// Tries of a connection whose commands may fail. Each fault is one command.
const TRIES: u32 = 40;

struct Running {
    id: TransferId,
    tile: u64,
    /// From this engine to that one.
    ends: [usize; 2],
    operations: Vec<Operation>,
    /// What each operation must have moved.
    bytes: Vec<Vec<u8>>,
    /// The number of its notice.
    notice: Option<u64>,
    /// The peer has revoked the key, and has used the tile since.
    is_revoked: bool,
    grant: Option<Grant>,
}

/// A notice as it was sent: what became of its transfer, if it had one.
type Sent = (u64, Option<Outcome>);

struct Storm {
    seed: u64,
    random: fastrand::Rng,
    ends: Vec<End>,
    addresses: Vec<String>,
    /// By the engine that has connected, and to which.
    peers: HashMap<[usize; 2], Peer>,
    /// By the engine that was connected to, and by which: its latest connection.
    accepted: HashMap<[usize; 2], Peer>,
    /// Tiles that must be canaries, by engine.
    canaries: Vec<(usize, u64)>,
    /// By sender and receiver: notices that were sent alone, and after transfers.
    alone: HashMap<[usize; 2], Vec<u64>>,
    behind: HashMap<[usize; 2], Vec<Sent>>,
    next_notice: u64,
    outcomes: [u64; 4],
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Commands of connections, of their recovery and of grants.
const COMMANDS: [&str; 8] = [
    "CREATE_QP",
    "RST2INIT_QP",
    "INIT2RTR_QP",
    "RTR2RTS_QP",
    "TO_RST_QP",
    "QUERY_QP",
    "CREATE_MKEY",
    "DESTROY_MKEY",
];

/// Some faults of one HCA.
fn faults(random: &mut fastrand::Rng) -> FaultSpec {
    let mut all = vec![format!("seed={}", random.u32(..))];
    for _ in 0..random.u32(1..4) {
        all.push(match random.u32(0..9) {
            0 => "drop=0.5%".to_owned(),
            1 => "delay=20us..500us@10%".to_owned(),
            2 => "dup=1%".to_owned(),
            3 => "reorder=1%".to_owned(),
            4 => format!("cqe=wqe#{}:syndrome=0x15", random.u32(1..40)),
            5 => format!("cqe=delay#{}:5ms", random.u32(1..20)),
            6 => format!("freeze@{}ms+{}ms", random.u32(1..20), random.u32(1..20)),
            _ => {
                let command = COMMANDS[random.usize(..COMMANDS.len())];
                format!("cmd={command}#{}:status=0x5:syndrome=0x7", random.u32(1..6))
            }
        });
    }
    let spec = all.join(",").parse();
    spec.unwrap_or_else(|error| panic!("{all:?}: {error}"))
}

/// Returns what an HCA has of an engine: QPs, registrations and keys.
fn objects(hca: &Hca) -> [usize; 4] {
    let live = hca.live_objects();
    [live.qp, live.cq, live.mr, live.mkey]
}

impl Storm {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let hca = HcaConfig {
            loopback: random.bool(),
            ..HcaConfig::default()
        };
        let end = |name: &&str| {
            let config = config(name)
                .with_log_depth(8)
                .with_log_entries(15)
                .with_grace(Duration::from_millis(random.u64(0..30)))
                .with_retry(random.u32(0..4))
                .with_qps(random.u32(1..=4))
                .with_workers(random.u32(1..=2))
                .with_slice(1 << random.u32(12..15))
                .with_fragment(0);
            End::on(hca.clone(), config, TILE * TRANSFERS)
        };
        let count = 2 + usize::try_from(seed % 3).unwrap();
        let ends: Vec<End> = NAMES[..count].iter().map(end).collect();
        let listen = |end: &End| listens(&end.engine).to_string();
        let addresses = ends.iter().map(listen).collect();
        for end in &ends {
            end.hca.set_faults(&faults(&mut random));
        }
        Self {
            seed,
            random,
            ends,
            addresses,
            peers: HashMap::new(),
            accepted: HashMap::new(),
            canaries: Vec::new(),
            alone: HashMap::new(),
            behind: HashMap::new(),
            next_notice: 0,
            outcomes: [0; 4],
        }
    }

    /// An open connection, which is made where none is.
    fn peer(&mut self, [from, to]: [usize; 2]) -> Peer {
        let seed = self.seed;
        if let Some(peer) = self.peers.get(&[from, to])
            && peer.is_open()
        {
            return peer.clone();
        }
        let mut last = String::new();
        for _ in 0..TRIES {
            match self.ends[from].engine.connect(&self.addresses[to]) {
                Ok(peer) => {
                    let end = &self.ends[to];
                    let descriptor = end.engine.descriptor(end.region).unwrap();
                    peer.import(&descriptor).unwrap();
                    self.peers.insert([from, to], peer.clone());
                    return peer;
                }
                Err(error) => last = error.to_string(),
            }
        }
        panic!("seed {seed}: {from} does not connect to {to}: {last}");
    }

    /// A key for the tile, by a connection that the owner has accepted. None: the owner has no such connection, or a command has
    /// failed.
    fn grant(&mut self, [from, to]: [usize; 2], tile: u64) -> Option<Grant> {
        let end = &self.ends[to];
        for peer in std::iter::from_fn(|| end.engine.accept(Duration::ZERO)) {
            let reader = NAMES.iter().position(|name| *name == peer.name());
            self.accepted.insert([to, reader.unwrap()], peer);
        }
        let back = self.accepted.get(&[to, from])?;
        match back.grant(end.at(tile * TILE), TILE, Rights::Both, None) {
            Ok(grant) => Some(grant),
            Err(HostError::Provider(_) | HostError::Refused(EngineError::PeerGone { .. })) => None,
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    fn begin(&mut self, tile: u64) -> Running {
        let count = self.ends.len();
        let from = self.random.usize(..count);
        let to = (from + self.random.usize(1..count)) % count;
        let ends = [from, to];
        let mut peer = self.peer(ends);
        let grant = match self.random.u32(0..4) {
            0 => self.grant(ends, tile),
            _ => None,
        };
        if let Some(grant) = &grant {
            peer.import_grant(grant).unwrap();
        }
        let there = grant.map_or(self.ends[to].at(tile * TILE), |grant| grant.address);
        let (operations, bytes) = self.operations(ends, tile, there);
        let deadline = match self.random.u32(0..6) {
            0 => Some(Duration::from_micros(self.random.u64(0..500))),
            _ => None,
        };
        let options = Options::default().with_deadline(deadline);
        let notice = self.random.bool().then(|| self.number());
        let id = loop {
            let words = notice.map(|number| number.to_le_bytes());
            let words = words.as_ref().map(|it| it.as_slice());
            match peer.submit(&operations, &options.with_notice(words)) {
                Ok(id) => break id,
                Err(EngineError::PeerGone { .. }) => peer = self.peer(ends),
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
        };
        match self.random.u32(0..12) {
            0 | 1 => self.ends[from].engine.cancel(id).unwrap(),
            2 => peer.break_off(),
            3 => self.ends[to].hca.set_faults(&faults(&mut self.random)),
            4 => self.notify(ends),
            _ => {}
        }
        let mut running = Running {
            id,
            tile,
            ends,
            operations,
            bytes,
            notice,
            is_revoked: false,
            grant,
        };
        if grant.is_some() && self.random.bool() {
            self.revoke(&mut running);
            // After this the memory is the owner's alone.
            self.cover(to, tile);
            running.is_revoked = true;
        }
        running
    }

    /// One to three operations on parts of the tile, and their bytes, which stand where they come from.
    fn operations(
        &mut self,
        [from, to]: [usize; 2],
        tile: u64,
        there: u64,
    ) -> (Vec<Operation>, Vec<Vec<u8>>) {
        let count = self.random.u64(1..=3);
        let part = TILE / count;
        let (mut operations, mut all) = (Vec::new(), Vec::new());
        for nth in 0..count {
            let length = self.random.u64(1..=part);
            let mut bytes = vec![0; usize::try_from(length).unwrap()];
            self.random.fill(&mut bytes);
            let (kind, source) = if self.random.bool() {
                (Kind::Write, from)
            } else {
                (Kind::Read, to)
            };
            let at = tile * TILE + nth * part;
            self.ends[source].memory.write(at, &bytes).unwrap();
            operations.push(Operation {
                kind,
                local: self.ends[from].at(at),
                remote: there + nth * part,
                bytes: length,
            });
            all.push(bytes);
        }
        (operations, all)
    }

    fn number(&mut self) -> u64 {
        self.next_notice += 1;
        self.next_notice
    }

    fn notify(&mut self, ends: [usize; 2]) {
        let number = self.number();
        loop {
            match self.peer(ends).notify(&number.to_le_bytes()) {
                Ok(()) => break,
                Err(EngineError::PeerGone { .. }) => {}
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
        }
        self.alone.entry(ends).or_default().push(number);
    }

    /// Ends the key. Each fault is one command, so some try ends it.
    fn revoke(&self, running: &mut Running) {
        let Some(grant) = running.grant.take() else {
            return;
        };
        let engine = &self.ends[running.ends[1]].engine;
        let ended = (0..TRIES).any(|_| engine.revoke(&grant).is_ok());
        assert!(ended, "seed {}: {grant:?}", self.seed);
    }

    fn cover(&mut self, end: usize, tile: u64) {
        let canary = vec![CANARY; usize::try_from(TILE).unwrap()];
        self.ends[end].memory.write(tile * TILE, &canary).unwrap();
        self.canaries.push((end, tile));
    }

    fn conclude(&mut self, mut running: Running) {
        let seed = self.seed;
        let [from, to] = running.ends;
        let outcome = match self.ends[from].engine.wait(running.id, HANG).unwrap() {
            Status::Concluded(outcome) => outcome,
            other => panic!("seed {seed}: {from} to {to}, {:?}: {other:?}", running.id),
        };
        self.outcomes[outcome as usize] += 1;
        let report = self.ends[from].engine.report(running.id).unwrap();
        assert_eq!(report.outcome, outcome, "seed {seed}");
        assert_eq!(report.operations.len(), running.bytes.len(), "seed {seed}");
        let mut landed = 0;
        for ((operation, bytes), status) in
            (running.operations.iter().zip(&running.bytes)).zip(&report.operations)
        {
            assert!(
                outcome != Outcome::Done || *status == OperationStatus::Done,
                "seed {seed}: {report:?}"
            );
            if *status != OperationStatus::Done {
                continue;
            }
            landed += operation.bytes;
            let target = match operation.kind {
                // The owner has used it since.
                Kind::Write if running.is_revoked => continue,
                Kind::Write => to,
                Kind::Read => from,
            };
            let place = operation.local - self.ends[from].at(0);
            let mut found = vec![0; bytes.len()];
            self.ends[target].memory.read(place, &mut found).unwrap();
            assert!(found == *bytes, "seed {seed}: {operation:?} {report:?}");
        }
        let all: u64 = running.operations.iter().map(|it| it.bytes).sum();
        assert!(
            (landed..=all).contains(&report.bytes_landed),
            "seed {seed}: {report:?}"
        );
        if let Some(number) = running.notice {
            let sent = self.behind.entry(running.ends).or_default();
            sent.push((number, Some(outcome)));
        }
        self.revoke(&mut running);
        // Its buffers are used again at once.
        self.cover(from, running.tile);
        if report.remote == Remote::Quiet && !running.is_revoked {
            self.cover(to, running.tile);
        }
        self.ends[from].engine.release(running.id).unwrap();
    }

    /// Each notice has come once, those that were sent alone in their order, and those of transfers with what became of them.
    fn check_notices(&mut self) {
        let seed = self.seed;
        let (alone, behind) = (
            std::mem::take(&mut self.alone),
            std::mem::take(&mut self.behind),
        );
        let receivers = 0..self.ends.len();
        for to in receivers {
            let due: usize = alone
                .iter()
                .filter(|(ends, _)| ends[1] == to)
                .map(|(_, all)| all.len())
                .chain(
                    behind
                        .iter()
                        .filter(|(ends, _)| ends[1] == to)
                        .map(|(_, all)| all.len()),
                )
                .sum();
            let mut come: HashMap<usize, Vec<Sent>> = HashMap::new();
            for nth in 0..due {
                let notice = self.ends[to].engine.notice(HANG);
                let notice =
                    notice.unwrap_or_else(|| panic!("seed {seed}: {nth} of {due} at {to}"));
                let from = NAMES.iter().position(|name| *name == notice.peer).unwrap();
                let number = u64::from_le_bytes(notice.bytes[..].try_into().unwrap());
                let outcome = notice.transfer.map(|behind| behind.outcome);
                come.entry(from).or_default().push((number, outcome));
            }
            assert_eq!(self.ends[to].engine.notice(SHORT), None, "seed {seed}");
            for (from, come) in come {
                let ends = [from, to];
                let numbers = |is_alone: bool| {
                    let all = come.iter().filter(move |(_, it)| it.is_none() == is_alone);
                    all.copied()
                };
                let sent = alone.get(&ends).cloned().unwrap_or_default();
                let found: Vec<u64> = numbers(true).map(|(number, _)| number).collect();
                assert_eq!(found, sent, "seed {seed}: alone, {ends:?}");
                let mut sent = behind.get(&ends).cloned().unwrap_or_default();
                let mut found: Vec<Sent> = numbers(false).collect();
                sent.sort_unstable_by_key(|(number, _)| *number);
                found.sort_unstable_by_key(|(number, _)| *number);
                assert_eq!(found, sent, "seed {seed}: behind transfers, {ends:?}");
            }
        }
    }

    /// Every slice is accounted for.
    fn check_counters(&self) {
        let seed = self.seed;
        let mut submitted = 0;
        for end in &self.ends {
            let all = end.engine.statistics();
            let ended = all.done + all.failed + all.cancelled + all.timed_out;
            assert_eq!(ended, all.submitted, "seed {seed}: {all:?}");
            let posted = all.slices.posted + all.not_posted;
            assert_eq!(posted, all.queued + all.retried, "seed {seed}: {all:?}");
            assert_eq!(all.slices.in_flight(), 0, "seed {seed}: {all:?}");
            submitted += all.submitted;
        }
        assert_eq!(submitted, TRANSFERS, "seed {seed}");
        assert_eq!(self.outcomes.iter().sum::<u64>(), TRANSFERS, "seed {seed}");
    }

    fn check_canaries(&self) {
        for (end, tile) in &self.canaries {
            let mut bytes = vec![0; usize::try_from(TILE).unwrap()];
            self.ends[*end]
                .memory
                .read(tile * TILE, &mut bytes)
                .unwrap();
            let wrong = bytes.iter().position(|byte| *byte != CANARY);
            assert_eq!(wrong, None, "seed {}: end {end}, tile {tile}", self.seed);
        }
    }

    fn all(mut self) -> [u64; 4] {
        let mut running: Vec<Running> = Vec::new();
        for tile in 0..TRANSFERS {
            if running.len() == RUNNING {
                let at = self.random.usize(..RUNNING);
                let one = running.swap_remove(at);
                self.conclude(one);
            }
            let begun = self.begin(tile);
            running.push(begun);
        }
        for one in running {
            self.conclude(one);
        }
        // The storm is over. Notices that have not arrived yet go over new connections.
        for end in &self.ends {
            end.hca.set_faults(&FaultSpec::default());
        }
        let all: Vec<[usize; 2]> = self
            .alone
            .keys()
            .chain(self.behind.keys())
            .copied()
            .collect();
        for ends in all {
            self.peer(ends);
        }
        self.check_notices();
        self.check_counters();
        self.check_end()
    }

    /// All memory is taken away, and the HCAs have nothing of the engines any more.
    fn check_end(mut self) -> [u64; 4] {
        let seed = self.seed;
        self.peers.clear();
        self.accepted.clear();
        for end in &self.ends {
            while end.engine.accept(Duration::ZERO).is_some() {}
            let gone = end.engine.deregister_wait(end.region, HANG);
            assert!(gone.is_ok(), "seed {seed}: {gone:?}");
            assert_eq!(end.engine.grants(), 0, "seed {seed}");
            assert_eq!(end.engine.in_use(), 0, "seed {seed}");
        }
        self.check_canaries();
        let mut hcas = Vec::new();
        for End { side, context, hca } in self.ends.drain(..) {
            assert_eq!(side.engine.close().cut_off, 0, "seed {seed}");
            drop((side, context));
            hcas.push(hca);
        }
        for hca in &hcas {
            assert_eq!(objects(hca), [0; 4], "seed {seed}");
            let mut findings = hca.findings();
            // A transfer runs while its grant is revoked.
            findings.retain(|text| !text.contains("which was ended"));
            assert_eq!(findings, [""; 0], "seed {seed}");
        }
        self.outcomes
    }
}

/// Seeds from that of WV_TEST_SEED on, if it is set: else from one at random.
fn drawn(few: u64, many: u64) -> Range<u64> {
    let first = match std::env::var("WV_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => fastrand::u64(..1 << 32),
    };
    let count = seeds(few, many);
    first + count.start..first + count.end
}

#[test]
fn an_engine_keeps_its_word_in_any_storm() {
    let drawn = drawn(30, 1000);
    let (first, runs) = (drawn.start, drawn.end - drawn.start);
    let mut outcomes = [0; 4];
    for seed in drawn {
        let found = Storm::new(seed).all();
        for (sum, one) in outcomes.iter_mut().zip(found) {
            *sum += one;
        }
    }
    println!(
        "{runs} storms from seed {first} on: done, failed, cancelled, timed out: {outcomes:?}"
    );
    assert!(outcomes[0] > 0);
}
