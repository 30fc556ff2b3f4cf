//! The ranks of a layer as its host controls them: which ranks take part from which call on, where the experts are, and what
//! kernels are told of that. A layer gives it device memory and a placement, and needs nothing else of membership.

use std::sync::Arc;
use std::time::Duration;

use crate::gpu::HostMapped;
use crate::membership::LayerView;
use crate::moe::error::MoeError;
use crate::moe::members::board::{Addresses, Board, newer};
use crate::moe::members::rule::PlacementRule;
use crate::moe::members::views::{VIEWS, View, ViewTables, Views};
use crate::team::{Launches, Team};

/// The epoch of a team that never changes.
const FIRST_EPOCH: u32 = 1;

/// The views, the board and the rule of a layer.
#[derive(Debug)]
pub struct Control {
    team: Arc<Team>,
    /// The words shared with kernels that run.
    board: Board,
    views: Views,
    rule: PlacementRule,
    /// The host's count of calls.
    launches: Arc<Launches>,
}

impl Control {
    /// Makes the control of a layer: it writes a view that covers every call and has the first placement of `rule`. The mask of
    /// ranks that take part leaves out none.
    pub(in crate::moe) fn new(
        team: &Arc<Team>,
        words: HostMapped,
        at: Addresses,
        tables: [ViewTables; VIEWS],
        rule: PlacementRule,
    ) -> Result<Self, MoeError> {
        // A rank that joins later is alone until a group takes it in.
        let members = if team.config().joins() {
            vec![team.rank()]
        } else {
            team.config().members().iter().collect()
        };
        let first = View {
            first: 1,
            epoch: FIRST_EPOCH,
            members,
            placement: rule.first().clone(),
        };
        let views = Views::new(team.gpu(), tables, team.rank(), first)?;
        let board = Board::new(team, words, at)?;
        board.set_active(&vec![true; team.ranks() as usize])?;
        Ok(Self {
            team: Arc::clone(team),
            board,
            views,
            rule,
            launches: Arc::default(),
        })
    }

    pub(in crate::moe) fn team(&self) -> &Arc<Team> {
        &self.team
    }

    /// Returns the words that this rank shares with its kernels.
    pub fn board(&self) -> &Board {
        &self.board
    }

    pub(in crate::moe) fn rule(&self) -> &PlacementRule {
        &self.rule
    }

    pub(in crate::moe) fn launches(&self) -> &Arc<Launches> {
        &self.launches
    }

    /// Makes `first` the number of the first call. It is for a layer that joins others, or for a test in which numbers wrap. Call
    /// it before the first call, at all ranks.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn begin_at(&self, first: u32) -> Result<(), MoeError> {
        self.views.begin_at(first)?;
        self.launches.next_is(first);
        self.board.begin_at(first)
    }

    /// Makes `view` the view of the first call.
    pub(in crate::moe) fn begin_in(&self, view: View) -> Result<(), MoeError> {
        self.check(&view)?;
        let first = view.first;
        self.views.begin_in(view)?;
        self.begin_at(first)
    }

    /// Puts the layer into the state after all calls up to `call` in the present view, as if ranks had sent each other no word
    /// since. It is for tests of numbers that no test reaches by calls. Call it between two calls, at all ranks.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn leap_to(&self, call: u32) -> Result<(), MoeError> {
        for peer in 0..self.team.ranks() {
            self.board.clear_peer(peer)?;
        }
        self.launches.next_is(call.wrapping_add(1));
        self.board.next_is(call.wrapping_add(1))
    }

    /// Leaves out calls up to `call` at this rank, unless they have begun.
    pub(in crate::moe) fn skip_to(&self, call: u32) -> Result<(), MoeError> {
        if !newer(call, self.board.started()) {
            return Ok(());
        }
        self.launches.next_is(call.wrapping_add(1));
        self.board.skip_to(call)
    }

    /// Marks `rank` as dead: its QPs go to Err, and no call waits for it.
    pub(in crate::moe) fn mark_dead(&self, rank: u32) -> Result<(), MoeError> {
        self.team.fail_peer(rank)?;
        self.board.suspect(rank);
        Ok(())
    }

    /// Returns the newest view.
    pub(in crate::moe) fn view(&self) -> Arc<View> {
        self.views.newest()
    }

    /// Returns the view in which `call` runs, or would begin now. Returns None if `call` is older than all views, so that it has
    /// ended.
    pub fn view_of(&self, call: u32) -> Option<Arc<View>> {
        self.views.view_of(call, &self.board)
    }

    /// Makes `view` the view of all calls from `view.first` on. It waits up to `timeout` for a place.
    pub(in crate::moe) fn set_view(&self, view: &View, timeout: Duration) -> Result<(), MoeError> {
        self.check(view)?;
        self.views.set(view, &self.board, timeout)
    }

    /// Returns whether a view from `first` on would find a place without waiting for calls.
    pub(in crate::moe) fn has_place(&self, first: u32) -> bool {
        self.views.has_place(first, &self.board)
    }

    /// Returns the view of a group as this rank runs its calls in it. The experts are placed for all members, also for those that
    /// this rank does not reach.
    pub(in crate::moe) fn view_of_group(&self, view: &LayerView<'_>) -> View {
        let placed = self.rule.place(view.members);
        View {
            first: view.first,
            epoch: view.epoch,
            members: view.reached.to_vec(),
            placement: placed.unwrap_or_else(|| self.view().placement.clone()),
        }
    }

    /// Forgets all words between this rank and `peer`, for a new generation of the peer: its signals here, what was sent to it
    /// last, and the suspicion against it. The QPs to the peer are in Err or have been reset, so nothing of the old generation can
    /// arrive.
    ///
    /// # Errors
    /// `peer` is a member of the newest view, or of a view in which a call still runs. Kernels may still post to it
    /// ([`Team::fail_peer`]). The device fails. Nothing is forgotten then.
    pub fn clear_peer(&self, peer: u32) -> Result<(), MoeError> {
        let closed = self.team.is_closed(peer)?;
        self.views.without(peer, &self.board, || {
            let guards = self.team.guards(peer)?;
            if !closed || guards != 0 {
                return Err(MoeError::PeerOpen { peer, guards });
            }
            self.board.clear_peer(peer)
        })
    }

    /// Refuses a view with a rank that the team does not have, a view without this rank, or a placement that does not fit the
    /// layer.
    fn check(&self, view: &View) -> Result<(), MoeError> {
        let (rank, ranks) = (self.team.rank(), self.team.ranks());
        if let Some(&rank) = view.members.iter().find(|member| **member >= ranks) {
            return Err(MoeError::Rank { rank, ranks });
        }
        if !view.members.contains(&rank) {
            return Err(MoeError::NotMember { rank });
        }
        self.rule.check(&view.placement)
    }
}
