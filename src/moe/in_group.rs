//! A MoE layer under the rules of membership: its views are those of a group, and each has a placement of the experts.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Moe, Placement, View};
use crate::membership::{Layer, LayerError, LayerView};

/// The placement of the experts for the members of a view: the same at all ranks.
type Rule = dyn Fn(&[u32]) -> Placement + Send + Sync;

/// How experts are placed in the views of a group.
#[derive(Default)]
pub(super) struct PlacementRule(Mutex<Option<Arc<Rule>>>);

impl fmt::Debug for PlacementRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacementRule").finish_non_exhaustive()
    }
}

impl Moe {
    /// `rule` says, for the members of a view in ascending order, which rank holds which expert in it: a pure function, the same at
    /// all ranks, whose results fit the shape of the layer. For the views that a group makes; call it before
    /// [`Group::start`](crate::membership::Group::start). Without a rule the experts stay where they are, whichever ranks are members: no
    /// rank serves those of a rank that is gone until it is back.
    pub fn place_by(&self, rule: impl Fn(&[u32]) -> Placement + Send + Sync + 'static) {
        let mut place = self.rule().0.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(Arc::new(rule));
    }

    /// The view of a group as this rank runs its calls in it. Experts are placed for all members, whoever is parted from this rank.
    fn view_of_group(&self, view: &LayerView<'_>) -> View {
        let rule = self.rule().0.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = rule.clone();
        View {
            first: view.first,
            epoch: view.epoch,
            members: view.reached.to_vec(),
            placement: rule.map_or_else(|| self.placement(), |rule| rule(view.members)),
        }
    }
}

/// The methods of the same name that [`Moe`] has are for programs without a group; their errors say which.
impl Layer for Moe {
    fn set_limit(&self, limit: Option<u32>) -> u32 {
        Self::set_limit(self, limit)
    }

    fn started(&self) -> u32 {
        Self::started(self)
    }

    fn finished(&self) -> u32 {
        Self::finished(self)
    }

    fn set_view(&self, view: &LayerView<'_>) -> Result<(), LayerError> {
        let view = self.view_of_group(view);
        Ok(self.set_view(&view, Duration::ZERO)?)
    }

    fn begin(&self, view: &LayerView<'_>) -> Result<(), LayerError> {
        let view = self.view_of_group(view);
        self.check_view(&view)?;
        let (gpu, first) = (self.team().gpu().as_ref(), view.first);
        self.views().begin_in(gpu, self.team().rank(), view)?;
        Ok(self.begin_at(first)?)
    }

    fn clear_peer(&self, peer: u32) -> Result<(), LayerError> {
        Ok(Self::clear_peer(self, peer)?)
    }

    fn suspected(&self) -> Vec<u32> {
        Self::suspected(self)
    }

    fn heard(&self) -> Result<Vec<u64>, LayerError> {
        Ok(self.board().words()?)
    }

    fn set_suspects(&self, ranks: &[u32]) -> Result<(), LayerError> {
        Ok(Self::set_suspects(self, ranks)?)
    }

    fn set_preparing(&self, promised: Option<&[u32]>) -> Result<(), LayerError> {
        Ok(Self::set_preparing(self, promised)?)
    }

    fn set_refuse(&self, refuse: bool) {
        Self::set_refuse(self, refuse);
    }
}
