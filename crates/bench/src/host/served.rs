//! The other end of `wv bench fill` and `wv bench p2p`: an engine with memory, which serves one run after another.
//!
//! The two ends speak by notices. The end that measures tells its setting, and gets a region. After the last bytes that are to be compared
//! it sends a notice. This end compares as soon as the notice comes, because all the bytes come before the notice.
//!
//! Runs are served in the order in which they were begun. A peer that begins no run holds up no other peer. What peers tell before their
//! turn is kept up to a bound.

use std::collections::VecDeque;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use warpverbs::deadline::Looks;
use warpverbs::engine::{
    Behind, Descriptor, Engine, EngineAddress, EngineConfig, EngineDevice, EnginePath, HostError,
    Notice, Outcome, Peer, printable,
};
use warpverbs::error::ThreadRefused;

use super::memory::{EndMemory, MemoryChoice, MemoryKind};
use super::pages::FillOptions;
use super::pieces::PatternOptions;
use crate::error::BenchError;

/// Longest wait for a call of the engine; far more than any takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// The version of the messages that the two ends send each other.
const VERSION: u32 = 4;
/// How long a peer that has connected may take to begin a run.
const BEGINS: Duration = Duration::from_secs(10);
/// The time between two notices by which the end that measures tells that it goes on.
const BEAT: Duration = Duration::from_secs(20);
/// The most notices, and the most bytes of them, that are kept of one peer before its turn. A run begins with one notice.
const MOST_OF_PEER: usize = 4;
const MOST_BYTES_OF_PEER: usize = 16 << 10;
/// The most notices, and the most bytes of them, that are kept of all peers.
const MOST_OF_ALL: usize = 4096;
const MOST_BYTES_OF_ALL: usize = 8 << 20;
/// Longest wait for a notice before this end looks whether the other is still there.
const LOOK: Duration = Duration::from_millis(200);

/// What a run measures, with its options.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Setting {
    Fill(FillOptions),
    Pattern(PatternOptions),
}

impl Setting {
    fn check(&self) -> Result<(), BenchError> {
        match self {
            Self::Fill(options) => options.check(),
            Self::Pattern(options) => options.check(),
        }
    }

    /// Returns the number of bytes of memory that the run takes.
    fn bytes(&self) -> u64 {
        match self {
            Self::Fill(options) => options.bytes,
            Self::Pattern(options) => options.bytes,
        }
    }

    /// Fills the memory before the run.
    fn prepare(&self, memory: &EndMemory) -> Result<(), BenchError> {
        match self {
            Self::Fill(_) => Ok(()),
            Self::Pattern(options) => options.prepare(memory),
        }
    }

    /// Compares what a repeat has written. Returns how many bytes it compared.
    fn compare(&self, memory: &EndMemory, repeat: u32) -> Result<u64, BenchError> {
        match self {
            Self::Fill(options) => options.compare(memory, repeat),
            Self::Pattern(options) => options.compare(memory),
        }
    }
}

/// A message from one end to the other, sent as JSON in a notice.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    /// The setting of the run that begins.
    Begin { version: u32, run: Setting },
    /// The memory that the run writes to or reads.
    Region {
        descriptor: Vec<u8>,
        memory: MemoryKind,
    },
    /// The run goes on, though it tells nothing new.
    Continues,
    /// All bytes of this repeat have been written.
    Written(u32),
    /// So many bytes of the repeat were compared, and are as they were sent.
    Compared(u64),
    /// The run is over because of this error.
    Failed(String),
}

impl Told {
    fn to_bytes(&self) -> Result<Vec<u8>, BenchError> {
        serde_json::to_vec(self).map_err(|error| wrong(error.to_string()))
    }

    /// Returns the next message of `peer`. What other peers tell meanwhile goes to `others`. None: `peer` is gone. Silence for `most` is an
    /// error.
    fn next(
        engine: &Engine,
        peer: &Peer,
        others: &mut Others,
        most: Duration,
    ) -> Result<Option<Self>, BenchError> {
        if let Some(notice) = others.take(peer.name()) {
            return Self::of(notice).map(Some);
        }
        let mut is_open = true;
        for left in Looks::within(most) {
            match engine.notice(left.min(LOOK)) {
                Some(notice) if notice.peer == peer.name() => {
                    return Self::of(notice.into()).map(Some);
                }
                Some(notice) => others.keep(notice.into()),
                // The connection has ended, and every notice that came before its end has been taken.
                None if !is_open => return Ok(None),
                None => is_open = peer.is_open() && !engine.is_closed(),
            }
        }
        Err(silent(peer, most))
    }

