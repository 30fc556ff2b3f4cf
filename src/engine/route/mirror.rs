//! Counters that are mirrored to words of the program, for kernels that wait for them.
//!
//! Peers count in different ways. Workers of this engine count the WRITEs of the NIC. After copies within the machine the peer
//! itself counts. So one thread looks at the counters that are mirrored, and writes what has changed. It alone writes a word: the
//! value that a kernel sees in it never goes back, unless the program resets the counter.
//!
//! The bytes that are counted are in memory before the counter says so, those of a GPU too. The thread writes the word after its
//! look at the counter.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::engine::error::{EngineError, HostError};
use crate::engine::lock::lock;
use crate::engine::route::counter::{Counter, Counters};
use crate::error::OwnThread;
use crate::provider::local::Counts;
use crate::provider::{HostMemory, ProviderError};

/// Bytes of a word.
const WORD: u64 = 8;
/// Looks without a change before the thread sleeps.
const SPINS: u32 = 200;
/// Longest sleep without a look.
const LONGEST: Duration = Duration::from_secs(3600);

/// A counter and the word that says the same. It ends when this is dropped: after that the engine writes the word no more.
#[derive(Debug)]
#[must_use = "the counter is mirrored as long as this is kept"]
pub struct Mirror {
    counters: Arc<Counters>,
    number: u64,
}

/// All mirrors of an engine, and the thread that serves them.
#[derive(Debug, Default)]
pub(in crate::engine) struct Mirrors {
    targets: Mutex<Vec<Target>>,
    next: AtomicU64,
    /// From the first mirror on.
    thread: Mutex<Option<OwnThread>>,
    has_ended: AtomicBool,
}

#[derive(Debug)]
struct Target {
    number: u64,
    counter: u32,
    memory: Arc<HostMemory>,
    offset: u64,
    /// What the word says.
    said: u64,
}

impl Mirrors {
    /// Writes what has changed. Whether something has.
    fn copy(&self, counts: &Counts) -> bool {
        let mut has_changed = false;
        for target in &mut *lock(&self.targets) {
            // Acquire: the bytes that it counts have landed before the word says so.
            let word = counts.word(target.counter);
            let now = word.map_or(0, |word| word.load(Ordering::Acquire));
            if now != target.said {
                target.said = now;
                target.memory.store(target.offset, now);
                has_changed = true;
            }
        }
        has_changed
    }

    /// The thread has written what was counted last, and is gone.
    pub(in crate::engine) fn end(&self, counts: &Counts) {
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

/// Until the engine is closed.
fn serve(counters: &Counters) {
    let (mirrors, counts) = (&counters.mirrors, &counters.counts);
    let mut idle = 0;
    while !mirrors.has_ended.load(Ordering::SeqCst) {
        if mirrors.copy(counts) {
            idle = 0;
        } else if idle < SPINS {
            idle += 1;
            std::hint::spin_loop();
        } else {
            let ends = || mirrors.has_ended.load(Ordering::SeqCst);
            let look = || (mirrors.copy(counts) || ends()).then_some(());
            let _ = counts.until(LONGEST, look);
            idle = 0;
        }
    }
    mirrors.copy(counts);
}

impl Counter {
    /// Copies the value of the counter into the 8-byte word at `offset` of `memory`, now and at each change. It ends when the
    /// result is dropped or the engine is closed. A kernel waits for the word by loads of system scope, as `wv::wait_word` does.
    /// When it has seen a value, the bytes of as many WRITEs have landed.
    ///
    /// The memory is any that this process and the kernel reach: [`HostMemory::over`] what the driver has mapped. It need not be
    /// registered. [`Counter::word`] needs no thread and no second word, where the program can register that page with the driver.
    ///
    /// # Errors
    /// [`EngineError::Word`]: the word is not at a multiple of 8; [`ProviderError::Range`]: it is outside; [`EngineError::Closing`];
    /// what the system refuses.
    pub fn mirror(&self, memory: &Arc<HostMemory>, offset: u64) -> Result<Mirror, HostError> {
        let has = memory.bytes();
        if offset.checked_add(WORD).is_none_or(|end| end > has) {
            let bytes = WORD;
            return Err(ProviderError::Range { offset, bytes, has }.into());
        }
        let address = memory.address() + offset;
        if !address.is_multiple_of(WORD) {
            return Err(EngineError::Word { address }.into());
        }
        let mirrors = &self.counters.mirrors;
        let mut thread = lock(&mirrors.thread);
        if mirrors.has_ended.load(Ordering::SeqCst) {
            return Err(EngineError::Closing.into());
        }
        if thread.is_none() {
            let counters = Arc::clone(&self.counters);
            let begun = OwnThread::spawn("wv-engine-mirror", move || serve(&counters), |_| {});
            let failed = |source| ProviderError::System {
                call: "spawn",
                source,
            };
            *thread = Some(begun.map_err(failed)?);
        }
        drop(thread);
        let number = mirrors.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut targets = lock(&mirrors.targets);
            let said = self.read();
            memory.store(offset, said);
            targets.push(Target {
                number,
                counter: self.id(),
                memory: Arc::clone(memory),
                offset,
                said,
            });
        }
        // It may sleep since before the counter changed last.
        self.counters.counts.ring();
        let counters = Arc::clone(&self.counters);
        Ok(Mirror { counters, number })
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let mut targets = lock(&self.counters.mirrors.targets);
        targets.retain(|target| target.number != self.number);
    }
}
