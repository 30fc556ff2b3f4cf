//! A software mlx5 HCA below unmodified libibverbs and libmlx5.

pub mod address;
pub mod device;
pub mod engine;
mod errno;
pub mod link;
pub mod profile;
mod shim;
mod sysfs;
mod uverbs;
pub mod wire;

pub use device::{
    CheckConfig, Counters, DeviceError, FailCommand, FaultSpec, Finding, Hca, HcaConfig, HcaError,
    ObjectCounts,
};
pub use sysfs::SysfsError;
