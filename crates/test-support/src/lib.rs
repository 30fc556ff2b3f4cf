//! What integration tests of the runtime share. A program that uses it has softhca linked into it.

pub mod node;
pub mod ranks;

pub use test_basics::{etcd, limits};
