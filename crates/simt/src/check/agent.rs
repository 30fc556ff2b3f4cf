//! An agent: what one CUDA thread has done, seen and published, as its part of the order among all accesses.
//!
//! An agent has a clock, the accesses on which its weak loads may rely, and observations, the accesses that it has only seen by relaxed
//! loads. A release fence publishes both. What the agent saw is performed at that scope already, and its stores come after its loads (the
//! "cumulativity" of multi-copy atomic memory). Only an acquire fence moves observations into the clock, since the L1 may hold older bytes.
//! A relaxed store publishes what was known at the last release fence, not what is known now.

use std::sync::Arc;

use super::access::Scope;
use super::clock::Clock;
use crate::coordinates::{Dim3, ThreadId};

/// The place where a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) launch: u64,
    pub(super) device: u32,
    pub(super) block: Dim3,
}

impl Place {
    /// Returns the narrowest scope that contains both places.
    pub(super) fn scope_with(&self, other: &Self) -> Scope {
        match (
            self.device == other.device,
            self.launch == other.launch && self.block == other.block,
        ) {
            (true, true) => Scope::Block,
            (true, false) => Scope::Gpu,
            _ => Scope::System,
        }
    }
}

/// The identity of a thread, for reports.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) kernel: &'static str,
    pub(super) thread: ThreadId,
    pub(super) place: Place,
}

/// The accesses that were seen by relaxed loads.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// The accesses by the scope of the acquire fence that lets weak loads rely on them.
    pub(super) seen: [Clock; 3],
    /// The accesses that their writers had fenced at .gpu or wider, and at .sys. They are performed at that scope, whichever thread passes
    /// them on.
    pub(super) performed: [Clock; 2],
}

impl Observed {
    fn knows(&self, slot: u32, epoch: u32) -> bool {
        let all = self.seen.iter().chain(&self.performed);
        all.into_iter().any(|clock| clock.knows(slot, epoch))
    }
}

/// What a store to a word carries to the threads that load the word.
#[derive(Clone, Debug)]
pub(super) enum Published {
    /// The store of a thread.
    Thread {
        place: Place,
        fenced: [Option<Arc<Clock>>; 3],
        observed: Arc<Observed>,
    },
    /// The store of a device, which does everything in order.
    Device { knows: Arc<Clock>, epoch: u32 },
}

/// The slot of all devices together.
pub(super) const DEVICE: u32 = 0;

/// The agent of one CUDA thread.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) slot: u32,
    pub(super) identity: Arc<Identity>,
    pub(super) clock: Clock,
    pub(super) observed: Observed,
    /// A copy of `observed`, shared with the words that were stored since `observed` changed.
    shared: Option<Arc<Observed>>,
    /// The clock at the last release fence of at least this scope.
    pub(super) fenced: [Option<Arc<Clock>>; 3],
    /// The versions of the words that the agent learnt last.
    recent: [u64; 8],
    next_recent: usize,
}

impl Agent {
    /// Returns the agent of a thread that begins in `epoch` of its slot and knows `start`.
    pub(super) fn new(slot: u32, epoch: u32, identity: Arc<Identity>, start: &Clock) -> Self {
        let mut clock = start.clone();
        clock.raise(slot, epoch);
        // Accesses before the launch count as fenced, since the thread itself has done nothing yet.
        let fenced = Arc::new(start.clone());
        Self {
            slot,
            identity,
            clock,
            observed: Observed::default(),
            shared: None,
            fenced: [const { None }; 3].map(|_: Option<()>| Some(Arc::clone(&fenced))),
            recent: [0; 8],
            next_recent: 0,
        }
    }

    pub(super) fn epoch(&self) -> u32 {
        self.clock.of(self.slot)
    }

    /// Begins an epoch. Accesses of the new epoch are not covered by the published clock.
    pub(super) fn advance(&mut self) {
        let next = self.epoch() + 1;
        self.clock.raise(self.slot, next);
    }

    /// Returns whether weak loads may rely on the access that `slot` made in `epoch`.
    pub(super) fn relies_on(&self, slot: u32, epoch: u32) -> bool {
        slot == self.slot || self.clock.knows(slot, epoch)
    }

