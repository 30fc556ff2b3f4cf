//! A NIC of an engine.

use super::device::EngineDevice;
use super::memory::{HostKey, HostRegistration};
use super::offer::HostPort;
use super::pair::{HostPair, HostTerms};
use super::reaper::HostReaper;
use crate::config::{EngineConfig, PathConfig};
use crate::fabric::{PortRecord, any_psn};
use crate::provider::mlx5::Mlx5Rail;
use crate::provider::rc::RcTerms;
use crate::provider::shape::RailShape;
use crate::provider::verbs::VerbsRail;
use crate::provider::{AnyMemory, ProviderError};
use crate::verbs::{Access, KeyRange, OwnPort};

/// What an engine has on one NIC.
#[derive(Debug)]
pub(crate) enum HostRail {
    /// An mlx5 HCA, by DevX.
    Mlx5(Mlx5Rail),
    /// Another NIC, by libibverbs.
    Verbs(VerbsRail),
}

impl HostRail {
    /// Makes a rail on a device.
    pub(crate) fn new(device: &EngineDevice, shape: &RailShape) -> Result<Self, ProviderError> {
        match device {
            EngineDevice::Mlx5(context) => Ok(Self::Mlx5(Mlx5Rail::new(context, shape)?)),
            EngineDevice::Verbs(context) => Ok(Self::Verbs(VerbsRail::new(context, shape)?)),
        }
    }

    /// Returns the name of the RDMA device.
    pub(crate) fn device(&self) -> &str {
        &self.own_port().info().name
    }

    /// Returns the number of the device's port.
    pub(crate) fn port(&self) -> u8 {
        self.own_port().port().number
    }

    /// Returns the NUMA node of the NIC, if the system tells it.
    pub(crate) fn numa_node(&self) -> Option<u32> {
        self.own_port().info().numa_node()
    }

    /// Returns the most bytes of one registration.
    pub(crate) fn most_registered(&self) -> u64 {
        match self {
            Self::Mlx5(rail) => rail.context().caps().max_mr_size(),
            Self::Verbs(rail) => rail.context().limits().region,
        }
    }

    /// Returns what peers must know of the port.
    pub(crate) fn described(&self, config: &PathConfig) -> Result<HostPort, ProviderError> {
        Ok(HostPort::Rc(PortRecord::of(self.own_port(), config)?))
    }

    /// Returns the settings of a lane between these two ports, which fit each other.
    pub(crate) fn terms(
        &self,
        own: &HostPort,
        theirs: &HostPort,
        config: &EngineConfig,
    ) -> HostTerms {
        let (HostPort::Rc(own), HostPort::Rc(theirs)) = (own, theirs);
        HostTerms::Rc(RcTerms::new(self.own_port(), own, theirs, config))
    }

    /// Returns the reaper of worker `number` of this rail, if the rail has so many workers.
    pub(crate) fn reaper(&self, number: usize) -> Option<HostReaper> {
        match self {
            Self::Mlx5(rail) => rail.reaper(number).map(HostReaper::Mlx5),
            Self::Verbs(rail) => rail.reaper(number).map(HostReaper::Verbs),
        }
    }

    /// Makes this side's end of a pair, whose completions go to worker `number` of this rail. Among the pairs to a peer it has index
    /// `place`.
    pub(crate) fn pair(&self, number: usize, place: u32) -> Result<HostPair, ProviderError> {
        match self {
            Self::Mlx5(rail) => Ok(HostPair::Mlx5(rail.pair(number, place, any_psn())?)),
            Self::Verbs(rail) => Ok(HostPair::Verbs(rail.pair(number, any_psn())?)),
        }
    }

    /// Registers all of `memory` for this side and for peers.
    pub(crate) fn register(&self, memory: &AnyMemory) -> Result<HostRegistration, ProviderError> {
        match self {
            Self::Mlx5(rail) => Ok(HostRegistration::Mlx5(rail.register(memory)?)),
            Self::Verbs(rail) => Ok(HostRegistration::Verbs(rail.register(memory)?)),
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
            Self::Verbs(rail) => Ok(HostKey::Verbs(rail.key(range, access)?)),
        }
    }

    /// Returns the bytes of memory that queues are made in.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Mlx5(rail) => rail.bytes(),
            // The driver of the NIC takes the memory.
            Self::Verbs(_) => 0,
        }
    }

    fn own_port(&self) -> &OwnPort {
        match self {
            Self::Mlx5(rail) => rail.context().own_port(),
            Self::Verbs(rail) => rail.context().own_port(),
        }
    }
}
