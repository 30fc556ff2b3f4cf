//! A NIC that is open, with the provider that drives it.

use std::fmt;
use std::sync::Arc;

use crate::provider::ofi::OfiDevice;
use crate::verbs::{Context, OwnPort, PlainContext};

/// An open device of an engine, with the provider that drives it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EngineDevice {
    /// An mlx5 HCA, by DevX: the provider `mlx5`.
    Mlx5(Arc<Context>),
    /// Any NIC with QPs of type RC, by libibverbs alone: the provider `verbs`.
    Verbs(Arc<PlainContext>),
    /// A domain of libfabric: the provider `ofi`.
    Ofi(OfiDevice),
}

impl EngineDevice {
    /// Returns the name that the kernel gives the device, for example `mlx5_0`, or that libfabric gives the domain.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Mlx5(context) => &context.info().name,
            Self::Verbs(context) => &context.own_port().info().name,
            Self::Ofi(device) => device.name(),
        }
    }

    /// Returns the word by which `WARPVERBS_PROVIDER` names the provider.
    #[must_use]
    pub const fn provider(&self) -> &'static str {
        match self {
            Self::Mlx5(_) => "mlx5",
            Self::Verbs(_) => "verbs",
            Self::Ofi(_) => "ofi",
        }
    }

    /// Returns the number of the port, from 1. A domain is one port.
    #[must_use]
    pub fn port(&self) -> u8 {
        self.own_port().map_or(1, |port| port.port().number)
    }

    /// Returns the context of an mlx5 HCA. Returns None for a NIC of another provider.
    #[must_use]
    pub fn context(&self) -> Option<&Arc<Context>> {
        match self {
            Self::Mlx5(context) => Some(context),
            Self::Verbs(_) | Self::Ofi(_) => None,
        }
    }

    /// Returns the domain of libfabric. Returns None for a NIC of another provider.
    #[must_use]
    pub const fn domain(&self) -> Option<&OfiDevice> {
        match self {
            Self::Ofi(device) => Some(device),
            Self::Mlx5(_) | Self::Verbs(_) => None,
        }
    }

    /// Returns the speed of the port in Mbit/s. 0: it is not known.
    #[must_use]
    pub fn speed_mbps(&self) -> u32 {
        match self {
            Self::Mlx5(context) => context.port().speed_mbps,
            Self::Verbs(context) => context.port().speed_mbps,
            Self::Ofi(device) => device.facts().speed_mbps,
        }
    }

    /// Returns whether the device is a software HCA.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        self.own_port().is_some_and(|port| port.info().is_soft())
    }

    /// Returns the CPUs beside the NIC as the kernel lists them, if the system says which.
    pub(crate) fn local_cpus(&self) -> Option<String> {
        match self {
            Self::Mlx5(context) => context.info().local_cpus(),
            Self::Verbs(context) => context.own_port().info().local_cpus(),
            Self::Ofi(device) => device.local_cpus(),
        }
    }

    /// Returns the most bytes of a message and the most local ranges of a WQE, where the provider says less than any engine asks for.
    pub(crate) fn limits(&self) -> Option<DeviceLimits> {
        match self {
            // A lane of libfabric takes any work, and splits it.
            Self::Mlx5(_) | Self::Ofi(_) => None,
            Self::Verbs(context) => Some(DeviceLimits {
                message: context.limits().message,
                ranges: context.limits().ranges,
            }),
        }
    }

    fn own_port(&self) -> Option<&OwnPort> {
        match self {
            Self::Mlx5(context) => Some(context.own_port()),
            Self::Verbs(context) => Some(context.own_port()),
            Self::Ofi(_) => None,
        }
    }
}

impl fmt::Display for EngineDevice {
    /// Writes the device and its provider: `mlx5_0:1 by mlx5`. Of a domain also its fabric, and the library that drives it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, provider) = (self.name(), self.provider());
        match self.domain() {
            Some(domain) => {
                let (named, fabric) = (domain.provider(), domain.fabric());
                let library = domain.library();
                write!(
                    f,
                    "{name} by {provider}:{named} (fabric {fabric}, {library})"
                )
            }
            None => write!(f, "{name}:{} by {provider}", self.port()),
        }
    }
}

/// What a device allows of one WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceLimits {
    /// The most bytes.
    pub(crate) message: u32,
    /// The most local ranges.
    pub(crate) ranges: u32,
}

impl From<Arc<Context>> for EngineDevice {
    fn from(context: Arc<Context>) -> Self {
        Self::Mlx5(context)
    }
}

impl From<Arc<PlainContext>> for EngineDevice {
    fn from(context: Arc<PlainContext>) -> Self {
        Self::Verbs(context)
    }
}

impl From<OfiDevice> for EngineDevice {
    fn from(device: OfiDevice) -> Self {
        Self::Ofi(device)
    }
}
