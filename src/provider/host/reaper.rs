//! The reaper of a worker of an engine.

use std::time::Duration;

use super::lane::HostLane;
use crate::provider::mlx5::Mlx5Reaper;
use crate::provider::ofi::OfiReaper;
use crate::provider::verbs::VerbsReaper;
use crate::provider::{Completion, Provider, ProviderError, Reaper, Wake};

/// The provider of an engine on NICs.
#[derive(Debug)]
pub(crate) enum Host {}

impl Provider for Host {
    type Lane = HostLane;
    type Reaper = HostReaper;
}

/// The reaper of a worker, of the provider that drives the worker's rail.
#[derive(Debug)]
pub(crate) enum HostReaper {
    /// CQs of an mlx5 HCA.
    Mlx5(Mlx5Reaper),
    /// CQs of another NIC, by libibverbs.
    Verbs(VerbsReaper),
    /// A completion queue of libfabric.
    Ofi(OfiReaper),
}

impl Reaper for HostReaper {
    fn reap(&mut self, found: &mut Vec<Completion>, most: usize) {
        match self {
            Self::Mlx5(reaper) => reaper.reap(found, most),
            Self::Verbs(reaper) => reaper.reap(found, most),
            Self::Ofi(reaper) => reaper.reap(found, most),
        }
    }

    fn sleep(&mut self, wake: &Wake, most: Option<Duration>) -> Result<(), ProviderError> {
        match self {
            Self::Mlx5(reaper) => reaper.sleep(wake, most),
            Self::Verbs(reaper) => reaper.sleep(wake, most),
            Self::Ofi(reaper) => reaper.sleep(wake, most),
        }
    }
}
