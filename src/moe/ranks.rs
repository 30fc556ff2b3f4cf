//! `Moe`: the ranks that take part in its calls, the experts that they hold, and what went wrong with them.

use std::sync::Arc;
use std::time::Duration;

use super::error::MoeError;
use super::fault::Fault;
use super::layer::Moe;
use super::members::deadlines::Deadlines;
use super::members::rule::PlacementPolicy;
use super::members::views::View;
use super::placement::Placement;

impl Moe {
    /// Sets the waiting times of calls, holds and stops that begin from now on.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn set_deadlines(&self, deadlines: &Deadlines) -> Result<(), MoeError> {
        self.control().board().set_deadlines(deadlines)
    }

    /// Sets the ranks that take part in calls that begin from now on, as this rank sees it. Each other rank gets only a word that
    /// says so, and no call waits for it. At the start of a layer all ranks take part. Ranks need not set the same.
    ///
    /// # Errors
    /// An array whose length is not the number of ranks. Errors of the device.
    pub fn set_active(&self, active: &[bool]) -> Result<(), MoeError> {
        self.control().board().set_active(active)
    }

    /// Lets later calls wait for `rank` again: calls waited for it in vain, but it lives. Its arguments may have been others, for
    /// example ([`Difference::missed`](super::Difference::missed)). No kernel of the layer runs meanwhile.
    ///
    /// # Errors
    /// [`MoeError::Rank`]. Errors of the device.
    pub fn trust(&self, rank: u32) -> Result<(), MoeError> {
        self.control().board().trust(rank)
    }

    /// Leaves out calls up to `call` at this rank, which the other ranks have made without it. This rank takes part in the next
    /// call. A call that has begun here already is not left out. No kernel of the layer runs meanwhile.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn skip_to(&self, call: u32) -> Result<(), MoeError> {
        self.control().skip_to(call)
    }

    /// Marks `rank` as dead: its QPs go to Err, which ends every wait for it, and no call waits for it any more. The next view
    /// tells from which call on the rank is no member.
    ///
    /// # Errors
    /// Errors of the team.
    pub fn mark_dead(&self, rank: u32) -> Result<(), MoeError> {
        self.control().mark_dead(rank)
    }

    /// Returns the last call that has taken its number.
    #[must_use]
    pub fn started(&self) -> u32 {
        self.control().board().started()
    }

    /// Returns the last call such that it and all calls before it have ended. A call ends with its last phase, or when a call two
    /// later begins.
    #[must_use]
    pub fn finished(&self) -> u32 {
        self.control().board().finished()
    }

    /// Lets no call start whose number is above `limit`; without a limit, every call may start. A call above the limit waits for
    /// the change deadline, and then ends `aborted`. Until the limit changes, later calls above it end when another rank has begun
    /// them, or at that deadline: this rank neither runs ahead of the others nor holds them up. Returns the last call that has
    /// started: no later call starts, unless it is at most `limit`.
    pub fn set_limit(&self, limit: Option<u32>) -> u32 {
        self.control().board().set_limit(limit)
    }

    /// Returns the ranks that kernels have waited for in vain, and that have sent nothing new since.
    #[must_use]
    pub fn suspected(&self) -> Vec<u32> {
        self.control().board().suspected()
    }

    /// Returns how many records of faults kernels have written so far; wraps. It costs one load from the host's own memory. A
    /// caller that keeps the last answer knows before each launch whether [`Moe::last_fault`] has news, without waiting.
    #[must_use]
    pub fn faults(&self) -> u32 {
        self.control().board().faults()
    }

    /// Returns how many calls so far found no free send buffer, and so sent nothing. That happens if links to more ranks than the
    /// layer was made for ([`MoeConfig::failing_links`](super::MoeConfig::failing_links)) fail within the patience of the HCA.
    /// Wraps. It costs one load from the host's own memory.
    #[must_use]
    pub fn unbuffered(&self) -> u32 {
        self.control().board().unbuffered()
    }

    /// Returns the newest fault; none if there is none so far, or if kernels overwrite the record all the time.
    #[must_use]
    pub fn last_fault(&self) -> Option<Fault> {
        self.control().board().last_fault()
    }

    /// Returns the newest view, which holds for all calls from `first` on.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        self.control().view()
    }

    /// Returns which rank holds which expert, in the newest view.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.view().placement.clone()
    }

    /// Returns the experts of this rank in the newest view, in the order of their local numbers.
    #[must_use]
    pub fn local_experts(&self) -> Vec<u32> {
        self.view().placement.of_rank(self.team().rank()).to_vec()
    }

    /// Makes `view` the view of all calls from `view.first` on. Earlier calls run, and end, in the views that they have. All ranks
    /// set the same view, and make sure that no call from `view.first` on starts before that ([`Moe::set_limit`]).
    ///
    /// The new view takes the place of the oldest view, and the call waits up to `timeout` until no call needs the oldest. If it
    /// begins at the same call as the newest view, it replaces that view at once, if no call runs in that view. No call runs in it
    /// if none has begun, or if the limit holds calls back.
    ///
    /// # Errors
    /// A view that does not begin after the newest view, or is without this rank, or whose experts do not fit the layer.
    /// [`MoeError::ViewInUse`]. Errors of the device.
    pub fn set_view(&self, view: &View, timeout: Duration) -> Result<(), MoeError> {
        self.control().set_view(view, timeout)
    }

    /// Gives the layer `rule` for the views that a group makes. The rule gets the members of a view in ascending order, and returns
    /// which rank holds which expert in that view. It is a pure function, the same at all ranks, and its results fit the shape of
    /// the layer. Call this before [`Group::start`](crate::membership::Group::start). Without a rule the experts stay where they
    /// are when members change: no rank serves the experts of a rank that is gone until that rank is back. The first view of
    /// founders always has the placement with which the layer was made.
    pub fn place_by(&self, rule: impl Fn(&[u32]) -> Placement + Send + Sync + 'static) {
        self.control().rule().set(rule);
    }

    /// Gives the layer the rule of this name, in place of a rule that was given before.
    pub fn set_placement_policy(&self, policy: PlacementPolicy) {
        self.control().rule().set_policy(policy);
    }

    /// Sets the placement of the views whose members are `members`, in any order, instead of what the rule says; `None` removes it.
    /// Views with other members go by the rule. If there is no rule, their experts are where they were when the layer was made. All
    /// ranks make the same call, before a view has these members. A view that exists already keeps its placement.
    ///
    /// # Errors
    /// [`MoeError::Placement`] for a table that does not fit the layer. [`MoeError::Rank`] for a member that the team does not
    /// have. [`MoeError::Shape`] if there is no member.
    pub fn set_placement_of(
        &self,
        members: &[u32],
        placement: Option<Placement>,
    ) -> Result<(), MoeError> {
        self.control().rule().set_table(members, placement)
    }
}
