//! The state that the threads of a group share: the state of the rank, its suspects, the ranks to connect with, and the events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use membership_rules::record::RankGeneration;
use membership_rules::slots::Slots;
use rendezvous::{Entry, Process};

use super::GroupError;
use super::changes::Changes;
use super::config::Bounds;
use super::counters::Counting;
use super::event::{Cause, GroupEvent, GroupEventKind, GroupState, GroupView};
use super::layer::Layer;
use super::stored::say_over;
use super::suspects::{Added, Suspects};
use super::transport::Transport;
use crate::error::ThreadPanicked;

/// The largest number of events that are kept for a program that does not fetch them.
const MOST_EVENTS: usize = 4096;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) layer: Arc<dyn Layer>,
    pub(super) bounds: Bounds,
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Only the thread of `bell.rs` waits here, for a look. So a look wakes no other thread.
    looked: Condvar,
    stop: AtomicBool,
}

/// The state behind the lock. Each operation leaves it whole, so a panic elsewhere under the lock breaks nothing.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) state: GroupState,
    pub(super) view: Option<GroupView>,
    pub(super) leaving: bool,
    pub(super) suspects: Suspects,
    /// The HCAs of all rails have failed for good.
    pub(super) hca_lost: bool,
    /// Something has changed at this rank that the rules have to see.
    pub(super) news: bool,
    /// The record has changed in the store.
    pub(super) rang: bool,
    /// The newest record that the watch delivered and that the driver has not taken down yet.
    pub(super) told: Option<Entry>,
    /// The store's revision of the last look at changes.
    pub(super) seen: u64,
    /// The members whose processes run on this machine and are watched.
    pub(super) processes: BTreeMap<RankGeneration, Arc<Process>>,
    /// Newcomers to connect with, and members from which this rank is parted.
    pub(super) wanted: BTreeSet<RankGeneration>,
    /// True if this newcomer waits for an earlier generation of its slot. Then other ranks need not answer it.
    pub(super) waits: bool,
    /// Members from which the newest view parts this rank.
    pub(super) parted: BTreeSet<RankGeneration>,
    /// The ranks to which the QPs are connected.
    pub(super) connected: BTreeSet<RankGeneration>,
    /// The ranks to which the QPs are made and carry nothing, longer than it may take to prove them.
    pub(super) unproven: BTreeSet<RankGeneration>,
    /// Since when the QPs are being proven to ranks to which they have carried nothing yet.
    pub(super) proving: BTreeMap<RankGeneration, Instant>,
    /// Since when this rank tries to connect with each rank.
    pub(super) begun: BTreeMap<RankGeneration, Instant>,
    /// Slots in which traces are left: the last holder was dropped, or is parted from this rank.
    pub(super) traces: BTreeMap<u32, Traces>,
    /// The thread that connects runs (`connector.rs`).
    pub(super) connects: bool,
    /// Leavers that are no members any more and whose QPs are not in error yet. With each the first call that runs without the leaver.
    pub(super) farewells: BTreeMap<RankGeneration, u32>,
    events: VecDeque<GroupEvent>,
    own_slot: u32,
    /// The newest event that holds this rank up, as long as it does.
    hindrance: Option<GroupEventKind>,
    pub(super) counting: Counting,
    /// The number of changes of the state, of the view, and of the words that kernels read.
    pub(super) changes: Changes,
    /// The ranks for which the words of kernels now say not to wait.
    pub(super) masked: Option<Slots>,
    alone: bool,
    /// The first thread of the group that has panicked.
    panicked: Option<ThreadPanicked>,
}

/// What is left of the last holder of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traces {
    /// The first call of the view that dropped or parted the holder.
    pub(super) first: u32,
    /// This rank has closed the memory of the holder.
    pub(super) closed: bool,
}

impl Traces {
    pub(super) fn behind(first: u32) -> Self {
        Self {
            first,
            closed: false,
        }
    }
}

