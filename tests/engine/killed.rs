//! Four processes write to each other by the NIC. One of them is killed: its transfers end, the others learn of it, and nothing between
//! them fails. Or one is stopped for a time: nothing fails, and between the others all goes on.

use std::env;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use softhca::HcaConfig;
use test_support::counts::full;
use test_support::limits::{HANG, until};
use test_support::process::Process;
use test_support::stopped;
use warpverbs::config::PathConfig;
use warpverbs::internal::engine::{
    EngineError, Kind, Operation, Options, Outcome, Peer, TransferId,
};

use crate::descriptors::{descriptor, hex};
use crate::drivers::{Driver, word_for_a_process};
use crate::rig::{End, config, listens};

const PROCESSES: usize = 4;
/// The process that each round kills, or stops.
const VICTIM: usize = 3;
/// Bytes that a process has from each other, and for each other.
const PART: u64 = 1 << 16;
const PIECES: u64 = 16;
/// Transfers to a peer at a time.
const AT_A_TIME: usize = 3;
/// For how long a process is stopped.
const STOPPED: Duration = Duration::from_secs(3);
/// The exponent of a retransmission timeout of 2.1 s. With the retries the HCA waits for longer than a process is stopped.
const PATIENT: u8 = 19;
/// What a process that a test starts is: what drives its engine, its number, and perhaps that it is patient.
const NUMBER: &str = "WV_TEST_ENGINE_KILLED";

/// Bytes that a process sends another at the end of a round, and none before.
fn last_bytes(from: usize, to: usize, round: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(PART).unwrap()];
    let seed = round * 100 + (from * PROCESSES + to) as u64;
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// What became of the transfers to one peer.
#[derive(Debug, Default)]
struct Sums {
    done: u64,
    failed: u64,
    /// From the first failure to the end of the last transfer.
    ended_in: Duration,
}

/// Transfers to one peer, until a thread stops them or the peer is gone.
struct Load {
    stops: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<(Arc<Peer>, u64, Sums)>,
}

/// A process with an engine: its region has the parts that come from each process, and after them those for each.
struct Member {
    number: usize,
    own: Arc<End>,
    peers: [Option<(Arc<Peer>, u64)>; PROCESSES],
    loads: [Option<Load>; PROCESSES],
}

impl Member {
    fn new(number: usize, is_patient: bool) -> Self {
        let mut own = config(&format!("process {number}")).with_qps(2);
        if is_patient {
            own = own.with_path(PathConfig::default().with_ack_timeout(Some(PATIENT)));
        }
        let bytes = 2 * PROCESSES as u64 * PART;
        Self {
            number,
            own: Arc::new(End::on(HcaConfig::default(), own, bytes)),
            peers: Default::default(),
            loads: Default::default(),
        }
    }

    fn part_for(&self, peer: usize) -> u64 {
        (PROCESSES + peer) as u64 * PART
    }

    fn operations(&self, peer: usize, remote: u64) -> Vec<Operation> {
        let (from, bytes) = (self.own.at(self.part_for(peer)), PART / PIECES);
        let to = remote + self.number as u64 * PART;
        let piece = |nth| Operation {
            kind: Kind::Write,
            local: from + nth * bytes,
            remote: to + nth * bytes,
            bytes,
        };
        (0..PIECES).map(piece).collect()
    }

    fn know(&mut self, peer: usize, handle: Peer, region: &str) {
        let region = descriptor(region);
        handle.import(&region).unwrap();
        self.peers[peer] = Some((Arc::new(handle), region.address));
    }

    /// Writes to each peer, a few transfers at a time.
    fn begin(&mut self) {
        for peer in 0..PROCESSES {
            let Some((handle, remote)) = self.peers[peer].take() else {
                continue;
            };
            let operations = self.operations(peer, remote);
            let (own, stops) = (Arc::clone(&self.own), Arc::new(AtomicBool::new(false)));
            let done = Arc::default();
            let (stopped, counted) = (Arc::clone(&stops), Arc::clone(&done));
            let thread = thread::spawn(move || {
                let sums = write_until(&own, &handle, &operations, (&stopped, &counted));
                (handle, remote, sums)
            });
            self.loads[peer] = Some(Load {
                stops,
                done,
                thread,
            });
        }
    }

    /// Waits until some transfers to each peer are done, and others are under way.
    fn runs(&self) {
        let runs = |load: &Load| load.done.load(Ordering::SeqCst) > 2;
        until("transfers to each are done", || {
            self.loads.iter().flatten().all(runs)
        });
    }

