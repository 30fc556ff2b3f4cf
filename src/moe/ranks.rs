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
    /// Sets the waiting times of calls that begin from now on, and of holds and stops from now on.
    ///
    /// # Errors
    /// The device's.
    pub fn set_deadlines(&self, deadlines: &Deadlines) -> Result<(), MoeError> {
        self.control().board().set_deadlines(deadlines)
    }

    /// The ranks that take part in calls that begin from now on, as the caller sees it. The others get only a word that says so,
    /// and no call waits for them. All take part at the begin. Other ranks need not agree.
    ///
    /// # Errors
    /// An array whose length is not the number of ranks; the device's.
    pub fn set_active(&self, active: &[bool]) -> Result<(), MoeError> {
        self.control().board().set_active(active)
    }

    /// `rank` was waited for in vain and lives, so later calls wait for it: for example where its arguments were others
    /// ([`Difference::missed`](super::Difference::missed)). No kernel of the layer runs meanwhile.
    ///
    /// # Errors
    /// [`MoeError::Rank`]; the device's.
    pub fn trust(&self, rank: u32) -> Result<(), MoeError> {
        self.control().board().trust(rank)
    }

    /// This rank leaves out calls up to `call`, which the other ranks have made without it, and takes part in the next one. A call that
    /// has begun here already is not left out. No kernel of the layer runs meanwhile.
    ///
    /// # Errors
    /// The device's.
    pub fn skip_to(&self, call: u32) -> Result<(), MoeError> {
        self.control().skip_to(call)
    }

    /// `rank` is known dead: its QPs go to Err, which ends every wait for it, and no call waits for it any more. The next view
    /// says which calls have it as a member.
    ///
    /// # Errors
    /// The team's.
    pub fn mark_dead(&self, rank: u32) -> Result<(), MoeError> {
        self.control().mark_dead(rank)
    }

    /// Returns the last call that has taken its number.
    #[must_use]
    pub fn started(&self) -> u32 {
        self.control().board().started()
    }

    /// Returns the last call that has ended, and all before it: its last phase has, or it is closed since a call two later has begun.
    #[must_use]
    pub fn finished(&self) -> u32 {
        self.control().board().finished()
    }

    /// Lets no call start whose number is above `limit`; with none, every call may. A call above it waits for the change
    /// deadline, then ends `aborted`. Until the limit changes, further ones end when another rank has begun them, or at that
    /// deadline: this rank neither runs ahead of the others nor holds them up. Returns the last call that has started: no later
    /// one starts, unless it is at most `limit`.
    pub fn set_limit(&self, limit: Option<u32>) -> u32 {
        self.control().board().set_limit(limit)
    }

    /// Returns the ranks that kernels have waited for in vain, and that have said nothing new since.
    #[must_use]
    pub fn suspected(&self) -> Vec<u32> {
        self.control().board().suspected()
    }

    /// Returns how many records of faults kernels have written so far; wraps. It is one load of the host's own memory. A caller that
    /// keeps the last answer knows before each launch whether [`Moe::last_fault`] has news, without waiting.
    #[must_use]
    pub fn faults(&self) -> u32 {
        self.control().board().faults()
    }

    /// Returns how many calls so far found no free send buffer, and so sent nothing: links to more ranks than the layer was made for
    /// ([`MoeConfig::failing_links`](super::MoeConfig::failing_links)) failed within the patience of the HCA. Wraps. One load of
    /// the host's own memory.
    #[must_use]
    pub fn unbuffered(&self) -> u32 {
        self.control().board().unbuffered()
    }

    /// Returns the newest fault; none so far, or a kernel writes one all the time.
    #[must_use]
    pub fn last_fault(&self) -> Option<Fault> {
        self.control().board().last_fault()
    }

    /// Returns the newest view: that of all calls from `first` on.
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

    /// Makes `view` that of all calls from `view.first` on. Calls before it run, and end, in the view that they have. All
    /// ranks set the same, and see to it that no call from `view.first` on starts before ([`Moe::set_limit`]).
    ///
    /// It takes the place of the oldest view, and waits up to `timeout` until no call needs that one. A view that begins at the
    /// same call as the newest view replaces it at once if no call runs in the newest view. None runs in it if none has begun, or
    /// if the limit holds calls back.
    ///
    /// # Errors
    /// A view that does not begin after the newest one, or without this rank, or whose experts do not fit the layer;
    /// [`MoeError::ViewInUse`]; the device's.
    pub fn set_view(&self, view: &View, timeout: Duration) -> Result<(), MoeError> {
        self.control().set_view(view, timeout)
    }

    /// Gives the layer `rule`. It says, for the members of a view in ascending order, which rank holds which expert in it. It is a pure function, the
    /// same at all ranks, whose results fit the shape of the layer. For the views that a group makes; call it before
    /// [`Group::start`](crate::membership::Group::start). Without a rule the experts stay where they are, whichever ranks are
    /// members. No rank serves those of a rank that is gone until it is back. The first view of founders has the placement with
    /// which the layer was made, whatever the rule.
    pub fn place_by(&self, rule: impl Fn(&[u32]) -> Placement + Send + Sync + 'static) {
        self.control().rule().set(rule);
    }

    /// Gives the layer the rule of this name. It takes the place of a rule that was given before.
    pub fn set_placement_policy(&self, policy: PlacementPolicy) {
        self.control().rule().set_policy(policy);
    }

    /// The placement of the views whose members are `members`, in any order, whatever the rule says; `None` takes it back. Views
    /// with other members go by the rule. Without a rule their experts stay where they were when the layer was made. All ranks make
    /// the same call, before a view has these members. A view that exists already keeps its placement.
    ///
    /// # Errors
    /// [`MoeError::Placement`]: a table that does not fit the layer; [`MoeError::Rank`]: a member that the team does not have;
    /// [`MoeError::Shape`]: no member.
    pub fn set_placement_of(
        &self,
        members: &[u32],
        placement: Option<Placement>,
    ) -> Result<(), MoeError> {
        self.control().rule().set_table(members, placement)
    }
}