impl Shared {
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        layer: Arc<dyn Layer>,
        bounds: Bounds,
    ) -> Self {
        let inner = Inner {
            state: GroupState::Joining,
            view: None,
            leaving: false,
            hca_lost: false,
            suspects: Suspects::default(),
            news: true,
            rang: true,
            told: None,
            seen: 0,
            processes: BTreeMap::new(),
            wanted: BTreeSet::new(),
            waits: false,
            parted: BTreeSet::new(),
            connected: BTreeSet::new(),
            unproven: BTreeSet::new(),
            proving: BTreeMap::new(),
            begun: BTreeMap::new(),
            traces: BTreeMap::new(),
            connects: false,
            farewells: BTreeMap::new(),
            events: VecDeque::new(),
            own_slot: transport.slot(),
            hindrance: None,
            counting: Counting::default(),
            changes: Changes::default(),
            masked: None,
            alone: false,
            panicked: None,
        };
        Self {
            transport,
            layer,
            bounds,
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            looked: Condvar::new(),
            stop: AtomicBool::new(false),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all threads that wait for a change.
    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits until another thread reports news, at most for `time`.
    pub(super) fn wait<'a>(
        &self,
        inner: MutexGuard<'a, Inner>,
        time: Duration,
    ) -> MutexGuard<'a, Inner> {
        let waited = self.changed.wait_timeout(inner, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Notes that the thread that follows the rules has looked at what the store had at `revision`.
    pub(super) fn looked(&self, revision: u64) {
        self.lock().seen = revision;
        self.looked.notify_all();
    }

    /// Waits for the next look, at most for `time`.
    pub(super) fn wait_for_look<'a>(
        &self,
        inner: MutexGuard<'a, Inner>,
        time: Duration,
    ) -> MutexGuard<'a, Inner> {
        let waited = self.looked.wait_timeout(inner, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // The lock is taken so that no thread checks before this and sleeps after it.
        drop(self.lock());
        self.notify();
        self.looked.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn tell(&self, what: GroupEventKind) {
        self.lock().tell(what);
        self.notify();
    }

    pub(super) fn set_state(&self, state: GroupState) {
        self.lock().set_state(state);
        self.notify();
    }

    /// Ends the work of this rank after a thread of the group has panicked: the rank no longer follows the rules, or no longer sees
    /// trouble. It ends its QPs to all peers. The thread that follows the rules ends, and with it the lease, so the other ranks go on
    /// without this rank.
    pub(super) fn break_down(&self, panicked: &ThreadPanicked) {
        {
            let mut inner = self.lock();
            if inner.panicked.is_some() {
                return;
            }
            inner.set_state(GroupState::Broken);
            inner.panicked = Some(panicked.clone());
            inner.tell(GroupEventKind::Panicked(panicked.clone()));
        }
        self.stop();
        // With this word the others need not wait for the lease to run out.
        let who = (self.transport.slot(), self.transport.generation());
        let said = ThreadPanicked::catch(&panicked.thread, || {
            say_over(self.transport.store().as_ref(), who)
        });
        if !matches!(said, Ok(Ok(()))) {
            tracing::warn!("the others learn of the end of this rank by its lease: {said:?}");
        }
        // The layer or the team may itself be what has panicked, so a second panic is caught.
        let ended = ThreadPanicked::catch(&panicked.thread, || {
            self.layer.set_refuse(true);
            for peer in (0..self.transport.slots()).filter(|peer| *peer != self.transport.slot()) {
                if let Err(error) = self.transport.fail_peer(peer) {
                    tracing::error!("the QPs to rank {peer} are not ended: {error}");
                }
            }
        });
        if let Err(again) = ended {
            tracing::error!("the QPs of this rank are not ended: {again}");
        }
    }

    /// Adds a cause against a member. If kernels do not wait for a rank with this cause, it writes their words.
    pub(super) fn suspect(&self, rank: u32, cause: Cause) {
        let mut inner = self.lock();
        let added = inner.suspects.add(rank, cause.clone(), Instant::now());
        if added == Added::Nothing {
            return;
        }
        inner.news |= cause.is_news();
        if added == Added::New {
            inner.tell(GroupEventKind::Suspected { rank, cause });
        }
        self.mask(&mut inner);
        self.notify();
    }

    /// Takes a cause against a member back.
    pub(super) fn trust(&self, rank: u32, cause: &Cause) {
        let mut inner = self.lock();
        if inner.suspects.has(rank, cause) {
            inner.news |= cause.is_news();
            if inner.suspects.withdraw(rank, cause) {
                inner.tell(GroupEventKind::Trusted { rank });
            }
            self.mask(&mut inner);
            self.notify();
        }
    }

    /// Writes the words that name the ranks for which kernels do not wait: ranks that the host suspects, and ranks that are no members but
    /// that calls of older views still name. Also writes whether any rank is left to wait for.
    pub(super) fn mask(&self, inner: &mut Inner) {
        let own = self.transport.slot();
        let alone = inner.is_alone(own);
        if inner.alone != alone {
            self.layer.set_alone(alone);
            inner.alone = alone;
        }
        let members = inner.suspects.members().keys();
        let leavers = inner.farewells.keys().map(|(leaver, _)| *leaver);
        let stays: Slots = members.chain(leavers).collect();
        let all: Slots = (0..self.transport.slots()).collect();
        let mut masked = all.without(&stays).with(&inner.suspects.told());
        masked.remove(own);
        if inner.masked.as_ref() == Some(&masked) {
            return;
        }
        let ranks: Vec<u32> = masked.iter().collect();
        match self.layer.set_suspects(&ranks) {
            Ok(()) => {
                inner.masked = Some(masked);
                inner.changes.add();
                inner.tell(GroupEventKind::Masked { ranks });
                self.notify();
            }
            Err(error) => inner.tell(GroupEventKind::Failed {
                error: format!("telling kernels whom not to wait for: {error}"),
            }),
        }
    }

    /// Returns the events since the last call.
    pub(super) fn take_events(&self) -> Vec<GroupEvent> {
        self.lock().events.drain(..).collect()
    }

    /// Returns the events as `take_events` does, and leaves them for the next call.
    #[cfg(test)]
    pub(super) fn events(&self) -> Vec<GroupEvent> {
        self.lock().events.iter().cloned().collect()
    }

    /// Returns the oldest event that has not been taken, and waits for one at most for `timeout`, and not after the end of the group.
    pub(super) fn next_event(&self, timeout: Duration) -> Option<GroupEvent> {
        let start = Instant::now();
        let mut inner = self.lock();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            match inner.events.pop_front() {
                None if !left.is_zero() && !inner.state.is_over() => inner = self.wait(inner, left),
                found => return found,
            }
        }
    }
}

