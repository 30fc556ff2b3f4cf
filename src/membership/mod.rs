//! Which ranks belong to a team, agreed on through the store. Ranks die, leave and come back while the others go on.
//!
//! A member has a slot, a generation and a lease; each rank that takes the slot has another generation. A view is a set of members,
//! the pairs of them that are parted, an epoch and the first call that runs in it. Views follow each other by compare-and-set on
//! one record. Any member may propose, promise and commit.
//!
//! The group expels a member in four cases. Its process has ended. No rank that looks hears of it. The larger side has no contact
//! with it. Or it leaves a proposal unanswered. Only the end of a process is final at once: a sign of life withdraws the other
//! findings. Time in which the rank that looks, or the store, stood still does not count. If a QP between two members fails, the
//! pair parts, and neither is expelled.
//!
//! Crate `membership-rules` says what a rank concludes from a look and what it does next, and a model runs these very functions in
//! every order. `driver` looks (`see`), asks them, and does what they say (`steps`); `group_store` is what stands in the store.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use warpverbs::gpu::{self, GpuSelector};
//! use warpverbs::membership::{Group, GroupConfig, GroupState, newest_view};
//! use warpverbs::moe::{Moe, MoeConfig};
//! use warpverbs::team::{MemoryStore, Store, Team, TeamConfig};
//! use warpverbs::verbs::{Context, DeviceSelector};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let _hca = softhca::Hca::new()?; // where there is no ConnectX
//! let device = Context::open(&DeviceSelector::Auto)?;
//! let gpu = gpu::open(GpuSelector::Auto)?;
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
//! // Rank 0 founds the team alone; there is a place for one more.
//! let founders = [0].into_iter().collect();
//! let config = TeamConfig::new(0, 2).with_members(Some(founders));
//! let team = Team::join(config, &device, &gpu, Arc::clone(&store))?;
//! let shape = MoeConfig::BF16.with_hidden(64).with_experts(2).with_top_k(1).with_max_tokens(8);
//! let moe = Moe::new(&team, "layer0", shape)?;
//!
//! let group = Group::start(&team, moe, &GroupConfig::default())?;
//! group.wait(GroupState::Serving, Duration::from_secs(20))?;
//! let view = newest_view(&store, 2)?.expect("rank 0 has founded the group");
//! assert_eq!(view.members.into_keys().collect::<Vec<_>>(), [0]);
//! group.leave(Duration::from_secs(20))?;
//! # Ok(())
//! # }
//! ```
//!
//! | a rank is | and | does | and is then |
//! |---|---|---|---|
//! | `Joining` | founds the team; all founders hold their leases, or `found_bound` has passed | writes the first record | `Serving` in view 1 |
//! | `Joining` | comes later | takes a lease that asks, connects with every member and every other newcomer | `Joining` |
//! | `Joining` | a proposal takes it in | promises before any member does, and promises no call | `Joining` |
//! | `Joining` | the whole view has ended, or was not heard of for `found_bound` | proposes the ranks that ask and are connected with each other | `Joining` |
//! | `Serving` | a port is down, the store is away, or leases are missing behind a gap | nothing | `Serving` |
//! | `Serving` | what it has to say of the others has changed | writes its row | `Serving` |
//! | `Serving`, `Changing` | a member has ended for certain: its process has, or it has said so | ends its QPs to it at once; no view opens them again | the same |
//! | `Serving` | a rank goes; else a pair parts; else a rank comes or a pair unites; and it is its turn | proposes the next view | `Serving` |
//! | `Serving` | wants to leave, and no proposal is open | starts no further call, says which was its last, wakes the others by the record | `Serving` until a view is without it |
//! | `Serving` | a proposal takes in newcomers that have not promised | nothing; calls go on | `Serving` |
//! | `Serving` | a proposal keeps it, and its newcomers have promised | closes the limit, ends its QPs to ranks that go or are parted from it, promises the last call it has started | `Changing` |
//! | `Changing` | a smaller proposal replaces the one it has promised | fences more, promises the same call | `Changing` |
//! | `Changing` | a rank of the proposal is gone, or has not promised for `promise_bound` | proposes without it | `Changing` |
//! | `Changing` | all of the proposal have promised, and it is its turn | commits: epoch + 1, first call = 1 + the largest promise | `Changing` |
//! | `Joining`, `Changing` | the record has a new view with it | opens the limit to first - 1, gives the device the view, opens newcomers and united peers, opens the limit | `Serving` |
//! | `Serving`, `Changing` | a proposal leaves it out | waits; if all ranks that it names are gone, proposes itself alone, once in a view | the same; `Expelled` the second time |
//! | any | the record has had it as a member and has it no more | ends its calls and its QPs; a leaver first ends the calls before that view | `Expelled`, or `Left` if it wanted to |
//! | any | the HCAs of all its rails have failed for good, and two others meet | ends its calls and its QPs, gives its lease back | `Expelled` |
//! | any | a thread of its group panics | ends its QPs and gives its lease back | `Broken` |
//!
//! A held call whose deadline runs out ends aborted and has used up its number, in any state; nothing else changes.

