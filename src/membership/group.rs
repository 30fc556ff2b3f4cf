//! One rank in its group: how it starts, what it tells its user, and how it ends.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::GroupConfig;
use super::connector::Connector;
use super::counters::GroupCounters;
use super::driver::Driver;
use super::error::GroupError;
use super::event::{Cause, GroupEvent, GroupEventKind, GroupState, GroupView};
use super::group_store::GroupStore;
use super::layer::Layer;
use super::shared::{Inner, Shared};
use super::threads::spawn;
use super::transport::Transport;
use super::{bell, watch};
use crate::error::OwnThread;
use crate::team::{StoreError, Team};

/// One rank in its group, with the threads that keep it a member. Dropping the `Group` stops the threads and gives the lease back, so that
/// the others go on without this rank. It does not end calls that run.
#[derive(Debug)]
pub struct Group {
    pub(super) shared: Arc<Shared>,
    threads: Vec<OwnThread>,
    connector: Arc<Connector>,
}

impl Group {
    /// Puts `layer` of `team` under the rules of membership: its calls run in views that all members agree on. The founders of
    /// a team all start with the same first view; a rank that comes later asks to be taken in.
    ///
    /// Returns after a few calls of the store; [`Group::wait`] says when the rank serves. A rank that joins must make no call before that.
    /// If the calls of the store have taken too long for this time to live, [`GroupEventKind::SlowStore`] is the first event.
    ///
    /// # Errors
    /// If the store has no leases, if a bound would drop healthy ranks, or if this generation has a group already; errors of the store.
    pub fn start(
        team: &Arc<Team>,
        layer: Arc<dyn Layer>,
        config: &GroupConfig,
    ) -> Result<Self, GroupError> {
        let group = Self::with_transport(Arc::clone(team) as Arc<dyn Transport>, layer, config)?;
        let (patience, bounds) = (team.patience(), group.shared.bounds);
        if team.rails() > 1 && bounds.ends_before(patience, team.config().deadline) {
            tracing::warn!(
                "HCAs try for up to {patience:?} before they give a peer up, and the stall bound is {:?}: a rank of which one rail carries \
                 nothing may go before its pairs go round that rail. WARPVERBS_ACK_TIMEOUT makes HCAs give up sooner",
                bounds.stall
            );
        }
        Ok(group)
    }

    pub(super) fn with_transport(
        transport: Arc<dyn Transport>,
        layer: Arc<dyn Layer>,
        config: &GroupConfig,
    ) -> Result<Self, GroupError> {
        if let Some(store) = transport.store().without_leases() {
            return Err(StoreError::NoLeases { store }.into());
        }
        let bounds = config.bounds(transport.deadline(), transport.timeout())?;
        let own = (transport.slot(), transport.generation());
        let mut store = GroupStore::new(
            transport.store(),
            own,
            transport.slots(),
            bounds.lease_ttl,
            transport.process(),
        );
        let measured = store.enter(&bounds)?;
        if !transport.founders().contains(&own.0) {
            layer.set_limit(Some(layer.started()));
        }
        let shared = Arc::new(Shared::new(transport, layer, bounds));
        if !measured.carries(bounds.lease_ttl) {
            let (p99, lease_ttl) = (measured.p99, bounds.lease_ttl);
            tracing::warn!(
                "99 of 100 calls of the store take up to {p99:?}, and leases live for {lease_ttl:?}: at least {:?} is needed. \
                 `wv doctor` measures a store",
                measured.shortest_lease_ttl
            );
            shared.tell(GroupEventKind::SlowStore { p99, lease_ttl });
        }
        let mut group = Self {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            connector: Arc::default(),
        };
        let (watched, record) = store.watched();
        let connector = Arc::clone(&group.connector);
        // The driver is on the heap: each function that passes it on would keep a copy on the stack of its thread.
        let mut driver = Box::new(Driver::new(Arc::clone(&shared), store, connector));
        let ringing = Arc::downgrade(&shared);
        group.spawn("group record", move || {
            bell::run(&ringing, &watched, record)
        })?;
        group.spawn("group", move || driver.run())?;
        group.spawn("group watch", move || watch::run(shared))?;
        Ok(group)
    }

    fn spawn(
        &mut self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), GroupError> {
        self.threads.push(spawn(&self.shared, name, body)?);
        Ok(())
    }

    /// Checks that the threads of the group run.
    ///
    /// # Errors
    /// [`GroupError::Panicked`]: the rank is [`GroupState::Broken`].
    pub fn check(&self) -> Result<(), GroupError> {
        self.shared.lock().check()
    }

    /// Returns the state of this rank.
    #[must_use]
    pub fn state(&self) -> GroupState {
        self.shared.lock().state
    }

    /// Returns the newest view that the kernels of this rank have. Returns None before the first view.
    #[must_use]
    pub fn view(&self) -> Option<GroupView> {
        self.shared.lock().view.clone()
    }

    /// Returns how often things have happened so far, and how many pairs are parted now ([`GroupCounters`]).
    #[must_use]
    pub fn counters(&self) -> GroupCounters {
        self.shared.lock().counting.counters()
    }

    /// Returns the events since the last call, the oldest first. The group keeps the newest 4,096.
    #[must_use]
    pub fn events(&self) -> Vec<GroupEvent> {
        self.shared.take_events()
    }