    fn of(notice: Early) -> Result<Self, BenchError> {
        let Early {
            peer,
            bytes,
            transfer,
        } = notice;
        if let Some(behind) = transfer.filter(|it| it.outcome != Outcome::Done) {
            return Err(wrong(format!("a transfer of {peer} is {behind:?}")));
        }
        let told = serde_json::from_slice(&bytes);
        told.map_err(|error| wrong(format!("{peer} tells no step of a run: {error}")))
    }

    fn tell(&self, peer: &Peer) -> Result<(), BenchError> {
        let told = peer.notify_wait(&self.to_bytes()?, PATIENCE);
        Ok(told.map_err(HostError::from)?)
    }
}

/// Returns the bytes of the notice that follows the last bytes of a repeat.
pub(super) fn written(repeat: u32) -> Result<Vec<u8>, BenchError> {
    Told::Written(repeat).to_bytes()
}

/// Notices of peers that nobody has asked for yet. A notice beyond the share of its peer is dropped: no run needs so many.
#[derive(Debug, Default)]
pub(super) struct Others {
    kept: VecDeque<Early>,
}

/// A notice of a peer.
#[derive(Debug)]
struct Early {
    peer: String,
    bytes: Box<[u8]>,
    transfer: Option<Behind>,
}

impl From<Notice> for Early {
    fn from(notice: Notice) -> Self {
        Self {
            peer: notice.peer,
            bytes: notice.bytes,
            transfer: notice.transfer,
        }
    }
}

impl Others {
    fn keep(&mut self, notice: Early) {
        let own = self.kept.iter().filter(|it| it.peer == notice.peer);
        let (count, bytes) = own.fold((1, notice.bytes.len()), |(count, bytes), it| {
            (count + 1, bytes + it.bytes.len())
        });
        if count > MOST_OF_PEER || bytes > MOST_BYTES_OF_PEER {
            tracing::debug!("{}: tells more than its share before its turn", notice.peer);
            return;
        }
        self.kept.push_back(notice);
        // If all peers together have too many notices, the oldest notice is dropped.
        while self.kept.len() > MOST_OF_ALL || self.bytes() > MOST_BYTES_OF_ALL {
            self.kept.pop_front();
        }
    }

    fn bytes(&self) -> usize {
        self.kept.iter().map(|it| it.bytes.len()).sum()
    }

    fn has_of(&self, peer: &str) -> bool {
        self.kept.iter().any(|it| it.peer == peer)
    }

    fn take(&mut self, peer: &str) -> Option<Early> {
        let at = self.kept.iter().position(|it| it.peer == peer)?;
        self.kept.remove(at)
    }

    /// Drops the notices of a peer that is gone, or whose turn is over.
    fn forget(&mut self, peer: &str) {
        self.kept.retain(|it| it.peer != peer);
    }
}

