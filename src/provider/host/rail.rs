//! A NIC of an engine.

use super::device::EngineDevice;
use super::memory::{HostKey, HostRegistration};
use super::offer::HostPort;
use super::pair::{HostPair, HostTerms};
use super::reaper::HostReaper;
use crate::config::{EngineConfig, PathConfig};
use crate::fabric::{PortRecord, any_psn};
use crate::provider::mlx5::Mlx5Rail;
use crate::provider::ofi::OfiRail;
use crate::provider::rc::RcTerms;
use crate::provider::shape::RailShape;
use crate::provider::verbs::VerbsRail;
use crate::provider::{AnyMemory, ProviderError};
use crate::verbs::{Access, KeyRange};

/// How peers name memory of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By its address, and a grant by addresses of its own.
    Own,
    /// By its address, also that of a grant.
    Address,
    /// By the offset in its registration. A grant is one.
    Offset,
}

impl Naming {
    /// Returns what a request names for the first byte of a region. None: the address of the region.
    pub(crate) fn of_region(self) -> Option<u64> {
        (self == Self::Offset).then_some(0)
    }

    /// Returns what a request names for the first byte of a grant of memory at `address`. None: the address of the grant.
    pub(crate) fn of_grant(self, address: u64) -> Option<u64> {
        match self {
            Self::Own => None,
            Self::Address => Some(address),
            Self::Offset => Some(0),
        }
    }
}

/// What an engine has on one NIC.
#[derive(Debug)]
pub(crate) enum HostRail {
    /// An mlx5 HCA, by DevX.
    Mlx5(Mlx5Rail),
    /// Another NIC, by libibverbs.
    Verbs(VerbsRail),
    /// A domain of libfabric.
    Ofi(OfiRail),
}

impl HostRail {
    /// Makes a rail on a device.
    pub(crate) fn new(device: &EngineDevice, shape: &RailShape) -> Result<Self, ProviderError> {
        match device {
            EngineDevice::Mlx5(context) => Ok(Self::Mlx5(Mlx5Rail::new(context, shape)?)),
            EngineDevice::Verbs(context) => Ok(Self::Verbs(VerbsRail::new(context, shape)?)),
            EngineDevice::Ofi(device) => Ok(Self::Ofi(OfiRail::new(device, shape)?)),
        }
    }

    /// Returns the name of the RDMA device, or of the domain.
    pub(crate) fn device(&self) -> &str {
        match self {
            Self::Mlx5(rail) => &rail.context().info().name,
            Self::Verbs(rail) => &rail.context().own_port().info().name,
            Self::Ofi(rail) => rail.name(),
        }
    }

    /// Returns the number of the device's port. A domain is one port.
    pub(crate) fn port(&self) -> u8 {
        match self {
            Self::Mlx5(rail) => rail.context().port().number,
            Self::Verbs(rail) => rail.context().own_port().port().number,
            Self::Ofi(_) => 1,
        }
    }

    /// Returns the NUMA node of the NIC, if the system tells it.
    pub(crate) fn numa_node(&self) -> Option<u32> {
        match self {
            Self::Mlx5(rail) => rail.context().info().numa_node(),
            Self::Verbs(rail) => rail.context().own_port().info().numa_node(),
            Self::Ofi(rail) => rail.numa_node(),
        }
    }

    /// Returns the most bytes of one registration. Libfabric does not say how many a domain takes.
    pub(crate) fn most_registered(&self) -> u64 {
        match self {
            Self::Mlx5(rail) => rail.context().caps().max_mr_size(),
            Self::Verbs(rail) => rail.context().limits().region,
            Self::Ofi(_) => u64::MAX,
        }
    }

    /// Returns how often the provider has refused an operation for now, which was tried again.
    pub(crate) fn refusals(&self) -> u64 {
        match self {
            Self::Mlx5(_) | Self::Verbs(_) => 0,
            Self::Ofi(rail) => rail.refusals(),
        }
    }