    /// Returns whether stores of this thread come after that access: they come after the loads that showed it.
    pub(super) fn comes_after(&self, slot: u32, epoch: u32) -> bool {
        self.relies_on(slot, epoch) || self.observed.knows(slot, epoch)
    }

    /// Returns the narrowest scope of an acquire fence after which weak loads may rely on that access.
    pub(super) fn lacks_acquire(&self, slot: u32, epoch: u32) -> Option<Scope> {
        Scope::ALL
            .into_iter()
            .find(|scope| self.observed.seen[*scope as usize].knows(slot, epoch))
    }

    pub(super) fn fence(&mut self, acquire: bool, release: bool, scope: Scope) {
        if acquire {
            for seen in &self.observed.seen[..=scope as usize] {
                self.clock.join(seen);
            }
        }
        if release {
            let mut known = self.clock.clone();
            let narrow = Arc::new({
                let mut known = known.clone();
                self.observed.seen.iter().for_each(|seen| {
                    known.join(seen);
                });
                known
            });
            self.fenced[Scope::Block as usize] = Some(narrow);
            for wider in [Scope::Gpu, Scope::System] {
                if scope >= wider {
                    known.clone_from(&self.clock);
                    known.join(&self.observed.performed[wider as usize - 1]);
                    self.fenced[wider as usize] = Some(Arc::new(known.clone()));
                }
            }
            self.advance();
        }
    }

    /// Returns what a relaxed store publishes now.
    pub(super) fn publish(&mut self) -> Published {
        let observed = &self.observed;
        let shared = self
            .shared
            .get_or_insert_with(|| Arc::new(observed.clone()));
        Published::Thread {
            place: self.identity.place,
            fenced: self.fenced.clone(),
            observed: Arc::clone(shared),
        }
    }

    /// Notes a relaxed load of a word that carries `published`. Each word has a `version` of its own. `device_scope` is the scope of the
    /// acquire fence that a device's store to this word needs.
    pub(super) fn learn(&mut self, version: u64, published: &Published, device_scope: Scope) {
        if self.recent.contains(&version) {
            return;
        }
        self.recent[self.next_recent] = version;
        self.next_recent = (self.next_recent + 1) % self.recent.len();
        let Observed { seen, performed } = &mut self.observed;
        let mut changed = false;
        match published {
            Published::Thread {
                place,
                fenced,
                observed,
            } => {
                let scope = place.scope_with(&self.identity.place) as usize;
                if let Some(known) = &fenced[scope] {
                    changed |= seen[scope].join(known);
                }
                for (mine, known) in performed.iter_mut().zip(&fenced[1..]) {
                    changed |= known.as_ref().is_some_and(|known| mine.join(known));
                }
                for (at, theirs) in observed.seen.iter().enumerate() {
                    changed |= seen[at.max(scope)].join(theirs);
                }
                for (mine, theirs) in performed.iter_mut().zip(&observed.performed) {
                    changed |= mine.join(theirs);
                }
            }
            Published::Device { knows, epoch } => {
                let clocks = [&mut seen[device_scope as usize]]
                    .into_iter()
                    .chain(performed);
                for clock in clocks {
                    changed |= clock.join(knows) | clock.raise(DEVICE, *epoch);
                }
            }
        }
        if changed {
            self.shared = None;
        }
    }

    /// Returns everything that this thread knows or has seen, for threads that its values reach by a shuffle or a barrier.
    pub(super) fn hearsay(&self) -> Observed {
        let mut all = self.observed.clone();
        all.seen[0].join(&self.clock);
        all
    }

    /// Adds what other threads have seen.
    pub(super) fn hear(&mut self, others: &Observed) {
        for (mine, theirs) in self.observed.seen.iter_mut().zip(&others.seen) {
            mine.join(theirs);
        }
        for (mine, theirs) in self.observed.performed.iter_mut().zip(&others.performed) {
            mine.join(theirs);
        }
        self.shared = None;
    }
}
