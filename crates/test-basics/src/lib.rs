//! What tests of every package share. It uses no other package, so a test of `rendezvous` needs no runtime. Nor does a program that
//! only waits have a software HCA linked into it, whose `open` would stand in for that of the C library.

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
