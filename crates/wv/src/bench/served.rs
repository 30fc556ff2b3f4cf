//! The other end of `wv bench fill` and `wv bench p2p`: an engine with memory, which serves one run after the other.
//!
//! The two ends speak by notices. The end that measures tells its setting, and gets a region. With the last bytes that are to be
//! compared comes a notice. This end compares at once: the notice is behind all of them.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use warpverbs::engine::{
    Descriptor, Engine, EngineAddress, EngineConfig, EnginePath, HostError, Notice, Outcome, Peer,
};
use warpverbs::verbs::Context;

use super::BenchError;
use super::fill::FillOptions;
use super::memory::{EndMemory, MemoryChoice, MemoryKind};
use super::patterns::PatternOptions;

/// Nothing takes so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Of what the two ends tell each other.
const VERSION: u32 = 3;
/// Longest wait for a notice before this end looks whether the other is still there.
const LOOK: Duration = Duration::from_millis(200);

/// What is measured.
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

    /// Bytes of the memory that it takes.
    fn bytes(&self) -> u64 {
        match self {
            Self::Fill(options) => options.bytes,
            Self::Pattern(options) => options.bytes,
        }
    }

    /// What the memory has before it.
    fn prepare(&self, memory: &EndMemory) -> Result<(), BenchError> {
        match self {
            Self::Fill(_) => Ok(()),
            Self::Pattern(options) => options.prepare(memory),
        }
    }

    /// Compares what a repeat has written. How many bytes.
    fn compare(&self, memory: &EndMemory, repeat: u32) -> Result<u64, BenchError> {
        match self {
            Self::Fill(options) => options.compare(memory, repeat),
            Self::Pattern(options) => options.compare(memory),
        }
    }
}

/// What one end tells the other, as JSON in a notice.
#[derive(Debug, Serialize, Deserialize)]
enum Told {
    /// How the run is to be.
    Begin { version: u32, run: Setting },
    /// The memory that the run has.
    Region {
        descriptor: Vec<u8>,
        memory: MemoryKind,
    },
    /// This repeat has been written, whole.
    Written(u32),
    /// So many bytes of it are as they were sent.
    Compared(u64),
    /// The run is over.
    Failed(String),
}

impl Told {
    fn to_bytes(&self) -> Result<Vec<u8>, BenchError> {
        serde_json::to_vec(self).map_err(|error| wrong(error.to_string()))
    }

    /// The next that `peer` tells; what others tell meanwhile goes to `others`. None: it is gone.
    fn next(
        engine: &Engine,
        peer: &Peer,
        others: &mut Vec<Notice>,
    ) -> Result<Option<Self>, BenchError> {
        let is_of_peer = |notice: &Notice| notice.peer == peer.name();
        if let Some(at) = others.iter().position(is_of_peer) {
            return Self::of(&others.remove(at)).map(Some);
        }
        let mut is_open = true;
        loop {
            match engine.notice(LOOK) {
                Some(notice) if is_of_peer(&notice) => return Self::of(&notice).map(Some),
                Some(notice) => others.push(notice),
                // What came before the end of the connection is taken before that.
                None if !is_open => return Ok(None),
                None => is_open = peer.is_open() && !engine.is_closed(),
            }
        }
    }

    fn of(notice: &Notice) -> Result<Self, BenchError> {
        let peer = &notice.peer;
        if let Some(behind) = notice.transfer.filter(|it| it.outcome != Outcome::Done) {
            return Err(wrong(format!("a transfer of {peer} is {behind:?}")));
        }
        let told = serde_json::from_slice(&notice.bytes);
        told.map_err(|error| wrong(format!("{peer} tells no step of a run: {error}")))
    }

    fn tell(&self, peer: &Peer) -> Result<(), BenchError> {
        let told = peer.notify_wait(&self.to_bytes()?, PATIENCE);
        Ok(told.map_err(HostError::from)?)
    }
}

/// The notice behind the last bytes of a repeat.
pub(super) fn written(repeat: u32) -> Result<Vec<u8>, BenchError> {
    Told::Written(repeat).to_bytes()
}

/// An end that serves, as the end that measures has it.
pub(super) struct Server {
    pub(super) peer: Peer,
    /// Where its memory begins.
    pub(super) address: u64,
    /// What memory that is.
    pub(super) memory: MemoryKind,
}