/// A thread that tells a server that this end goes on with its run. It ends when this is dropped.
struct Beats {
    /// A channel whose end tells the thread to end.
    ends: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Beats {
    fn start(peer: &Peer) -> Result<Self, BenchError> {
        let (ends, end) = mpsc::channel();
        let (peer, continues) = (peer.clone(), Told::Continues.to_bytes()?);
        let body = move || {
            while end.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                // If the peer is gone or takes no notice, the run itself will see that.
                let _ = peer.notify(&continues);
            }
        };
        let name = "wv-bench-beats";
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
        let thread = thread.map_err(|cause| wrong(ThreadRefused::new(name, &cause).to_string()))?;
        Ok(Self {
            ends: Some(ends),
            thread: Some(thread),
        })
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        self.ends.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The serving end, as the end that measures sees it.
pub(super) struct Server {
    pub(super) peer: Peer,
    _beats: Beats,
    /// The address at which its memory begins.
    pub(super) address: u64,
    /// The kind of its memory.
    pub(super) memory: MemoryKind,
}

impl Server {
    /// Begins a run with the engine that listens at `place`, and waits for its turn. What other peers tell meanwhile goes to `others`.
    pub(super) fn begin(
        (engine, others): (&Engine, &mut Others),
        place: &str,
        run: Setting,
    ) -> Result<Self, BenchError> {
        let peer = engine.connect(place)?;
        let version = VERSION;
        Told::Begin { version, run }.tell(&peer)?;
        match answer(engine, &peer, others)? {
            Told::Region { descriptor, memory } => {
                let descriptor = Descriptor::from_bytes(&descriptor).map_err(HostError::from)?;
                peer.import(&descriptor).map_err(HostError::from)?;
                Ok(Self {
                    _beats: Beats::start(&peer)?,
                    peer,
                    address: descriptor.address,
                    memory,
                })
            }
            other => Err(wrong(format!("{other:?}; it must be a region"))),
        }
    }

    /// Returns the number of bytes that the server has compared after the notice of a repeat.
    pub(super) fn compared(&self, engine: &Engine, others: &mut Others) -> Result<u64, BenchError> {
        match answer(engine, &self.peer, others)? {
            Told::Compared(bytes) => Ok(bytes),
            other => Err(wrong(format!("{other:?}; it must be compared bytes"))),
        }
    }
}

/// Returns the next message of a server, or an error if the message is a failure. The server may serve other runs first, however long they
/// take.
fn answer(engine: &Engine, peer: &Peer, others: &mut Others) -> Result<Told, BenchError> {
    match Told::next(engine, peer, others, Duration::MAX)? {
        Some(Told::Failed(reason)) => {
            let reason = printable(&reason);
            Err(wrong(format!("the other end: {reason}")))
        }
        Some(told) => Ok(told),
        None => Err(wrong("the other end is gone".to_owned())),
    }
}

/// How long a serving end waits for its peers.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The wait for a peer that has connected to begin a run. Other runs are served meanwhile.
    pub begins: Duration,
    /// The wait for the next message of the peer, in a run.
    pub continues: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let (begins, continues) = (BEGINS, PATIENCE);
        Self { begins, continues }
    }
}

/// A peer that has connected and has not begun a run.
struct Waiting {
    peer: Peer,
    since: Instant,
}

/// An engine that serves runs.
#[derive(Debug)]
pub struct Served {
    engine: Engine,
    address: EngineAddress,
    /// The most bytes of memory that a run may take.
    most: u64,
    /// The kind of memory that runs get.
    memory: MemoryChoice,
    patience: Patience,
}

impl Served {
    /// Listens at `address`, on these devices, for runs that take at most `most` bytes of this memory.
    ///
    /// # Errors
    /// What the engine refuses; a GPU that cannot be opened.
    pub fn listen(
        devices: &[EngineDevice],
        address: EngineAddress,
        config: EngineConfig,
        (memory, most): (MemoryChoice, u64),
    ) -> Result<Self, BenchError> {
        let engine = Engine::on(devices, config.with_engine_path(EnginePath::Nic))?;
        if let MemoryChoice::Gpu(selector) = memory {
            // The GPU is opened before any run, because an end without its memory can serve none.
            engine.gpu(selector)?;
        }
        let address = engine.listen(address)?;
        Ok(Self {
            engine,
            address,
            most,
            memory,
            patience: Patience::default(),
        })
    }

    /// Replaces the times that this end waits for its peers.
    #[must_use]
    pub fn with_patience(mut self, patience: Patience) -> Self {
        self.patience = patience;
        self
    }

    /// Returns the address at which this end listens.
    #[must_use]
    pub const fn address(&self) -> &EngineAddress {
        &self.address
    }

    /// Serves `runs` runs, or until the engine is closed. `tell` gets the error of each run that fails, and of each peer that begins none.
    pub fn serve(&self, runs: Option<u64>, mut tell: impl FnMut(&BenchError)) {
        let (mut served, mut waiting, mut others) = (0, Vec::new(), Others::default());
        while runs.is_none_or(|most| served < most) && !self.engine.is_closed() {
            let Some(peer) = self.next((&mut waiting, &mut others), &mut tell) else {
                continue;
            };
            served += 1;
            let done = self.run(&peer, &mut others);
            // A failed run may have left notices.
            others.forget(peer.name());
            if let Err(error) = done {
                // The other end may be gone, which is no matter.
                let _ = Told::Failed(error.to_string()).tell(&peer);
                tell(&error);
            }
        }
    }

