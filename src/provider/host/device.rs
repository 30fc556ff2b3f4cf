//! A NIC that is open, with the provider that drives it.

use std::sync::Arc;

use crate::verbs::{Context, DeviceInfo, OwnPort, PlainContext};

/// An open device of an engine, with the provider that drives it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EngineDevice {
    /// An mlx5 HCA, by DevX: the provider `mlx5`.
    Mlx5(Arc<Context>),
    /// Any NIC with QPs of type RC, by libibverbs alone: the provider `verbs`.
    Verbs(Arc<PlainContext>),
}

impl EngineDevice {
    /// Returns the name that the kernel gives the device, for example `mlx5_0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.own_port().info().name
    }

    /// Returns the word by which `WARPVERBS_PROVIDER` names the provider.
    #[must_use]
    pub const fn provider(&self) -> &'static str {
        match self {
            Self::Mlx5(_) => "mlx5",
            Self::Verbs(_) => "verbs",
        }
    }

    /// Returns what the list of devices says about the device.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        self.own_port().info()
    }

    /// Returns the number of the port, from 1.
    #[must_use]
    pub fn port(&self) -> u8 {
        self.own_port().port().number
    }

    /// Returns the context of an mlx5 HCA. Returns None for a NIC of another provider.
    #[must_use]
    pub fn context(&self) -> Option<&Arc<Context>> {
        match self {
            Self::Mlx5(context) => Some(context),
            Self::Verbs(_) => None,
        }
    }

    /// Returns the most bytes of a message and the most local ranges of a WQE, where the provider says less than any engine asks for.
    pub(crate) fn limits(&self) -> Option<DeviceLimits> {
        match self {
            Self::Mlx5(_) => None,
            Self::Verbs(context) => Some(DeviceLimits {
                message: context.limits().message,
                ranges: context.limits().ranges,
            }),
        }
    }

    fn own_port(&self) -> &OwnPort {
        match self {
            Self::Mlx5(context) => context.own_port(),
            Self::Verbs(context) => context.own_port(),
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
