//! What one rank has of a team. Each part owns its state. A task that needs several parts is a function over all of them (`change`,
//! `together`).

use std::sync::Arc;

use super::choices::chosen::Choices;
use super::config::TeamConfig;
use super::error::TeamError;
use super::hello::Wanted;
use super::holder::Holder;
use super::meeting::exchange::Exchange;
use super::meeting::tries::Meetings;
use super::peers::list::Peers;
use super::tables::Tables;
use super::windows::list::Windows;
use crate::fabric::{LiveTeam, Rail};
use crate::gpu::Gpu;

/// The parts of a rank. A drop ends them in this order.
#[derive(Debug)]
pub(in crate::team) struct Parts {
    pub(in crate::team) config: TeamConfig,
    pub(in crate::team) exchange: Exchange,
    pub(in crate::team) gpu: Arc<dyn Gpu>,
    pub(in crate::team) tables: Tables,
    pub(in crate::team) peers: Peers,
    pub(in crate::team) choices: Choices,
    pub(in crate::team) windows: Windows,
    pub(in crate::team) meetings: Meetings,
    pub(in crate::team) rails: Vec<Rail>,
    /// Dropped last. Once it is dropped, no kernel of this rank can store into the memory of other ranks any more.
    pub(in crate::team) living: LiveTeam,
}

impl Parts {
    /// Returns this rank and its generation.
    pub(in crate::team) fn holder(&self) -> Holder {
        self.config.holder()
    }

    /// Returns what this rank compares the records of other ranks with.
    pub(in crate::team) fn wanted(&self) -> Wanted<'_> {
        self.peers.wanted(&self.exchange, &self.config)
    }

    /// Returns an error if a thread that rings doorbells for this rank does not run. Without such a thread nothing that is posted
    /// would complete.
    pub(in crate::team) fn check_threads(&self) -> Result<(), TeamError> {
        Ok(self.rails.iter().try_for_each(Rail::check)?)
    }
}
