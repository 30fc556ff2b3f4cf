//! A MoE layer under the rules of membership: its views are those of a group, and each has a placement of the experts.

use std::time::Duration;

use super::layer::Moe;
use crate::membership::{Layer, LayerError, LayerView};

/// [`Moe`] has methods of the same names for programs without a group. The comments there say what each method does.
impl Layer for Moe {
    fn set_limit(&self, limit: Option<u32>) -> u32 {
        self.control().board().set_limit(limit)
    }

    fn started(&self) -> u32 {
        self.control().board().started()
    }

    fn finished(&self) -> u32 {
        self.control().board().finished()
    }

    fn has_place(&self, first: u32) -> bool {
        self.control().has_place(first)
    }

    fn set_view(&self, view: &LayerView<'_>) -> Result<(), LayerError> {
        let view = self.control().view_of_group(view);
        Ok(self.control().set_view(&view, Duration::ZERO)?)
    }

    fn begin(&self, view: &LayerView<'_>) -> Result<(), LayerError> {
        let view = self.control().view_of_group(view);
        Ok(self.control().begin_in(view)?)
    }

    fn clear_peer(&self, peer: u32) -> Result<(), LayerError> {
        Ok(self.control().clear_peer(peer)?)
    }

    fn suspected(&self) -> Vec<u32> {
        self.control().board().suspected()
    }

    fn unbuffered(&self) -> u32 {
        self.control().board().unbuffered()
    }

    fn heard(&self) -> Result<Vec<u64>, LayerError> {
        Ok(self.control().board().heard()?)
    }

    fn set_suspects(&self, ranks: &[u32]) -> Result<(), LayerError> {
        Ok(self.control().board().set_suspects(ranks)?)
    }

    fn set_alone(&self, alone: bool) {
        self.control().board().set_alone(alone);
    }

    fn set_preparing(&self, promised: Option<&[u32]>) -> Result<(), LayerError> {
        Ok(self.control().board().set_preparing(promised)?)
    }

    fn set_refuse(&self, refuse: bool) {
        self.control().board().set_refuse(refuse);
    }
}
