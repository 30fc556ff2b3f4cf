//! Two engines over softofi, whose transfers a seed draws, and what an engine promises of them.
//!
//! Transfers go both ways. They are cancelled or late, or go by grants that are revoked under them. Connections end, and an engine is
//! closed under load. The owner of a tile uses it at once when its transfer is concluded, or its grant is revoked. From then on the tile
//! must stay as the owner has written it. Each write that is done has counted when its receiver is closed, once.

use std::array;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use test_basics::limits::HANG;

use super::draw;
use super::end::{End, TILE};
use crate::engine::{
    EngineError, Grant, HostError, HostMemory, Kind, Operation, OperationStatus, Options, Outcome,
    Peer, Remote, Report, Rights, Status, TransferId,
};
use crate::provider::OfiDevice;
use crate::provider::ofi::tests::{broken_rules, device};
use crate::provider::ofi::{Planted, Trial};

const TRANSFERS: u64 = 24;
/// So many run at a time.
const RUNNING: usize = 6;
/// Tries to begin a transfer, each on a connection that ends meanwhile.
const TRIES: u32 = 100;
/// The most time of a transfer with a planted defect: more than any has without.
const PATIENCE: Duration = Duration::from_secs(4);
/// Time in which workers without work fall asleep.
const REST: Duration = Duration::from_millis(5);

/// How many transfers were done, failed, were cancelled, and were too late.
pub(super) type Outcomes = [u64; 4];

struct Running {
    id: TransferId,
    tile: u64,
    from: usize,
    to: usize,
    operations: Vec<Operation>,
    expected: Vec<Expected>,
    grant: Option<Grant>,
    /// True if the peer has revoked the grant, and has used the tile since.
    is_revoked: bool,
    counts: bool,
}

/// What an operation moves.
struct Expected {
    /// The address to which it moves the bytes.
    target: u64,
    bytes: Vec<u8>,
}

/// A tile that is its owner's alone.
struct Own {
    end: usize,
    tile: u64,
    /// What has ended, for whom, and how.
    since: String,
}

/// What must have counted of a transfer when its receiver is closed.
struct Count {
    end: usize,
    tile: u64,
    done: u64,
    /// Operations that have failed, and may have counted.
    failed: u64,
}

/// A grant over a tile that was revoked before. Nobody has got it.
struct Spare {
    owner: usize,
    grant: Grant,
}

pub(super) struct Run {
    /// The configuration of softofi.
    nic: String,
    planted: Option<Planted>,
    random: Rng,
    /// The handles of each end of the connection.
    peers: Option<[Peer; 2]>,
    spares: Vec<Spare>,
    own: Vec<Own>,
    counts: Vec<Count>,
    outcomes: Outcomes,
    submitted: u64,
    /// Transfers of engines that are closed.
    ended: u64,
    ends: [End; 2],
    device: OfiDevice,
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    holds.then_some(()).ok_or_else(what)
}

