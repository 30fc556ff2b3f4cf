//! Who belongs to a team, agreed on through the store: ranks die, leave, and come back while the others go on.
//!
//! A member has a slot, a generation (another one each time somebody takes the slot) and a lease. A view is a set of members, an
//! epoch and the first call that runs in it. Views follow each other by compare-and-set on one record; any member may propose,
//! promise and commit, none is special. `rules` decides what a rank does next, `rules_model` runs that very function in every
//! order, `driver` does it.
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
//! | `Joining` | founds the team; all founders hold their leases | writes the first record | `Serving` in view 1 |
//! | `Joining` | comes later; has connected with all that is there, and they with it | asks; promises no call | member of a proposal |
//! | `Joining` | nobody of the view lives | proposes those who ask | member of a proposal |
//! | `Serving` | somebody is gone, or two do not reach each other, or somebody is ready to come in | proposes the members to be | the same |
//! | `Serving` | a proposal is open that keeps it | closes the limit, fences who goes, promises the last call it has started | `Changing` |
//! | `Changing` | a smaller proposal replaces the one it has promised | fences more, promises the same call | `Changing` |
//! | `Changing` | somebody leaves the proposal unanswered for too long | proposes without him | `Changing` |
//! | `Changing` | all of the proposal have promised | commits: epoch + 1, first call = 1 + the largest promise | `Changing` |
//! | `Changing` | the record has a new view with it | opens the limit to first - 1, gives the device the view, opens newcomers, opens the limit | `Serving` |
//! | any | the record has had it as a member and has it no more | ends its calls and its QPs | `Expelled`, or `Left` if it wanted to |
//! | any | the largest set of members that reach each other is without it, and another member doubts it | gives its lease back | `Expelled` |
//! | any | a thread of its group panics | ends its QPs and gives its lease back | `Broken` |
//!
//! A held call whose deadline runs out ends aborted and has used up its number, in any state; nothing else changes.

mod choose;
mod config;
mod connect;
mod driver;
mod error;
mod event;
mod group_store;
mod layer;
mod leave;
#[cfg(test)]
mod next;
mod of_team;
mod pidfd;
mod presence;
mod record;
mod rules;
#[cfg(test)]
mod rules_model;
#[cfg(test)]
mod scenarios;
mod see;
mod shared;
mod steps;
mod suspicion;
mod transport;
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use config::GroupConfig;
use driver::Driver;
pub use error::GroupError;
pub use event::{Cause, GroupEvent, GroupEventKind, GroupState, GroupView};
use group_store::GroupStore;
pub use group_store::{newest_view, next_generation};
pub use layer::{Layer, LayerError};
use shared::Shared;
use transport::Transport;

use crate::error::OwnThread;
use crate::team::Team;

/// One rank in its group: the threads that keep it there. Dropping it stops them and gives the lease back, so that the others
/// go on without this rank; its calls are left as they are.
#[derive(Debug)]
pub struct Group {
    shared: Arc<Shared>,
    threads: Vec<OwnThread>,
}

impl Group {
    /// Puts `layer` of `team` under the rules of membership: its calls run in views that all members agree on. The founders of
    /// a team all start with the same first view; a rank that comes later asks to be taken in.
    ///
    /// Returns at once; [`Group::wait`] says when the rank serves. A rank that joins makes no call before.
    ///
    /// # Errors
    /// Bounds that would drop healthy ranks; a second group of this generation; the store's.
    pub fn start(
        team: &Arc<Team>,
        layer: Arc<dyn Layer>,
        config: &GroupConfig,
    ) -> Result<Self, GroupError> {
        Self::with_transport(Arc::clone(team) as Arc<dyn Transport>, layer, config)
    }

    fn with_transport(
        transport: Arc<dyn Transport>,
        layer: Arc<dyn Layer>,
        config: &GroupConfig,
    ) -> Result<Self, GroupError> {
        let bounds = config.bounds(transport.deadline(), transport.timeout())?;
        let own = (transport.slot(), transport.generation());
        let store = GroupStore::new(transport.store(), own, transport.slots());
        store.enter()?;
        if !transport.founders().contains(&own.0) {
            layer.set_limit(Some(layer.started()));
        }
        let shared = Arc::new(Shared::new(transport, layer, bounds));
        let mut group = Self {
            shared: Arc::clone(&shared),
            threads: Vec::new(),
        };
        let driver = Driver::new(Arc::clone(&shared), store);
        group.spawn("group", move || driver.run())?;
        let watched = Arc::clone(&shared);
        group.spawn("group watch", move || watch::run(watched))?;
        group.spawn("group connect", move || connect::run(&shared))?;
        Ok(group)
    }

    fn spawn(
        &mut self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), GroupError> {
        let name = format!("{name} {}", self.shared.transport.slot());
        let shared = Arc::clone(&self.shared);
        let thread = OwnThread::spawn(&name, body, move |panicked| shared.break_down(panicked));
        self.threads.push(thread.map_err(GroupError::Thread)?);
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
    /// [`GroupError::State`] if it is not, or cannot come there any more; [`GroupError::Panicked`].
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
                });
            }
            inner = self.shared.wait(inner, left);
        }
        Ok(())
    }

    /// Says that `rank` is not reached. After the error bound one of both has to go, this rank or that one: whoever more ranks
    /// reach stays.
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

    /// Asks the others to go on without this rank, and waits until they do and nobody needs it any more, at most for `timeout`.
    /// Another thread goes on making calls meanwhile: no token is lost in those that it is still part of, and those behind the
    /// last one end at once. If nobody does, the others wait for it in vain, once.
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
        for thread in self.threads.drain(..) {
            thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_of_states_is_the_same_here_and_in_the_document() {
        let rows = |text: &'static str, prefix: &str| -> Vec<&str> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
            let table = lines.skip_while(|line| !line.starts_with("| a rank is"));
            table.take_while(|line| line.starts_with('|')).collect()
        };
        let here = rows(include_str!("mod.rs"), "//! ");
        assert_eq!(here.len(), 14);
        assert_eq!(here, rows(include_str!("../../docs/membership.md"), ""));
    }
}
