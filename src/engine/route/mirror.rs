//! Counters that are mirrored to words of the program. Kernels wait for these words.
//!
//! Peers count in different ways. Workers of this engine count the WRITEs of the NIC. After copies within the machine the peer itself
//! counts. So one thread looks at the mirrored counters, and writes the words of those that have changed. No other thread writes them: the
//! value that a kernel sees in a word never goes back, unless the program resets the counter.
//!
//! The bytes that are counted are in memory before the counter counts them, even those of a GPU. The thread writes the word after its look
//! at the counter.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::engine::error::{EngineError, HostError};
use crate::engine::lock::lock;
use crate::error::OwnThread;
use crate::provider::local::Counts;
use crate::provider::{HostMemory, ProviderError};

/// The bytes of a word.
const WORD: u64 = 8;
/// The number of looks without a change before the thread sleeps.
const SPINS: u32 = 200;
/// Longest sleep without a look.
const LONGEST: Duration = Duration::from_secs(3600);

/// A counter and the word that shows it. The engine writes the word as long as this is kept.
#[derive(Debug)]
#[must_use = "the counter is mirrored as long as this is kept"]
pub struct Mirror {
    mirrors: Arc<Mirrors>,
    number: u64,
}

/// All mirrors of an engine, and the thread that serves them.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    targets: Mutex<Vec<Target>>,
    next: AtomicU64,
    /// The thread, from the first mirror on.
    thread: Mutex<Option<OwnThread>>,
    has_ended: AtomicBool,
}

/// A word that shows a counter.
#[derive(Debug)]
pub(super) struct Target {
    number: u64,
    counter: u32,
    memory: Arc<HostMemory>,
    offset: u64,
    /// The value that the word has.
    said: u64,
}

impl Target {
    /// Returns the word at `offset` of `memory`, which is to show a counter.
    pub(super) fn new(
        counter: u32,
        memory: &Arc<HostMemory>,
        offset: u64,
    ) -> Result<Self, HostError> {
        let has = memory.bytes();
        if offset.checked_add(WORD).is_none_or(|end| end > has) {
            let bytes = WORD;
            return Err(ProviderError::Range { offset, bytes, has }.into());
        }
        let address = memory.address() + offset;
        if !address.is_multiple_of(WORD) {
            return Err(EngineError::Word { address }.into());
        }
        Ok(Self {
            number: 0,
            counter,
            memory: Arc::clone(memory),
            offset,
            said: 0,
        })
    }

    /// Writes the value of the counter into the word.
    fn write(&mut self, now: u64) {
        self.said = now;
        self.memory.store(self.offset, now);
    }
}

impl Mirrors {
    /// Begins to write a word. The first call starts the thread, which runs `serve`.
    pub(super) fn add(
        self: &Arc<Self>,
        mut target: Target,
        counts: &Counts,
        serve: impl FnOnce() + Send + 'static,
    ) -> Result<Mirror, HostError> {
        let mut thread = lock(&self.thread);
        if self.has_ended.load(Ordering::SeqCst) {
            return Err(EngineError::Closing.into());
        }
        if thread.is_none() {
            let begun = OwnThread::spawn("wv-engine-mirror", serve, |_| {});
            *thread = Some(begun.map_err(ProviderError::from)?);
        }
        drop(thread);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut targets = lock(&self.targets);
            target.number = number;
            target.write(read(counts, target.counter));
            targets.push(target);
        }
        // The thread may have slept since before the last change of the counter.
        counts.ring();
        let mirrors = Arc::clone(self);
        Ok(Mirror { mirrors, number })
    }

    /// Writes the words whose counters have changed. Returns whether any has.
    fn copy(&self, counts: &Counts) -> bool {
        let mut has_changed = false;
        for target in &mut *lock(&self.targets) {
            let now = read(counts, target.counter);
            if now != target.said {
                target.write(now);
                has_changed = true;
            }
        }
        has_changed
    }

    /// Writes words until the engine is closed.
    pub(super) fn serve(&self, counts: &Counts) {
        let mut idle = 0;
        while !self.has_ended.load(Ordering::SeqCst) {
            if self.copy(counts) {
                idle = 0;
            } else if idle < SPINS {
                idle += 1;
                std::hint::spin_loop();
            } else {
                let ends = || self.has_ended.load(Ordering::SeqCst);
                let look = || (self.copy(counts) || ends()).then_some(());
                let _ = counts.until(LONGEST, look);
                idle = 0;
            }
        }
        self.copy(counts);
    }

    /// Lets the thread write the last values, and waits for its end.
    pub(super) fn end(&self, counts: &Counts) {
        let thread = {
            let mut thread = lock(&self.thread);
            self.has_ended.store(true, Ordering::SeqCst);
            thread.take()
        };
        counts.ring();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

/// Returns the value of a counter. Acquire: the bytes that it counts have landed before a word shows the value.
fn read(counts: &Counts, counter: u32) -> u64 {
    let word = counts.word(counter);
    word.map_or(0, |word| word.load(Ordering::Acquire))
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let mut targets = lock(&self.mirrors.targets);
        targets.retain(|target| target.number != self.number);
    }
}
