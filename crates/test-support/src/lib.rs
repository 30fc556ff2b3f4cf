//! Code that integration tests of the runtime share. A program that uses it has softhca linked into it. Unit tests of `warpverbs` cannot
//! use it, because cargo would build that library twice.

pub mod abi;
pub mod application;
pub mod bench;
pub mod counts;
pub mod device;
pub mod external;
pub mod fake_cuda;
pub mod fleet;
pub mod fuzzing;
pub mod grid;
pub mod hca;
pub mod kernels;
pub mod log;
pub mod machine;
pub mod moe;
pub mod nic;
pub mod node;
pub mod pair;
pub mod ranks;
pub mod reference;
pub mod ring;
pub mod table;
pub mod words;

pub use test_basics::{etcd, limits, mapped, process, proxy, stopped};
