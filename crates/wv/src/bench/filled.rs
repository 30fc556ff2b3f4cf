//! The end of `wv bench fill` whose memory is filled: an engine that serves one run after the other.
//!
//! The two ends speak by notices. The end that fills tells its setting, and gets a region. With the last pages of a repeat that is to be
//! compared comes a notice. This end compares the repeat at once: the notice is behind all of its bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use warpverbs::engine::{
    Engine, EngineConfig, EnginePath, HostError, HostMemory, Notice, Outcome, Peer, RegionId,
};
use warpverbs::verbs::Context;

use super::BenchError;
use super::fill::{FillOptions, PATIENCE, wrong};

/// Of what the two ends tell each other.
const VERSION: u32 = 1;
/// Longest wait for a notice before this end looks whether the other is still there.
const LOOK: Duration = Duration::from_millis(200);

/// What one end tells the other, as JSON in a notice.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    /// How the run is to be.
    Begin { version: u32, options: FillOptions },
    /// The descriptor of the memory that is to be filled.
    Region(Vec<u8>),
    /// This repeat has been written, whole.
    Written(u32),
    /// So many bytes of it are as they were sent.
    Compared(u64),
    /// The run is over.
    Failed(String),
}

impl Told {
    /// The notice by which a run begins.
    pub(super) fn begin(options: &FillOptions) -> Self {
        Self::Begin {
            version: VERSION,
            options: *options,
        }
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, BenchError> {
        serde_json::to_vec(self).map_err(|error| wrong(error.to_string()))
    }

    /// The next that `peer` tells; what others tell meanwhile goes to `others`. None: it is gone.
    pub(super) fn next(
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

/// An engine with memory to be filled.
#[derive(Debug)]
pub struct Filled {
    engine: Engine,
    address: SocketAddr,
    /// Most bytes of a run.
    most: u64,
}

impl Filled {
    /// Listens at `address`, on these devices, for runs that fill at most so many bytes. `insecure`: other machines may connect without
    /// a key.
    ///
    /// # Errors
    /// What the engine refuses.
    pub fn listen(
        contexts: &[Arc<Context>],
        address: SocketAddr,
        insecure: bool,
        most: u64,
    ) -> Result<Self, BenchError> {
        let config = EngineConfig::from_env("is-filled")?;
        let config = config.with_engine_path(EnginePath::Nic);
        let engine = Engine::on(contexts, config.with_insecure(insecure))?;
        let address = engine.listen(address)?;
        Ok(Self {
            engine,
            address,
            most,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
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

    /// Ends a run and [`Filled::serve`].
    pub fn close(&self) {
        let _ = self.engine.close();
    }

    fn run(&self, peer: &Peer, others: &mut Vec<Notice>) -> Result<(), BenchError> {
        let options = match Told::next(&self.engine, peer, others)? {
            None => return Ok(()),
            Some(Told::Begin { version, options }) if version == VERSION => options,
            Some(other) => {
                return Err(wrong(format!(
                    "a run began with {other:?}; it must be version {VERSION}"
                )));
            }
        };
        options.check()?;
        if options.bytes > self.most {
            return Err(BenchError::Option {
                what: "--bytes",
                value: options.bytes.to_string(),
                limit: format!("at most {}, which the other end has set", self.most),
            });
        }
        let memory = Arc::new(HostMemory::new(options.bytes).map_err(HostError::from)?);
        let region = self.engine.register(&memory)?;
        let done = self.converse((peer, others), &memory, &options, region);
        self.engine.deregister(region)?;
        done
    }

    fn converse(
        &self,
        (peer, others): (&Peer, &mut Vec<Notice>),
        memory: &HostMemory,
        options: &FillOptions,
        region: RegionId,
    ) -> Result<(), BenchError> {
        let descriptor = self.engine.descriptor(region)?.to_bytes();
        Told::Region(descriptor.to_vec()).tell(peer)?;
        while let Some(told) = Told::next(&self.engine, peer, others)? {
            let Told::Written(repeat) = told else {
                return Err(wrong(format!("{told:?}; it must be a repeat")));
            };
            Told::Compared(compare(memory, options, repeat)?).tell(peer)?;
        }
        Ok(())
    }
}

/// Compares all pages of a repeat with those that were sent. How many bytes.
fn compare(memory: &HostMemory, options: &FillOptions, repeat: u32) -> Result<u64, BenchError> {
    let mut random = options.random(repeat);
    let page = options.page;
    let length = usize::try_from(page).unwrap_or(usize::MAX);
    let (mut sent, mut came) = (vec![0; length], vec![0; length]);
    let places = options.places(repeat);
    for place in &places {
        random.fill(&mut sent);
        let read = memory.read(place * page, &mut came);
        read.map_err(HostError::from)?;
        if let Some(at) = (0..sent.len()).find(|at| sent[*at] != came[*at]) {
            let (due, is) = (sent[at], came[at]);
            return Err(wrong(format!(
                "repeat {repeat} (seed {}): byte {at} of place {place} is {is:#x}; {due:#x} was sent",
                options.seed
            )));
        }
    }
    Ok(places.len() as u64 * page)
}