    /// Waits until more transfers to each peer but the victim are done than now.
    fn goes_on(&self) {
        let others = self.loads.iter().enumerate();
        let others = others.filter(|(peer, _)| *peer != VICTIM);
        let counts: Vec<(&AtomicU64, u64)> = others
            .filter_map(|(_, load)| load.as_ref())
            .map(|load| (&*load.done, load.done.load(Ordering::SeqCst)))
            .collect();
        until("transfers between the others go on", || {
            let mut all = counts.iter();
            all.all(|(done, before)| done.load(Ordering::SeqCst) > before + 2)
        });
    }

    /// The end of the load to a peer: by itself, or because it stops now.
    fn end_of(&mut self, peer: usize, stops: bool) -> Sums {
        let load = self.loads[peer].take().expect("it runs");
        load.stops.store(stops, Ordering::SeqCst);
        let (handle, remote, sums) = load.thread.join().unwrap();
        self.peers[peer] = Some((handle, remote));
        sums
    }

    /// Learns of the death of the victim.
    fn mourn(&mut self) -> String {
        let gone = self.own.engine.peer_gone(HANG).expect("it learns of it");
        assert_eq!(gone.name, format!("process {VICTIM}"));
        let sums = self.end_of(VICTIM, false);
        let (handle, remote) = self.peers[VICTIM].take().unwrap();
        let refused = handle.submit(&self.operations(VICTIM, remote), &Options::default());
        assert!(
            matches!(refused, Err(EngineError::PeerGone { .. })),
            "{refused:?}"
        );
        format!("mourned {} {:?}", sums.failed, sums.ended_in)
    }

    /// Ends the load to those that live, and sends each the last bytes.
    fn settle(&mut self, round: u64) {
        for peer in 0..PROCESSES {
            if self.loads[peer].is_none() {
                continue;
            }
            let sums = self.end_of(peer, true);
            assert_eq!(sums.failed, 0, "to process {peer}: {sums:?}");
            assert!(sums.done > 0, "to process {peer}: {sums:?}");
            let bytes = last_bytes(self.number, peer, round);
            let at = self.part_for(peer);
            self.own.memory.write(at, &bytes).unwrap();
            let (handle, remote) = self.peers[peer].as_ref().unwrap();
            let operations = self.operations(peer, *remote);
            let id = handle.submit(&operations, &Options::default()).unwrap();
            assert_eq!(self.own.concluded(id), Outcome::Done);
            self.own.engine.release(id).unwrap();
        }
    }

    /// All that those that are still peers have sent.
    fn compare(&self, round: u64) {
        let mut found = vec![0; usize::try_from(PART).unwrap()];
        for peer in (0..PROCESSES).filter(|peer| self.peers[*peer].is_some()) {
            let read = self.own.memory.read(peer as u64 * PART, &mut found);
            read.unwrap();
            let due = last_bytes(peer, self.number, round);
            assert!(
                found == due,
                "from process {peer} to {}, round {round}",
                self.number
            );
        }
    }

    /// Does what the test asks for. The answer.
    fn does(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        match words[0] {
            "says" => {
                let address = listens(&self.own.engine);
                let region = self.own.engine.descriptor(self.own.region).unwrap();
                return format!("{address} {}", hex(&region.to_bytes()));
            }
            "connect" => {
                let peer = self.own.engine.connect(words[2]).unwrap();
                self.know(number(1), peer, words[3]);
            }
            "accept" => {
                let peer = self.own.engine.accept(HANG).expect("it has connected");
                self.know(number(1), peer, words[3]);
            }
            "begin" => self.begin(),
            "run" => self.runs(),
            "go-on" => self.goes_on(),
            "mourn" => return self.mourn(),
            "settle" => self.settle(number(1) as u64),
            "compare" => self.compare(number(1) as u64),
            other => panic!("{other}"),
        }
        words[0].to_owned()
    }
}

/// Writes the same vector over and over, and counts the outcomes. After the first failure nothing more is submitted.
fn write_until(
    own: &End,
    peer: &Peer,
    operations: &[Operation],
    (stops, done): (&AtomicBool, &AtomicU64),
) -> Sums {
    let mut sums = Sums::default();
    let mut failed_at = None;
    let mut under_way: Vec<TransferId> = Vec::new();
    loop {
        while failed_at.is_none() && under_way.len() < AT_A_TIME && !stops.load(Ordering::SeqCst) {
            match peer.submit(operations, &Options::default()) {
                Ok(id) => under_way.push(id),
                Err(EngineError::PeerGone { .. }) => failed_at = Some(Instant::now()),
                Err(error) => panic!("{error}"),
            }
        }
        if under_way.is_empty() {
            sums.ended_in = failed_at.map_or(Duration::ZERO, |it| it.elapsed());
            return sums;
        }
        let ended = own.engine.wait_any(&under_way, HANG).unwrap();
        let id = under_way.swap_remove(ended.expect("it is concluded"));
        match own.concluded(id) {
            Outcome::Done => {
                sums.done += 1;
                done.store(sums.done, Ordering::SeqCst);
            }
            _ => {
                failed_at.get_or_insert_with(Instant::now);
                sums.failed += 1;
            }
        }
        own.engine.release(id).unwrap();
    }
}

