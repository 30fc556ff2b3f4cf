//! Code that tests of every package share. It uses no other package of the project. So a test of `rendezvous` needs no runtime, and a
//! program that only waits has no software HCA linked into it, whose `open` would replace that of the C library.

pub mod addresses;
pub mod certificates;
pub mod etcd;
pub mod ipv6;
pub mod limits;
pub mod mapped;
pub mod process;
pub mod proxy;
pub mod pyverbs;
pub mod stopped;