impl Inner {
    /// Returns whether the view has members besides `own`, and `own` exchanges with none of them.
    fn is_alone(&self, own: u32) -> bool {
        let silent = self.suspects.silent();
        let members = self.suspects.members().iter();
        let mut others = members.filter(|who| who.0 != own).peekable();
        let lost = |who: RankGeneration| silent.contains(who.0) || self.parted.contains(&who);
        others.peek().is_some() && others.all(lost)
    }

    /// Forgets what was noted of the QPs to the ranks for which `which` holds.
    pub(super) fn forget_pairs(&mut self, which: impl Fn(&RankGeneration) -> bool) {
        self.connected.retain(|who| !which(who));
        self.unproven.retain(|who| !which(who));
        self.proving.retain(|who, _| !which(who));
    }

    /// Returns whether the thread that connects has something to do: QPs to connect, or memory to close.
    pub(super) fn has_to_connect(&self) -> bool {
        let open = || self.traces.values().any(|traces| !traces.closed);
        !self.wanted.is_empty() || !self.parted.is_empty() || open()
    }

    /// Returns whether the thread that follows the rules has news to conclude from.
    pub(super) fn has_news(&self) -> bool {
        self.news || self.rang || self.told.is_some()
    }

    /// Sets the state. A rank that is broken stays broken.
    pub(super) fn set_state(&mut self, state: GroupState) {
        if self.panicked.is_none() && self.state != state {
            self.state = state;
            self.changes.add();
        }
    }

    /// Notes that the device has `view`.
    pub(super) fn set_view(&mut self, view: GroupView) {
        self.view = Some(view);
        self.changes.add();
    }

    /// Checks that the threads of the group run.
    pub(super) fn check(&self) -> Result<(), GroupError> {
        match &self.panicked {
            Some(panicked) => Err(panicked.clone().into()),
            None => Ok(()),
        }
    }

    /// Returns the event that holds this rank up, if any.
    pub(super) fn hindrance(&self) -> Option<&GroupEventKind> {
        self.hindrance.as_ref()
    }

    pub(super) fn tell(&mut self, what: GroupEventKind) {
        self.counting.count(&what);
        let own = self.own_slot;
        if what.holds_up(own) {
            self.hindrance = Some(what.clone());
        } else if self.hindrance.as_ref().is_some_and(|held| what.ends(held)) {
            self.hindrance = None;
        }
        // If one failure comes again and again, its events would drive out all others.
        let repeats = matches!(
            what,
            GroupEventKind::Failed { .. } | GroupEventKind::NotConnected { .. }
        );
        if repeats && self.events.back().is_some_and(|last| last.what == what) {
            return;
        }
        if what.is_step() {
            tracing::debug!("{what:?}")
        } else {
            tracing::info!("{what:?}")
        }
        if self.events.len() == MOST_EVENTS {
            self.events.pop_front();
        }
        let at = Instant::now();
        self.events.push_back(GroupEvent { at, what });
    }
}
