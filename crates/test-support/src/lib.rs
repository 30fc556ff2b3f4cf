//! What integration tests share. Unit tests of `warpverbs` do without: cargo would build that library twice.

pub mod abi;
pub mod etcd;
pub mod kernels;
pub mod limits;
pub mod reference;