    /// Returns on what a worker sleeps that has a connection and nothing to do, in words.
    pub(crate) fn sleeps_on(&self) -> &'static str {
        match self {
            Self::Mlx5(_) | Self::Verbs(_) => "the descriptor of the NIC's events",
            Self::Ofi(rail) => rail.sleeps_on(),
        }
    }

    /// Returns how peers name memory of the rail.
    pub(crate) fn naming(&self) -> Naming {
        match self {
            Self::Mlx5(_) | Self::Verbs(_) => Naming::Own,
            Self::Ofi(rail) if rail.facts().by_address() => Naming::Address,
            Self::Ofi(_) => Naming::Offset,
        }
    }

    /// Returns what peers must know of the port.
    pub(crate) fn described(&self, config: &PathConfig) -> Result<HostPort, ProviderError> {
        let own = match self {
            Self::Mlx5(rail) => rail.context().own_port(),
            Self::Verbs(rail) => rail.context().own_port(),
            Self::Ofi(rail) => return Ok(HostPort::Ofi(rail.port())),
        };
        Ok(HostPort::Rc(PortRecord::of(own, config)?))
    }

    /// Returns the settings of a lane between these two ports, which fit each other.
    pub(crate) fn terms(
        &self,
        own: &HostPort,
        theirs: &HostPort,
        config: &EngineConfig,
    ) -> HostTerms {
        let rc = |port, own, theirs| HostTerms::Rc(RcTerms::new(port, own, theirs, config));
        match (self, own, theirs) {
            (Self::Mlx5(rail), HostPort::Rc(own), HostPort::Rc(theirs)) => {
                rc(rail.context().own_port(), own, theirs)
            }
            (Self::Verbs(rail), HostPort::Rc(own), HostPort::Rc(theirs)) => {
                rc(rail.context().own_port(), own, theirs)
            }
            // Ports of different wires do not fit each other.
            _ => HostTerms::Ofi,
        }
    }

    /// Returns the reaper of worker `number` of this rail, if the rail has so many workers.
    pub(crate) fn reaper(&self, number: usize) -> Option<HostReaper> {
        match self {
            Self::Mlx5(rail) => rail.reaper(number).map(HostReaper::Mlx5),
            Self::Verbs(rail) => rail.reaper(number).map(HostReaper::Verbs),
            Self::Ofi(rail) => rail.reaper(number).map(HostReaper::Ofi),
        }
    }

    /// Makes this side's end of a pair, whose completions go to worker `number` of this rail. Among the pairs to a peer it has index
    /// `place`.
    pub(crate) fn pair(&self, number: usize, place: u32) -> Result<HostPair, ProviderError> {
        match self {
            Self::Mlx5(rail) => Ok(HostPair::Mlx5(rail.pair(number, place, any_psn())?)),
            Self::Verbs(rail) => Ok(HostPair::Verbs(rail.pair(number, any_psn())?)),
            Self::Ofi(rail) => Ok(HostPair::Ofi(Box::new(rail.pair(number)?))),
        }
    }

    /// Registers all of `memory` for this side and for peers.
    pub(crate) fn register(&self, memory: &AnyMemory) -> Result<HostRegistration, ProviderError> {
        match self {
            Self::Mlx5(rail) => Ok(HostRegistration::Mlx5(rail.register(memory)?)),
            Self::Verbs(rail) => Ok(HostRegistration::Verbs(rail.register(memory)?)),
            Self::Ofi(rail) => Ok(HostRegistration::Ofi(rail.register(memory)?)),
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
            Self::Ofi(rail) => Ok(HostKey::Ofi(rail.key(range, access)?)),
        }
    }

    /// Returns the bytes of memory that queues are made in. Libfabric does not say how much it takes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Mlx5(rail) => rail.bytes(),
            // The driver of the NIC, or libfabric, takes the memory.
            Self::Verbs(_) | Self::Ofi(_) => 0,
        }
    }
}
