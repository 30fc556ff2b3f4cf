//! A layer without GPU. In each call a rank sends one word to each member, and waits for one word from each.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use membership_rules::record::{RankGeneration, newer};
use membership_rules::slots::Slots;

use super::world::{DEADLINE, LOOK, Wire, lock};
use crate::membership::layer::{Layer, LayerError, LayerView};

/// The number of views that the layer holds.
const VIEWS: usize = 8;
/// Words of calls that are this many calls old are not read any more.
const WORDS: u32 = 1 << 16;
/// The longest time for which a call is held.
const CHANGE: Duration = Duration::from_secs(20);

/// What has become of one call.
#[derive(Clone, Debug)]
pub(in crate::membership) struct Done {
    #[cfg_attr(not(test), expect(dead_code, reason = "tests look at it"))]
    pub(in crate::membership) number: u32,
    #[cfg_attr(not(test), expect(dead_code, reason = "tests look at it"))]
    pub(in crate::membership) epoch: u32,
    pub(in crate::membership) whole: bool,
    pub(in crate::membership) at: Instant,
}

/// A layer in whose calls each rank sends one word to each member and waits for one word from each.
#[derive(Debug)]
pub(in crate::membership) struct FakeLayer {
    wire: Arc<Wire>,
    own: RankGeneration,
    limited: AtomicBool,
    limit: AtomicU32,
    refuse: AtomicBool,
    alone: AtomicBool,
    started: AtomicU32,
    finished: AtomicU32,
    /// The first call, the epoch and the members of each view, the oldest view first.
    pub(in crate::membership) views: Mutex<Vec<(u32, u32, Slots)>>,
    suspects: Mutex<BTreeSet<u32>>,
    suspected: Mutex<BTreeSet<u32>>,
    /// The number of words that have arrived from each slot.
    arrived: Mutex<Vec<u64>>,
    promised: Mutex<Option<Vec<u32>>>,
    pub(in crate::membership) done: Mutex<Vec<Done>>,
    pub(in crate::membership) stop: AtomicBool,
    /// The last call that this rank makes.
    pub(in crate::membership) last: AtomicU32,
    /// Threads of the group and calls of this rank stand still in this layer.
    pub(in crate::membership) stands: AtomicBool,
    /// The name of a thread that panics in this layer.
    pub(in crate::membership) panics: Arc<Mutex<Option<String>>>,
    /// The name of a thread that stands still in this layer.
    pub(in crate::membership) stands_on: Mutex<Option<String>>,
}

impl FakeLayer {
    pub(in crate::membership) fn new(
        wire: Arc<Wire>,
        own: RankGeneration,
        founders: Option<Slots>,
    ) -> Self {
        let views = founders.map(|members| (1, 1, members));
        Self {
            wire,
            own,
            limited: AtomicBool::new(false),
            limit: AtomicU32::new(0),
            refuse: AtomicBool::new(false),
            alone: AtomicBool::new(false),
            started: AtomicU32::new(0),
            finished: AtomicU32::new(0),
            views: Mutex::new(views.into_iter().collect()),
            suspects: Mutex::default(),
            suspected: Mutex::default(),
            arrived: Mutex::default(),
            promised: Mutex::default(),
            done: Mutex::default(),
            stop: AtomicBool::new(false),
            last: AtomicU32::new(u32::MAX),
            stands: AtomicBool::new(false),
            panics: Arc::default(),
            stands_on: Mutex::default(),
        }
    }

    /// Waits while the rank, or this thread, is to stand still.
    fn stand_still(&self) {
        while (self.stands.load(Ordering::Relaxed) || self.stands_on_this()) && !self.ends() {
            std::thread::sleep(LOOK);
        }
    }

    /// Stands still as `stand_still` does. Then panics once if this thread is to panic.
    fn planted(&self) {
        self.stand_still();
        let mut panics = lock(&self.panics);
        let planted = panics.is_some() && std::thread::current().name() == panics.as_deref();
        if planted {
            *panics = None;
        }
        drop(panics);
        assert!(!planted, "planted");
    }

