//! A layer whose members a group decides on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Moe, MoeError, Placement, View};
use crate::membership::{Layer, LayerError};

/// Who holds which expert when these ranks are members: the same at all ranks.
type PlacementOf = dyn Fn(&[u32]) -> Placement + Send + Sync;

/// A layer as a group sees it: its views are those of the group, and each has a placement of the experts.
pub struct Member {
    moe: Arc<Moe>,
    placement: Box<PlacementOf>,
}

impl Member {
    /// The experts stay where they are, whoever is a member: those of a rank that is gone are nobody's until it is back.
    #[must_use]
    pub fn new(moe: &Arc<Moe>) -> Arc<Self> {
        let placement = moe.placement().clone();
        Self::with_placement(moe, move |_| placement.clone())
    }

    /// `placement` says, for the members of a view in ascending order, who holds which expert in it. A pure function, the same
    /// at all ranks; what it gives fits the shape of the layer.
    #[must_use]
    pub fn with_placement(
        moe: &Arc<Moe>,
        placement: impl Fn(&[u32]) -> Placement + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            moe: Arc::clone(moe),
            placement: Box::new(placement),
        })
    }

    fn view(&self, epoch: u32, first: u32, members: &[u32]) -> View {
        View {
            first,
            epoch,
            members: members.to_vec(),
            placement: (self.placement)(members),
        }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("moe", &self.moe)
            .finish_non_exhaustive()
    }
}

impl Layer for Member {
    fn set_limit(&self, limit: Option<u32>) -> u32 {
        self.moe.set_limit(limit)
    }

    fn started(&self) -> u32 {
        self.moe.started()
    }

    fn finished(&self) -> u32 {
        self.moe.finished()
    }

    fn set_view(&self, epoch: u32, first: u32, members: &[u32]) -> Result<(), LayerError> {
        let view = self.view(epoch, first, members);
        Ok(self.moe.set_view(&view, Duration::ZERO)?)
    }

    fn begin(&self, epoch: u32, first: u32, members: &[u32]) -> Result<(), LayerError> {
        Ok(self.moe.begin_in(self.view(epoch, first, members))?)
    }

    fn clear_peer(&self, peer: u32) -> Result<(), LayerError> {
        Ok(self.moe.clear_peer(peer)?)
    }

    fn suspected(&self) -> Vec<u32> {
        self.moe.suspected()
    }

    fn set_suspects(&self, ranks: &[u32]) -> Result<(), LayerError> {
        Ok(self.moe.set_suspects(ranks)?)
    }

    fn set_preparing(&self, promised: Option<&[u32]>) -> Result<(), LayerError> {
        Ok(self.moe.set_preparing(promised)?)
    }

    fn set_refuse(&self, refuse: bool) {
        self.moe.set_refuse(refuse);
    }
}

impl Moe {
    /// Makes `view` that of all calls, and `view.first` the number of the first one: of a layer that joins others. Before its
    /// first call, or behind calls that it made alone.
    ///
    /// # Errors
    /// A view without this rank, or whose experts do not fit the layer; the device's.
    pub fn begin_in(&self, view: View) -> Result<(), MoeError> {
        self.check_view(&view)?;
        let (gpu, first) = (self.team().gpu().as_ref(), view.first);
        self.views().begin_in(gpu, self.team().rank(), view)?;
        self.begin_at(first)
    }
}
