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
//! | [`transport`] | the boundary between engine and wire, below both |
//! | [`address`], [`envelope`], `interface`, [`link`], [`partition`], [`profile`], [`subnet`] | addresses of HCAs, the headers that name them, the interface that has one, the link layer of their port, its partitions, the card, IPv6 |
//!
//! Some objects and operations serve other programs than Warpverbs alone: SRQs, XRC, datagrams, memory windows, UMR, Ethernet frames. They
//! have files of their own, which the pages of `device`, `engine` and `wire` name. An RC write uses none of these files.

pub mod address;
mod clock;
pub mod device;
pub mod engine;
pub mod envelope;
mod errno;
mod interface;
pub mod link;
mod number;
pub mod partition;
pub mod profile;
mod shim;
pub mod subnet;
mod sysfs;
pub mod transport;
mod uverbs;
pub mod wire;

pub use device::{
    CheckConfig, Counters, DeviceError, FailCommand, FaultSpec, Finding, Hca, HcaConfig, HcaError,
    ObjectCounts, PortCounters,
};
pub use sysfs::SysfsError;