    /// Returns the oldest event that has not been taken, and waits for one at most for `timeout`. Returns None if no event came. Once this
    /// generation is over and no event is left, it returns None at once.
    #[must_use]
    pub fn next_event(&self, timeout: Duration) -> Option<GroupEvent> {
        self.shared.next_event(timeout)
    }

    /// Waits until this rank is in `state`, at most for `timeout`.
    ///
    /// # Errors
    /// [`GroupError::State`] if the rank is in another state after `timeout`, or can no longer come to `state`;
    /// [`GroupError::Panicked`].
    pub fn wait(&self, state: GroupState, timeout: Duration) -> Result<(), GroupError> {
        self.wait_for(state, timeout, |inner| inner.state == state)
    }

    /// Waits until this rank serves in a view of at least `epoch`, at most for `timeout`, and returns its view.
    ///
    /// # Errors
    /// [`GroupError::State`] if the rank does not serve in such a view after `timeout`, or can no longer come to that.
    pub fn wait_view(&self, epoch: u32, timeout: Duration) -> Result<GroupView, GroupError> {
        self.wait_for(GroupState::Serving, timeout, |inner| {
            let newest = inner.view.as_ref().map_or(0, |view| view.epoch);
            inner.state == GroupState::Serving && newest >= epoch
        })?;
        Ok(self.view().expect("who serves has a view"))
    }

    fn wait_for(
        &self,
        wanted: GroupState,
        timeout: Duration,
        there: impl Fn(&Inner) -> bool,
    ) -> Result<(), GroupError> {
        let start = Instant::now();
        let mut inner = self.shared.lock();
        while !there(&inner) {
            inner.check()?;
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() || inner.state.is_over() {
                return Err(GroupError::State {
                    state: inner.state,
                    wanted,
                    waited: start.elapsed(),
                    why: inner.hindrance().map(ToString::to_string),
                });
            }
            inner = self.shared.wait(inner, left);
        }
        Ok(())
    }

    /// Returns how often the state, the view, or the ranks that kernels do not wait for have changed so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.shared.lock().changes.number()
    }

    /// Waits until [`changes`](Self::changes) is another number than `seen`, at most for `timeout`, and returns the number. Returns
    /// at once when this generation is over.
    #[must_use]
    pub fn wait_change(&self, seen: u64, timeout: Duration) -> u64 {
        let start = Instant::now();
        let mut inner = self.shared.lock();
        loop {
            let number = inner.changes.number();
            let left = timeout.saturating_sub(start.elapsed());
            if number != seen || left.is_zero() || inner.state.is_over() {
                return number;
            }
            inner = self.shared.wait(inner, left);
        }
    }

    /// Returns an eventfd for an event loop. It is readable from a change ([`Group::changes`]) until [`Group::clear_changes`]. It is also
    /// readable when it is first asked for, and when the group is dropped. Each call duplicates the descriptor of the same eventfd;
    /// the caller closes it.
    ///
    /// # Errors
    /// [`io::Error`] of the operating system, if it has no descriptor left.
    pub fn eventfd(&self) -> io::Result<OwnedFd> {
        self.shared.lock().changes.eventfd()
    }

    /// Makes the eventfd unreadable until the next change, and returns the number of changes so far. A program that reads the group
    /// after this call sees every change up to that number, so it misses none.
    #[must_use]
    pub fn clear_changes(&self) -> u64 {
        self.shared.lock().changes.clear()
    }

    /// Reports that the program cannot reach `rank`. From now on kernels do not wait for that rank. After the error bound the pair parts:
    /// the QPs between `rank` and this rank are ended and connected anew, and neither rank is expelled.
    ///
    /// # Errors
    /// [`GroupError::Suspect`] if the team does not have `rank`, or if `rank` is this one.
    pub fn suspect(&self, rank: u32, why: &str) -> Result<(), GroupError> {
        let (own, ranks) = (self.shared.transport.slot(), self.shared.transport.slots());
        if rank == own || rank >= ranks {
            return Err(GroupError::Suspect { rank, ranks, own });
        }
        self.check()?;
        self.shared.suspect(rank, Cause::Told(why.to_owned()));
        Ok(())
    }

    /// Asks the others to go on without this rank. Waits until they do and need this rank no more, at most for `timeout`. Another thread
    /// must go on making calls meanwhile. Calls of which this rank is still part lose no token, and calls after the last of these end at
    /// once. If no thread makes calls, the others wait for this rank in vain, once.
    ///
    /// # Errors
    /// [`GroupError::State`] if the rank has not left after `timeout`; [`GroupError::Panicked`].
    pub fn leave(&self, timeout: Duration) -> Result<(), GroupError> {
        {
            let mut inner = self.shared.lock();
            (inner.leaving, inner.news) = (true, true);
        }
        self.shared.notify();
        self.wait(GroupState::Left, timeout)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.shared.stop();
        // The first thread waits for the record and holds nothing of the group meanwhile, so it is not joined.
        for thread in self.threads.drain(..).skip(1) {
            thread.join();
        }
        self.connector.join();
        // A loop that waits for the next change sees that no further change will come.
        self.shared.lock().changes.add();
    }
}