impl Server {
    /// Begins a run with the engine that listens at `place`. What others tell meanwhile goes to `others`.
    pub(super) fn begin(
        (engine, others): (&Engine, &mut Vec<Notice>),
        place: &str,
        run: Setting,
    ) -> Result<Self, BenchError> {
        let peer = engine.connect(place)?;
        let version = VERSION;
        Told::Begin { version, run }.tell(&peer)?;
        let mut server = Self {
            peer,
            address: 0,
            memory: MemoryKind::Host,
        };
        match server.answer(engine, others)? {
            Told::Region { descriptor, memory } => {
                let descriptor = Descriptor::from_bytes(&descriptor).map_err(HostError::from)?;
                server.peer.import(&descriptor).map_err(HostError::from)?;
                server.address = descriptor.address;
                server.memory = memory;
                Ok(server)
            }
            other => Err(wrong(format!("{other:?}; it must be a region"))),
        }
    }

    /// Bytes that it has compared behind the notice of a repeat.
    pub(super) fn compared(
        &self,
        engine: &Engine,
        others: &mut Vec<Notice>,
    ) -> Result<u64, BenchError> {
        match self.answer(engine, others)? {
            Told::Compared(bytes) => Ok(bytes),
            other => Err(wrong(format!("{other:?}; it must be compared bytes"))),
        }
    }

    /// What it tells, which is no failure.
    fn answer(&self, engine: &Engine, others: &mut Vec<Notice>) -> Result<Told, BenchError> {
        match Told::next(engine, &self.peer, others)? {
            Some(Told::Failed(reason)) => Err(wrong(format!("the other end: {reason}"))),
            Some(told) => Ok(told),
            None => Err(wrong("the other end is gone".to_owned())),
        }
    }
}

/// An engine that serves runs.
#[derive(Debug)]
pub struct Served {
    engine: Engine,
    address: EngineAddress,
    /// Most bytes of a run.
    most: u64,
    /// Where its memory is.
    memory: MemoryChoice,
}

impl Served {
    /// Listens at `address`, on these devices, for runs that take at most so many bytes of this memory.
    ///
    /// # Errors
    /// What the engine refuses; a GPU that cannot be opened.
    pub fn listen(
        contexts: &[Arc<Context>],
        address: EngineAddress,
        config: EngineConfig,
        (memory, most): (MemoryChoice, u64),
    ) -> Result<Self, BenchError> {
        let engine = Engine::on(contexts, config.with_engine_path(EnginePath::Nic))?;
        if let MemoryChoice::Gpu(selector) = memory {
            // Before a run: an end that cannot have its memory serves none.
            engine.gpu(selector)?;
        }
        let address = engine.listen(address)?;
        Ok(Self {
            engine,
            address,
            most,
            memory,
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> &EngineAddress {
        &self.address
    }

    /// Serves so many runs, or until it is closed; `tell` gets the error of each run that fails.
    pub fn serve(&self, runs: Option<u64>, mut tell: impl FnMut(&BenchError)) {
        let (mut served, mut others) = (0, Vec::new());
        while runs.is_none_or(|most| served < most) && !self.engine.is_closed() {
            let Some(peer) = self.engine.accept(PATIENCE) else {
                continue;
            };
            served += 1;
            let done = self.run(&peer, &mut others);
            // What a run has left that has failed.
            others.retain(|notice| notice.peer != peer.name());
            if let Err(error) = done {
                // The other end may be gone.
                let _ = Told::Failed(error.to_string()).tell(&peer);
                tell(&error);
            }
        }
    }

    /// Ends a run and [`Served::serve`].
    pub fn close(&self) {
        let _ = self.engine.close();
    }

    fn run(&self, peer: &Peer, others: &mut Vec<Notice>) -> Result<(), BenchError> {
        let run = match Told::next(&self.engine, peer, others)? {
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
        (peer, others): (&Peer, &mut Vec<Notice>),
        memory: &EndMemory,
        run: &Setting,
        region: &Told,
    ) -> Result<(), BenchError> {
        region.tell(peer)?;
        while let Some(told) = Told::next(&self.engine, peer, others)? {
            let Told::Written(repeat) = told else {
                return Err(wrong(format!("{told:?}; it must be a repeat")));
            };
            Told::Compared(run.compare(memory, repeat)?).tell(peer)?;
        }
        Ok(())
    }
}

fn wrong(detail: String) -> BenchError {
    BenchError::Wrong {
        case: "two ends".to_owned(),
        detail,
    }
}
