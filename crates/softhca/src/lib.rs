//! A software mlx5 HCA below unmodified libibverbs and libmlx5.
//!
//! From a program down to the wire:
//!
//! | module | what it is |
//! |---|---|
//! | `shim` | symbols of libc, so that libibverbs meets the HCA before the kernel |
//! | `sysfs` | the tree in which libibverbs finds `mlx5_0` |
//! | `uverbs` | the kernel's side of a verbs descriptor: ioctls |
//! | [`device`] | the device model: objects, the commands that make them, memory and keys |
//! | [`engine`] | what an HCA does by itself: from a doorbell to a completion; begin here to follow a WQE |
//! | [`wire`] | RoCE: packets, the reliable transport, carriers |
//! | [`address`], `interface`, [`link`], [`partition`], [`profile`] | addresses of HCAs, the interface that has one, the link layer of their port, its partitions, the card |
//!
//! Some objects and operations serve other programs than Warpverbs alone: SRQs, XRC, datagrams, memory windows, UMR, Ethernet
//! frames. They stand in the folders `for_judges` of `device`, `engine` and `wire`; an RC write meets none of them.

pub mod address;
pub mod device;
pub mod engine;
mod errno;
mod interface;
pub mod link;
mod number;
pub mod partition;
pub mod profile;
mod shim;
mod sysfs;
mod uverbs;
pub mod wire;

pub use device::{
    CheckConfig, Counters, DeviceError, FailCommand, FaultSpec, Finding, Hca, HcaConfig, HcaError,
    ObjectCounts, PortCounters,
};
pub use sysfs::SysfsError;
