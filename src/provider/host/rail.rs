//! A NIC of an engine.

use std::sync::Arc;

use super::memory::{HostKey, HostRegistration};
use super::offer::HostPort;
use super::pair::{HostPair, HostTerms};
use super::reaper::HostReaper;
use crate::config::{EngineConfig, PathConfig};
use crate::fabric::{PortRecord, any_psn};
use crate::provider::mlx5::{Mlx5Rail, RailShape};
use crate::provider::rc::RcTerms;
use crate::provider::{AnyMemory, ProviderError};
use crate::verbs::{Access, Context, KeyRange};

/// What an engine has on one NIC.
#[derive(Debug)]
pub(crate) enum HostRail {
    /// An mlx5 HCA, by DevX.
    Mlx5(Mlx5Rail),
}

impl HostRail {
    /// Makes a rail on an mlx5 HCA.
    pub(crate) fn on_mlx5(
        context: &Arc<Context>,
        shape: &RailShape,
    ) -> Result<Self, ProviderError> {
        Ok(Self::Mlx5(Mlx5Rail::new(context, shape)?))
    }

    /// Returns the name of the RDMA device.
    pub(crate) fn device(&self) -> &str {
        &self.context().info().name
    }

    /// Returns the number of the device's port.
    pub(crate) fn port(&self) -> u8 {
        self.context().port().number
    }

    /// Returns the NUMA node of the NIC, if the system tells it.
    pub(crate) fn numa_node(&self) -> Option<u32> {
        self.context().info().numa_node()
    }

    /// Returns the most bytes of one registration.
    pub(crate) fn most_registered(&self) -> u64 {
        self.context().caps().max_mr_size()
    }

    /// Returns what peers must know of the port.
    pub(crate) fn described(&self, config: &PathConfig) -> Result<HostPort, ProviderError> {
        Ok(HostPort::Rc(PortRecord::of(self.context(), config)?))
    }

    /// Returns the settings of a lane between these two ports, which fit each other.
    pub(crate) fn terms(
        &self,
        own: &HostPort,
        theirs: &HostPort,
        config: &EngineConfig,
    ) -> HostTerms {
        match (self, own, theirs) {
            (Self::Mlx5(rail), HostPort::Rc(own), HostPort::Rc(theirs)) => {
                HostTerms::Rc(RcTerms::new(rail.context(), own, theirs, config))
            }
        }
    }

    /// Returns the reaper of worker `number` of this rail, if the rail has so many workers.
    pub(crate) fn reaper(&self, number: usize) -> Option<HostReaper> {
        match self {
            Self::Mlx5(rail) => rail.reaper(number).map(HostReaper::Mlx5),
        }
    }

    /// Makes this side's end of a pair, whose completions go to worker `number` of this rail. Among the pairs to a peer it has index
    /// `place`.
    pub(crate) fn pair(&self, number: usize, place: u32) -> Result<HostPair, ProviderError> {
        match self {
            Self::Mlx5(rail) => Ok(HostPair::Mlx5(rail.pair(number, place, any_psn())?)),
        }
    }

    /// Registers all of `memory` for this side and for peers.
    pub(crate) fn register(&self, memory: &AnyMemory) -> Result<HostRegistration, ProviderError> {
        match self {
            Self::Mlx5(rail) => Ok(HostRegistration::Mlx5(rail.register(memory)?)),
        }
    }

    /// Makes a key for peers over part of a registration. The registration stays as long as the key exists.
    pub(crate) fn key(
        &self,
        range: &KeyRange,
        access: Access,
        tag: u8,
    ) -> Result<HostKey, ProviderError> {
        match self {
            Self::Mlx5(rail) => Ok(HostKey::Mlx5(rail.key(range, access, tag)?)),
        }
    }

    /// Returns the bytes of memory that queues are made in.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Mlx5(rail) => rail.bytes(),
        }
    }

    fn context(&self) -> &Arc<Context> {
        match self {
            Self::Mlx5(rail) => rail.context(),
        }
    }
}