impl Run {
    pub(super) fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut random = Rng::with_seed(seed);
        let nic = draw::nic(&mut random);
        let trial = Trial {
            most_bytes: draw::most_bytes(&mut random),
            planted,
        };
        let device = device(&nic).expect("softofi has it").with_trial(trial);
        let ends = ["a", "b"].map(|name| {
            let config = draw::engine(name, &mut random);
            End::new(config, &device, TRANSFERS + 2)
        });
        Self {
            nic,
            planted,
            random,
            peers: None,
            spares: Vec::new(),
            own: Vec::new(),
            counts: Vec::new(),
            outcomes: [0; 4],
            submitted: 0,
            ended: 0,
            ends,
            device,
        }
    }

    /// Returns the memory of both ends. The caller keeps it as long as a provider with a planted defect may write to it.
    pub(super) fn memories(&self) -> [Arc<HostMemory>; 2] {
        self.ends.each_ref().map(|end| Arc::clone(&end.memory))
    }

    /// Runs all transfers. An error says which promise was broken.
    pub(super) fn all(mut self) -> Result<Outcomes, String> {
        let broken = broken_rules(&self.nic).len();
        let closes_at = self.random.u64(0..2 * TRANSFERS);
        let mut running: Vec<Running> = Vec::new();
        for tile in 0..TRANSFERS {
            if running.len() == RUNNING {
                let one = running.swap_remove(self.random.usize(..RUNNING));
                self.conclude(one, None)?;
            }
            let begun = self.begin(tile)?;
            running.push(begun);
            if tile == closes_at {
                let end = self.random.usize(..2);
                self.restart(end, &mut running)?;
            }
        }
        for one in running {
            self.conclude(one, None)?;
        }
        for from in 0..2 {
            self.begin_at_rest(from)?;
        }
        self.check_end(broken)
    }

    fn patience(&self) -> Duration {
        self.planted.map_or(HANG, |_| PATIENCE)
    }

    /// Returns the handles of an open connection, which is made where there is none.
    fn peers(&mut self) -> Result<[Peer; 2], String> {
        if let Some(peers) = &self.peers
            && peers.iter().all(Peer::is_open)
        {
            return Ok(peers.clone());
        }
        let from = self.random.usize(..2);
        let (caller, called) = (&self.ends[from], &self.ends[1 - from]);
        let there = caller.engine.connect(&called.address);
        let there = there.map_err(|error| format!("end {from} does not connect: {error}"))?;
        let here = called.engine.accept(self.patience());
        let here = here.ok_or_else(|| format!("end {from} is not accepted"))?;
        for (peer, other) in [(&there, called), (&here, caller)] {
            let descriptor = other.engine.descriptor(other.region).unwrap();
            let imported = peer.import(&descriptor);
            imported.map_err(|error| format!("a region is not imported: {error}"))?;
        }
        let mut peers = [there, here];
        if from == 1 {
            peers.reverse();
        }
        self.peers = Some(peers.clone());
        Ok(peers)
    }

    fn begin(&mut self, tile: u64) -> Result<Running, String> {
        let from = self.random.usize(..2);
        let mut running = self.submit(from, tile)?;
        if running.counts {
            self.await_count(&running)?;
        }
        let engine = &self.ends[from].engine;
        match self.random.u32(0..10) {
            0 | 1 => engine.cancel(running.id).unwrap(),
            2 => {
                let end = self.random.usize(..2);
                if let Some(peers) = &self.peers {
                    peers[end].break_off();
                }
            }
            _ => {}
        }
        if running.grant.is_some() && self.random.bool() {
            self.revoke(&mut running)?;
        }
        Ok(running)
    }

    fn submit(&mut self, from: usize, tile: u64) -> Result<Running, String> {
        for _ in 0..TRIES {
            if let Some(running) = self.try_submit(from, tile)? {
                self.submitted += 1;
                return Ok(running);
            }
        }
        Err(format!("{TRIES} connections have ended at once"))
    }

    /// Begins a transfer. None: the connection has ended.
    fn try_submit(&mut self, from: usize, tile: u64) -> Result<Option<Running>, String> {
        let (to, peers) = (1 - from, self.peers()?);
        let counts = self.random.u32(0..4) == 0;
        let is_granted = !counts && self.random.u32(0..3) == 0;
        let grant = if is_granted {
            let grant = self.grant(&peers[to], to, tile)?;
            if let Some(grant) = &grant {
                let imported = peers[from].import_grant(grant);
                imported.map_err(|error| format!("a grant is not imported: {error}"))?;
            }
            grant
        } else {
            None
        };
        let there = grant.map_or(self.ends[to].at(tile), |grant| grant.address);
        let (operations, expected) = self.operations(from, tile, there, counts);
        let deadline = match self.random.u32(0..6) {
            0 => Some(Duration::from_micros(self.random.u64(0..3000))),
            _ => None,
        };
        let options = Options::default()
            .with_deadline(deadline)
            .with_counter(counts.then_some(counter_of(tile)));
        match peers[from].submit(&operations, &options) {
            Ok(id) => Ok(Some(Running {
                id,
                tile,
                from,
                to,
                operations,
                expected,
                grant,
                is_revoked: false,
                counts,
            })),
            Err(EngineError::PeerGone { .. }) => Ok(None),
            Err(error) => Err(format!("end {from}, tile {tile}: {error}")),
        }
    }

    /// Returns one to three operations on parts of the tile. Their bytes are written to where they come from.
    fn operations(
        &mut self,
        from: usize,
        tile: u64,
        there: u64,
        counts: bool,
    ) -> (Vec<Operation>, Vec<Expected>) {
        let count = self.random.u64(1..=3);
        let part = TILE / count;
        let (mut operations, mut expected) = (Vec::new(), Vec::new());
        for nth in 0..count {
            let length = self.random.u64(1..=part.min(16_000));
            let mut bytes = vec![0; usize::try_from(length).unwrap()];
            self.random.fill(&mut bytes);
            let places: [u64; 2] = array::from_fn(|end| self.ends[end].at(tile) + nth * part);
            let kind = if counts || self.random.bool() {
                Kind::Write
            } else {
                Kind::Read
            };
            let source = match kind {
                Kind::Write => from,
                Kind::Read => 1 - from,
            };
            self.ends[source].put(places[source], &bytes);
            operations.push(Operation {
                kind,
                local: places[from],
                remote: there + nth * part,
                bytes: length,
            });
            let target = places[1 - source];
            expected.push(Expected { target, bytes });
        }
        (operations, expected)
    }

    /// Grants a tile. None: the connection has ended.
    fn grant(&self, peer: &Peer, owner: usize, tile: u64) -> Result<Option<Grant>, String> {
        match peer.grant(self.ends[owner].at(tile), TILE, Rights::Both, None) {
            Ok(grant) => Ok(Some(grant)),
            Err(HostError::Refused(EngineError::PeerGone { .. })) => Ok(None),
            Err(error) => Err(format!("end {owner} does not grant tile {tile}: {error}")),
        }
    }

    /// Revokes the grant of a transfer. The owner uses the tile at once, and grants it anew, perhaps by a key that it has had.
    fn revoke(&mut self, running: &mut Running) -> Result<(), String> {
        let Some(grant) = running.grant else {
            return Ok(());
        };
        let (to, tile) = (running.to, running.tile);
        self.end_grant(to, &grant)?;
        let since = format!("it has revoked {grant:?}");
        self.cover(to, tile, &since);
        running.is_revoked = true;
        let peer = self.peers.as_ref().map(|peers| peers[to].clone());
        if let Some(peer) = peer
            && let Some(grant) = self.grant(&peer, to, tile)?
        {
            self.spares.push(Spare { owner: to, grant });
        }
        Ok(())
    }

    fn end_grant(&self, owner: usize, grant: &Grant) -> Result<(), String> {
        let ended = self.ends[owner].engine.revoke(grant);
        ended.map_err(|error| format!("end {owner} does not revoke: {error}"))
    }

    fn cover(&mut self, end: usize, tile: u64, since: &str) {
        self.ends[end].cover(tile);
        let since = since.to_owned();
        self.own.push(Own { end, tile, since });
    }

    /// Waits until all operations of a transfer have counted, unless it ends otherwise. Then all bytes are there.
    fn await_count(&self, running: &Running) -> Result<(), String> {
        let counter = self.ends[running.to]
            .engine
            .counter(counter_of(running.tile));
        let counter = counter.unwrap();
        let count = running.operations.len() as u64;
        let begun = Instant::now();
        while counter.wait(count, Duration::from_millis(1)).is_none() {
            let status = self.ends[running.from].engine.poll(running.id).unwrap();
            if matches!(status, Status::Concluded(outcome) if outcome != Outcome::Done) {
                return Ok(());
            }
            let found = counter.read();
            check(begun.elapsed() < self.patience(), || {
                format!("{found} of {count} have counted: {status:?}")
            })?;
        }
        let all = running.expected.iter();
        let wrong = all.filter(|it| !self.is_there(it, running.to)).count();
        check(wrong == 0, || {
            format!("all have counted, and {wrong} of {count} are not there")
        })
    }

    fn is_there(&self, expected: &Expected, target: usize) -> bool {
        let found = self.ends[target].bytes(expected.target, expected.bytes.len());
        found == expected.bytes
    }

    fn await_end(&self, from: usize, id: TransferId) -> Result<Outcome, String> {
        let status = self.ends[from].engine.wait(id, self.patience()).unwrap();
        match status {
            Status::Concluded(outcome) => Ok(outcome),
            other => Err(format!("{id:?} of end {from} is not concluded: {other:?}")),
        }
    }

    /// Waits for the end of a transfer, and compares what is done. `closed` is an end whose engine is closed.
    fn conclude(&mut self, running: Running, closed: Option<usize>) -> Result<(), String> {
        let (from, to, tile) = (running.from, running.to, running.tile);
        let outcome = self.await_end(from, running.id)?;
        self.outcomes[outcome as usize] += 1;
        let report = self.ends[from].engine.report(running.id).unwrap();
        check(report.outcome == outcome, || {
            format!("{outcome:?}: {report:?}")
        })?;
        self.compare(&running, &report)?;
        if running.counts && report.remote == Remote::Quiet {
            self.note_count(&running, &report);
        }
        if let Some(grant) = &running.grant {
            if !running.is_revoked && closed != Some(to) {
                self.end_grant(to, grant)?;
            } else if running.is_revoked && closed.is_none() && self.random.bool() {
                self.write_late(from, tile, grant)?;
            }
        }
        // Its memory is used again at once.
        let since = format!(
            "{:?} of end {from} has ended: {report:?}",
            running.operations
        );
        self.cover(from, tile, &since);
        let is_quiet = report.remote == Remote::Quiet || closed == Some(to);
        if is_quiet && !running.is_revoked {
            self.cover(to, tile, &since);
        }
        let again = self.await_end(from, running.id)?;
        check(again == outcome, || format!("{outcome:?}, then {again:?}"))?;
        self.ends[from].engine.release(running.id).unwrap();
        Ok(())
    }

    /// What is done is right, byte for byte.
    fn compare(&self, running: &Running, report: &Report) -> Result<(), String> {
        let statuses = &report.operations;
        check(statuses.len() == running.operations.len(), || {
            format!("{report:?}")
        })?;
        let each = running.operations.iter().zip(&running.expected);
        let mut landed = 0;
        for ((operation, expected), status) in each.zip(statuses) {
            let is_done = *status == OperationStatus::Done;
            check(is_done || report.outcome != Outcome::Done, || {
                format!("{report:?}")
            })?;
            if !is_done {
                continue;
            }
            landed += operation.bytes;
            let target = match operation.kind {
                // The owner has used it since.
                Kind::Write if running.is_revoked => continue,
                Kind::Write => running.to,
                Kind::Read => running.from,
            };
            check(self.is_there(expected, target), || {
                let revoked = if running.is_revoked {
                    ", by a key that was revoked under it"
                } else {
                    ""
                };
                let found = self.ends[target].bytes(expected.target, 1);
                format!(
                    "{operation:?} is done{revoked}, and its bytes are not there but {found:?}: {report:?}"
                )
            })?;
        }
        let all: u64 = running.operations.iter().map(|it| it.bytes).sum();
        check((landed..=all).contains(&report.bytes_landed), || {
            format!("{landed} to {all} have landed: {report:?}")
        })
    }

    fn note_count(&mut self, running: &Running, report: &Report) {
        let of = |wanted| {
            let statuses = report.operations.iter();
            statuses.filter(|status| **status == wanted).count() as u64
        };
        self.counts.push(Count {
            end: running.to,
            tile: running.tile,
            done: of(OperationStatus::Done),
            failed: of(OperationStatus::Failed),
        });
    }

    /// Compares the counters of an engine that is closed.
    fn check_counts(&self, of: usize) -> Result<(), String> {
        for Count {
            tile, done, failed, ..
        } in self.counts.iter().filter(|count| count.end == of)
        {
            let counter = self.ends[of].engine.counter(counter_of(*tile)).unwrap();
            let found = counter.read();
            check((*done..=done + failed).contains(&found), || {
                format!(
                    "tile {tile} of end {of} has counted {found}: {done} are done, {failed} have failed"
                )
            })?;
        }
        Ok(())
    }

    /// Writes by a grant that is revoked. That is never done.
    fn write_late(&mut self, from: usize, tile: u64, grant: &Grant) -> Result<(), String> {
        let peers = self.peers()?;
        match peers[from].write(self.ends[from].at(tile), grant.address, 64) {
            Ok(id) => {
                self.submitted += 1;
                let outcome = self.await_end(from, id)?;
                self.outcomes[outcome as usize] += 1;
                self.ends[from].engine.release(id).unwrap();
                check(outcome != Outcome::Done, || {
                    format!("a write by a grant of tile {tile} is done that was revoked")
                })
            }
            Err(EngineError::PeerGone { .. }) => Ok(()),
            Err(error) => Err(format!("a write by a grant that was revoked: {error}")),
        }
    }

    /// Closes an engine under load. All transfers end, and nothing lands in its memory any more. Then its next life begins.
    fn restart(&mut self, end: usize, running: &mut Vec<Running>) -> Result<(), String> {
        let _ = self.ends[end].engine.close();
        for one in running.drain(..) {
            self.conclude(one, Some(end))?;
        }
        self.check_ended(end)?;
        self.check_counts(end)?;
        self.counts.retain(|count| count.end != end);
        self.ended += self.ends[end].engine.statistics().submitted;
        self.peers = None;
        // The grants of the other end have ended with the connection, which it may be told twice.
        self.spares.retain(|spare| spare.owner != end);
        let next = self.ends[end].again(&self.device);
        self.ends[end] = next;
        Ok(())
    }

    /// Begins a transfer while all workers sleep.
    fn begin_at_rest(&mut self, from: usize) -> Result<(), String> {
        self.peers()?;
        std::thread::sleep(REST);
        let running = self.submit(from, TRANSFERS + from as u64)?;
        if running.counts {
            self.await_count(&running)?;
        }
        self.conclude(running, None)
    }

    /// Each transfer of an engine has ended once.
    fn check_ended(&self, end: usize) -> Result<(), String> {
        let all = self.ends[end].engine.statistics();
        let ended = all.done + all.failed + all.cancelled + all.timed_out;
        check(ended == all.submitted, || format!("end {end}: {all:?}"))
    }

    /// All memory is taken away, and nothing has changed what is its owner's.
    fn check_end(mut self, broken: usize) -> Result<Outcomes, String> {
        for Spare { owner, grant } in &self.spares {
            self.end_grant(*owner, grant)?;
        }
        self.peers = None;
        let mut submitted = self.ended;
        for (nth, end) in self.ends.iter().enumerate() {
            self.check_ended(nth)?;
            let all = end.engine.statistics();
            submitted += all.submitted;
            check(all.slices.in_flight() == 0, || {
                format!("end {nth}: {all:?}")
            })?;
            let gone = end.engine.deregister_wait(end.region, self.patience());
            gone.map_err(|error| format!("the region of end {nth} stays: {error}"))?;
            let left = (end.engine.grants(), end.engine.in_use());
            check(left == (0, 0), || format!("end {nth} has {left:?} left"))?;
            let cut_off = end.engine.close().cut_off;
            check(cut_off == 0, || format!("end {nth}: {cut_off} are cut off"))?;
        }
        for end in 0..2 {
            self.check_counts(end)?;
        }
        let concluded: u64 = self.outcomes.iter().sum();
        let sums = (submitted, concluded);
        check(sums == (self.submitted, self.submitted), || {
            format!("{sums:?} of {} are concluded", self.submitted)
        })?;
        for Own { end, tile, since } in &self.own {
            let changed = self.ends[*end].changed(*tile);
            check(changed.is_none(), || {
                format!("byte {changed:?} of tile {tile} of end {end} has changed, though {since}")
            })?;
        }
        let rules = broken_rules(&self.nic);
        let rules = rules.get(broken..).unwrap_or_default();
        check(rules.is_empty() || self.planted.is_some(), || {
            format!("rules of the manual are broken: {rules:?}")
        })?;
        Ok(self.outcomes)
    }
}

/// Returns the number of the counter at which the transfer of a tile counts.
fn counter_of(tile: u64) -> u32 {
    u32::try_from(tile).unwrap()
}