    fn stands_on_this(&self) -> bool {
        let stands_on = lock(&self.stands_on);
        stands_on.is_some() && std::thread::current().name() == stands_on.as_deref()
    }

    /// Returns whether a call that may still run has `peer` as a member.
    pub(in crate::membership) fn needs(&self, peer: u32) -> bool {
        let views = lock(&self.views);
        let behind = views.iter().skip(1).map(|view| view.0);
        let lasts = behind.map(|first| Some(first.wrapping_sub(1)));
        let needed = |last: Option<u32>| last.is_none_or(|last| newer(last, self.finished()));
        let mut all = views.iter().zip(lasts.chain([None]));
        all.any(|(view, last)| view.2.contains(peer) && needed(last))
    }

    pub(in crate::membership) fn ends(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits until the call may start. Returns whether it may.
    fn hold(&self, number: u32) -> bool {
        let start = Instant::now();
        loop {
            self.stand_still();
            fence(Ordering::SeqCst);
            let limited = self.limited.load(Ordering::SeqCst);
            if !limited || !newer(number, self.limit.load(Ordering::SeqCst)) {
                return true;
            }
            let refuse = self.refuse.load(Ordering::Relaxed);
            if refuse || self.ends() || start.elapsed() >= CHANGE {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns the number of the next call. If the numbers leap there, the views get first calls that lie just before the new number, as in
    /// a layer that has made all calls.
    fn next(&self) -> u32 {
        let last = self.started.load(Ordering::Relaxed);
        let to = lock(&self.wire.leaps).get(&last).copied();
        let Some(to) = to else {
            return last.wrapping_add(1);
        };
        for (view, before) in lock(&self.views).iter_mut().rev().zip(1..) {
            view.0 = to.wrapping_sub(before);
        }
        to
    }

    pub(in crate::membership) fn call(&self) {
        self.stand_still();
        let number = self.next();
        self.started.store(number, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let runs = self.hold(number);
        let (view, newest) = {
            let views = lock(&self.views);
            let mut newest_first = views.iter().rev();
            let view = newest_first.find(|view| !newer(view.0, number)).cloned();
            let newest = view.as_ref().map(|view| view.1) == views.last().map(|view| view.1);
            (view, newest)
        };
        let start = Instant::now();
        let alone = || self.alone.load(Ordering::Relaxed) && !self.limited.load(Ordering::SeqCst);
        while runs && newest && alone() && !self.ends() && start.elapsed() < DEADLINE {
            std::thread::sleep(LOOK);
            self.stand_still();
        }
        let Some((_, epoch, members)) = view.filter(|_| runs) else {
            self.finished.store(number, Ordering::SeqCst);
            std::thread::sleep(LOOK);
            return;
        };
        let others: Vec<u32> = members.iter().filter(|slot| *slot != self.own.0).collect();
        let mut sent = lock(&self.wire.sent);
        for &to in &others {
            sent.insert((self.own, number, to));
            sent.remove(&(self.own, number.wrapping_sub(WORDS), to));
        }
        drop(sent);
        let mut whole = true;
        for from in others {
            whole &= self.receive(from, number);
        }
        self.finished.store(number, Ordering::SeqCst);
        let done = Done {
            number,
            epoch,
            whole,
            at: Instant::now(),
        };
        lock(&self.done).push(done);
        std::thread::sleep(Duration::from_millis(1));
    }

    fn receive(&self, from: u32, number: u32) -> bool {
        let mut waited = Duration::ZERO;
        let mut last = Instant::now();
        loop {
            // Clocks go on while the rank stands still. So the call looks once more after that, and then its deadline may have passed.
            self.stand_still();
            let qps = self.wire.qps(self.own, from);
            let there = qps.map(|qps| (from, qps.generation));
            if let Some(there) = there
                && lock(&self.wire.sent).contains(&(there, number, self.own.0))
                && self.wire.carries(there, self.own)
            {
                lock(&self.suspected).remove(&from);
                if lock(&self.wire.uncounted).contains(&from) {
                    return true;
                }
                let mut arrived = lock(&self.arrived);
                let least = arrived.len().max(from as usize + 1);
                arrived.resize(least, 0);
                arrived[from as usize] += 1;
                return true;
            }
            let now = Instant::now();
            let stands = lock(&self.promised)
                .as_ref()
                .is_some_and(|ranks| ranks.contains(&from));
            if !stands {
                waited += now - last;
            }
            last = now;
            let failed = qps.is_none_or(|qps| !qps.up);
            let known = lock(&self.suspected).contains(&from);
            if failed
                || known
                || lock(&self.suspects).contains(&from)
                || waited >= DEADLINE
                || self.ends()
            {
                if waited >= DEADLINE {
                    lock(&self.suspected).insert(from);
                }
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Layer for FakeLayer {
    fn set_limit(&self, limit: Option<u32>) -> u32 {
        match limit {
            Some(limit) => {
                self.limit.store(limit, Ordering::SeqCst);
                self.limited.store(true, Ordering::SeqCst);
            }
            None => self.limited.store(false, Ordering::SeqCst),
        }
        fence(Ordering::SeqCst);
        self.started()
    }

    fn started(&self) -> u32 {
        self.planted();
        self.started.load(Ordering::SeqCst)
    }

    fn finished(&self) -> u32 {
        self.planted();
        self.finished.load(Ordering::SeqCst)
    }

    fn has_place(&self, _first: u32) -> bool {
        let views = lock(&self.views);
        views.len() < VIEWS || !newer(views[1].0.wrapping_sub(1), self.finished())
    }

    fn set_view(&self, view: &LayerView<'_>) -> Result<(), LayerError> {
        assert!(self.has_place(view.first), "a view in use is replaced");
        let mut views = lock(&self.views);
        if views.len() == VIEWS {
            views.remove(0);
        }
        let reached = view.reached.iter().copied().collect();
        views.push((view.first, view.epoch, reached));
        Ok(())
    }

    fn begin(&self, view: &LayerView<'_>) -> Result<(), LayerError> {
        let first = view.first;
        let reached = view.reached.iter().copied().collect();
        lock(&self.views).push((first, view.epoch, reached));
        self.started.store(first.wrapping_sub(1), Ordering::SeqCst);
        self.finished.store(first.wrapping_sub(1), Ordering::SeqCst);
        Ok(())
    }

    fn clear_peer(&self, peer: u32) -> Result<(), LayerError> {
        assert!(!self.needs(peer), "{peer} is cleared in use");
        lock(&self.suspected).remove(&peer);
        Ok(())
    }

    fn suspected(&self) -> Vec<u32> {
        self.planted();
        lock(&self.suspected).iter().copied().collect()
    }

    fn heard(&self) -> Result<Vec<u64>, LayerError> {
        Ok(lock(&self.arrived).clone())
    }

    fn set_suspects(&self, ranks: &[u32]) -> Result<(), LayerError> {
        *lock(&self.suspects) = ranks.iter().copied().collect();
        Ok(())
    }

    fn set_alone(&self, alone: bool) {
        self.alone.store(alone, Ordering::Relaxed);
    }

    fn set_preparing(&self, promised: Option<&[u32]>) -> Result<(), LayerError> {
        *lock(&self.promised) = promised.map(<[u32]>::to_vec);
        Ok(())
    }

    fn set_refuse(&self, refuse: bool) {
        self.refuse.store(refuse, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_a_rank_that_stands_still_waits_until_it_goes_on() {
        let founders = Some([0, 1].into_iter().collect());
        let layer = FakeLayer::new(Arc::default(), (0, 1), founders);
        layer.stands.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| layer.call());
            // No rank sends any word: a call that ran would have ended by now.
            std::thread::sleep(2 * DEADLINE);
            assert_eq!(layer.started.load(Ordering::SeqCst), 0);
            assert!(lock(&layer.done).is_empty());
            layer.stands.store(false, Ordering::Relaxed);
        });
        assert_eq!(lock(&layer.done).len(), 1);
    }
}