mod age;
mod anew;
mod bell;
mod changes;
mod config;
mod connect;
mod connector;
mod counters;
mod doubt;
mod driver;
mod error;
mod event;
mod generations;
mod group_store;
mod holders;
mod layer;
mod of_team;
mod pidfd;
mod report;
#[cfg(test)]
mod scenarios;
mod see;
mod shared;
#[cfg(any(test, feature = "sim"))]
#[doc(hidden)]
pub mod sim;
mod steps;
mod stored;
mod suspects;
mod threads;
mod tidy;
mod transport;
mod watch;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use config::GroupConfig;
use connector::Connector;
pub use counters::GroupCounters;
use driver::Driver;
pub use error::GroupError;
pub use event::{Cause, GroupEvent, GroupEventKind, GroupState, GroupView};
pub use generations::next_generation;
use group_store::GroupStore;
pub use group_store::newest_view;
pub use layer::{Layer, LayerError, LayerView};
pub use report::{GroupReport, HeldBackReport, OpenProposal, RankReport, read_group};
pub use membership_rules::members::Members;
use shared::Shared;
use threads::spawn;
use transport::Transport;

use crate::error::OwnThread;
use crate::team::{StoreError, Team};

/// One rank in its group, with the threads that keep it a member. Dropping it stops the threads and gives the lease back, so that
/// the others go on without this rank. Calls that run are not ended.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
    threads: Vec<OwnThread>,
    connector: Arc<Connector>,
}

impl Group {
    /// Puts `layer` of `team` under the rules of membership: its calls run in views that all members agree on. The founders of
    /// a team all start with the same first view; a rank that comes later asks to be taken in.
    ///
    /// Returns after a few calls of the store; [`Group::wait`] says when the rank serves. A rank that joins makes no call before.
    /// [`GroupEventKind::SlowStore`] is the first event where those calls have taken too long for leases of this time to live.
    ///
    /// # Errors
    /// A store without leases; bounds that would drop healthy ranks; a second group of this generation; the store's.
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