/// One of the processes, with what it has said of its engine.
struct Started {
    process: Process,
    address: String,
    region: String,
}

impl Started {
    fn new(number: usize, manner: &str) -> Self {
        let what = format!("{} {number} {manner}", word_for_a_process());
        let mut process = Process::start("killed::a_process_of_four", (NUMBER, &what));
        let said = process.asked("says");
        let (address, region) = said.split_once(' ').unwrap();
        Self {
            process,
            address: address.to_owned(),
            region: region.to_owned(),
        }
    }
}

/// All do the same at a time, and say the same.
fn all_do(processes: &mut [Started], what: &str) -> Vec<String> {
    for started in &mut *processes {
        started.process.ask(what);
    }
    processes.iter().map(|it| it.process.says()).collect()
}

/// Process `one` connects to `other`.
fn join(processes: &mut [Started], one: usize, other: usize) {
    let place = |nth: usize| {
        let Started {
            address, region, ..
        } = &processes[nth];
        format!("{nth} {address} {region}")
    };
    let (to, from) = (place(other), place(one));
    processes[one].process.ask(&format!("connect {to}"));
    processes[other].process.ask(&format!("accept {from}"));
    assert_eq!(processes[one].process.says(), "connect");
    assert_eq!(processes[other].process.says(), "accept");
}

/// Each connects to all after it.
fn join_all(processes: &mut [Started]) {
    for one in 0..processes.len() {
        for other in one + 1..processes.len() {
            join(processes, one, other);
        }
    }
}

#[test]
#[ignore = "is started by the tests below"]
fn a_process_of_four() {
    let what = env::var(NUMBER).expect("started by a test");
    let words: Vec<&str> = what.split_whitespace().collect();
    Driver::named(words[0]).begin();
    let mut member = Member::new(words[1].parse().unwrap(), words.contains(&"patient"));
    for line in io::stdin().lines() {
        let answer = member.does(&line.unwrap());
        println!("said: {answer}");
    }
}

#[test]
pub(crate) fn of_four_processes_one_is_killed_and_only_its_transfers_fail() {
    let rounds = if full() { 100 } else { 3 };
    let mut processes: Vec<Started> = (0..VICTIM).map(|it| Started::new(it, "")).collect();
    join_all(&mut processes);
    for round in 0..rounds {
        processes.push(Started::new(VICTIM, ""));
        for other in 0..VICTIM {
            join(&mut processes, VICTIM, other);
        }
        assert_eq!(all_do(&mut processes, "begin"), ["begin"; PROCESSES]);
        assert_eq!(all_do(&mut processes, "run"), ["run"; PROCESSES]);
        let mut victim = processes.pop().unwrap();
        let killed = Instant::now();
        victim.process.kill();
        let mourned = all_do(&mut processes, "mourn");
        let behind = killed.elapsed();
        println!("round {round}, {behind:.3?} behind the kill: {mourned:?}");
        assert!(mourned.iter().all(|it| it.starts_with("mourned ")));
        let settled = all_do(&mut processes, &format!("settle {round}"));
        assert_eq!(settled, ["settle"; VICTIM]);
        let compared = all_do(&mut processes, &format!("compare {round}"));
        assert_eq!(compared, ["compare"; VICTIM]);
    }
}

#[test]
pub(crate) fn of_four_processes_one_is_stopped_for_a_time_and_no_transfer_fails() {
    let start = |number| Started::new(number, "patient");
    let mut processes: Vec<Started> = (0..PROCESSES).map(start).collect();
    join_all(&mut processes);
    assert_eq!(all_do(&mut processes, "begin"), ["begin"; PROCESSES]);
    assert_eq!(all_do(&mut processes, "run"), ["run"; PROCESSES]);
    let victim = processes[VICTIM].process.id();
    stopped::stop(victim);
    let begun = Instant::now();
    while begun.elapsed() < STOPPED {
        let others = all_do(&mut processes[..VICTIM], "go-on");
        assert_eq!(others, ["go-on"; VICTIM]);
        thread::sleep(Duration::from_millis(100));
    }
    stopped::resume(victim);
    // All of the load is done, and what is sent then arrives everywhere.
    let settled = all_do(&mut processes, "settle 0");
    println!("{:.3?} after the stop all has settled", begun.elapsed());
    assert_eq!(settled, ["settle"; PROCESSES]);
    assert_eq!(all_do(&mut processes, "compare 0"), ["compare"; PROCESSES]);
}
