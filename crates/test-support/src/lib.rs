//! What integration tests share.

pub mod etcd;
pub mod limits;
pub mod reference;