    fn with_transport(
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
        // On the heap: each function that passes it on would keep a copy on the stack of its thread.
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

    /// Whether the threads of the group run.
    ///
    /// # Errors
    /// [`GroupError::Panicked`]: the rank is [`GroupState::Broken`].
    pub fn check(&self) -> Result<(), GroupError> {
        self.shared.lock().check()
    }

    /// How this rank stands.
    #[must_use]
    pub fn state(&self) -> GroupState {
        self.shared.lock().state
    }

    /// The newest view that the kernels of this rank have; none before the first.
    #[must_use]
    pub fn view(&self) -> Option<GroupView> {
        self.shared.lock().view.clone()
    }

    /// How often things have happened so far, and how many pairs are parted now.
    #[must_use]
    pub fn counters(&self) -> GroupCounters {
        self.shared.lock().counting.counters()
    }

    /// What has happened since the last call, oldest first. The newest 4,096 are kept.
    #[must_use]
    pub fn events(&self) -> Vec<GroupEvent> {
        self.shared.take_events()
    }

    /// The oldest event that has not been taken, waited for at most for `timeout`. None if nothing has happened; at once where
    /// this generation is over and nothing will.
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
    /// [`GroupError::State`] if it does not, or cannot any more.
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
        there: impl Fn(&shared::Inner) -> bool,
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

    /// How often the state, the view, or the ranks that kernels do not wait for have changed so far.
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

    /// An eventfd for an event loop. It is readable from a change ([`Group::changes`]) until [`Group::clear_changes`]. It is also
    /// readable when it is first asked for, and when the group is dropped. Each call duplicates the descriptor of the same eventfd;
    /// the caller closes it.
    ///
    /// # Errors
    /// The operating system's, which has no descriptor left.
    pub fn eventfd(&self) -> io::Result<OwnedFd> {
        self.shared.lock().changes.eventfd()
    }

    /// Makes the eventfd unreadable until the next change, and returns the number of changes so far. A program that reads the group
    /// after this call sees every change up to that number, so it misses none.
    #[must_use]
    pub fn clear_changes(&self) -> u64 {
        self.shared.lock().changes.clear()
    }

    /// Reports that the program cannot reach `rank`. Kernels do not wait for it from now on. After the error bound the pair parts:
    /// the QPs between the two are ended and connected anew, and neither rank is expelled.
    ///
    /// # Errors
    /// A rank that the team does not have, or this one.
    pub fn suspect(&self, rank: u32, why: &str) -> Result<(), GroupError> {
        let (own, ranks) = (self.shared.transport.slot(), self.shared.transport.slots());
        if rank == own || rank >= ranks {
            return Err(GroupError::Suspect { rank, ranks, own });
        }
        self.check()?;
        self.shared.suspect(rank, Cause::Told(why.to_owned()));
        Ok(())
    }

    /// Asks the others to go on without this rank. Waits until they do and need it no more, at most for `timeout`. Another thread
    /// must go on making calls meanwhile. Calls of which this rank is still part lose no token, and calls behind the last one end
    /// at once. If no thread makes calls, the others wait for this rank in vain, once.
    ///
    /// # Errors
    /// [`GroupError::State`] if they have not.
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
        // The first waits for the record, and holds nothing of the group meanwhile.
        for thread in self.threads.drain(..).skip(1) {
            thread.join();
        }
        self.connector.join();
        // A loop that waits for the next change sees that none will come.
        self.shared.lock().changes.add();
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    /// The Rust files below `directory`.
    fn sources(directory: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let below = |path: PathBuf| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        };
        let all = paths.flat_map(below);
        all.filter(|path| path.extension().is_some_and(|it| it == "rs"))
            .collect()
    }

    #[test]
    fn no_clock_that_can_be_set_is_read_by_groups_and_stores() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let settable = ["System", "Time"].concat();
        for part in [
            "src/membership",
            "crates/membership-rules/src",
            "crates/rendezvous/src",
        ] {
            let found = sources(&root.join(part));
            assert!(found.len() > 10, "{part}: {found:?}");
            for path in found {
                let text = std::fs::read_to_string(&path).unwrap();
                for clock in [
                    settable.as_str(),
                    "CLOCK_REALTIME",
                    "UNIX_EPOCH",
                    ".modified()",
                ] {
                    let own = clock != settable && path.ends_with("src/membership/mod.rs");
                    assert!(own || !text.contains(clock), "{}: {clock}", path.display());
                }
            }
        }
    }

    #[test]
    fn the_table_of_states_is_the_same_here_and_in_the_document() {
        let rows = |text: &'static str, prefix: &str| -> Vec<&str> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
            let table = lines.skip_while(|line| !line.starts_with("| a rank is"));
            table.take_while(|line| line.starts_with('|')).collect()
        };
        let here = rows(include_str!("mod.rs"), "//! ");
        assert_eq!(here.len(), 21);
        assert_eq!(here, rows(include_str!("../../docs/membership.md"), ""));
    }
}