    /// Returns the next peer that has begun a run, or None if none does so soon. Ends the connections of peers that are silent for too
    /// long.
    fn next(
        &self,
        (waiting, others): (&mut Vec<Waiting>, &mut Others),
        tell: &mut impl FnMut(&BenchError),
    ) -> Option<Peer> {
        while let Some(peer) = self.engine.accept(Duration::ZERO) {
            let since = Instant::now();
            waiting.push(Waiting { peer, since });
        }
        while let Some(gone) = self.engine.peer_gone(Duration::ZERO) {
            others.forget(&gone.name);
        }
        waiting.retain(|it| it.peer.is_open());
        let told = waiting.iter().position(|it| others.has_of(it.peer.name()));
        if let Some(at) = told {
            return Some(waiting.remove(at).peer);
        }
        let most = self.patience.begins;
        for Waiting { peer, .. } in waiting.extract_if(.., |it| it.since.elapsed() >= most) {
            tell(&silent(&peer, most));
            peer.break_off();
        }
        if let Some(notice) = self.engine.notice(LOOK) {
            others.keep(notice.into());
        }
        None
    }

    /// Ends the run and [`Served::serve`].
    pub fn close(&self) {
        let _ = self.engine.close();
    }

    fn run(&self, peer: &Peer, others: &mut Others) -> Result<(), BenchError> {
        let run = match Told::next(&self.engine, peer, others, self.patience.begins)? {
            None => return Ok(()),
            Some(Told::Begin { version, run }) if version == VERSION => run,
            Some(other) => {
                return Err(wrong(format!(
                    "a run began with {other:?}; it must be version {VERSION}"
                )));
            }
        };
        run.check()?;
        let bytes = run.bytes();
        if bytes > self.most {
            return Err(BenchError::Option {
                what: "--bytes",
                value: bytes.to_string(),
                limit: format!("at most {}, which the other end has set", self.most),
            });
        }
        let memory = EndMemory::new(&self.engine, self.memory, bytes)?;
        run.prepare(&memory)?;
        let (region, kind) = memory.register(&self.engine)?;
        let told = Told::Region {
            descriptor: self.engine.descriptor(region)?.to_bytes().to_vec(),
            memory: kind,
        };
        let done = self.converse((peer, others), &memory, &run, &told);
        self.engine.deregister(region)?;
        done
    }

    fn converse(
        &self,
        (peer, others): (&Peer, &mut Others),
        memory: &EndMemory,
        run: &Setting,
        region: &Told,
    ) -> Result<(), BenchError> {
        region.tell(peer)?;
        let most = self.patience.continues;
        while let Some(told) = Told::next(&self.engine, peer, others, most)? {
            match told {
                Told::Continues => {}
                Told::Written(repeat) => {
                    Told::Compared(run.compare(memory, repeat)?).tell(peer)?;
                }
                told => return Err(wrong(format!("{told:?}; it must be a repeat"))),
            }
        }
        Ok(())
    }
}

fn silent(peer: &Peer, most: Duration) -> BenchError {
    let (peer, most) = (peer.name(), most.as_secs_f64());
    wrong(format!(
        "{peer} has told no step of a run for {most} s, the most"
    ))
}

fn wrong(detail: String) -> BenchError {
    BenchError::Wrong {
        case: "two ends".to_owned(),
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(peer: usize, bytes: usize) -> Early {
        Early {
            peer: format!("peer {peer}"),
            bytes: vec![0; bytes].into(),
            transfer: None,
        }
    }

    #[test]
    fn of_each_peer_so_much_is_kept_and_of_all_and_no_more() {
        let mut others = Others::default();
        for length in [1 << 16, MOST_BYTES_OF_PEER + 1, 100, 100] {
            others.keep(notice(0, length));
        }
        assert_eq!((others.kept.len(), others.bytes()), (2, 200));
        for _ in 0..10_000 {
            others.keep(notice(0, 1));
        }
        assert_eq!((others.kept.len(), others.bytes()), (4, 202));
        assert!(others.has_of("peer 0") && !others.has_of("peer 1"));
        for peer in 1..10_000 {
            others.keep(notice(peer, MOST_BYTES_OF_PEER / 2));
            others.keep(notice(peer, MOST_BYTES_OF_PEER / 2));
            others.keep(notice(peer, 1));
        }
        assert_eq!(others.bytes(), MOST_BYTES_OF_ALL);
        // The notices that came last are kept.
        assert!(others.has_of("peer 9999") && !others.has_of("peer 0"));
        assert_eq!(others.take("peer 9999").unwrap().bytes.len(), 8 << 10);
        others.forget("peer 9999");
        assert!(others.take("peer 9999").is_none());
        let mut others = Others::default();
        (0..10_000).for_each(|peer| others.keep(notice(peer, 1)));
        assert_eq!(others.kept.len(), MOST_OF_ALL);
    }
}
