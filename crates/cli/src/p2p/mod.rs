//! Files between two machines, copied by the host engine: `wv p2p serve | put | get`.
//!
//! A server has a directory and two addresses. One is for requests, which are lines of JSON over TCP. The other one is that of its engine,
//! which answers name. The bytes of files go by RDMA alone, through a window of a few slots in the server's memory. In a put the client
//! writes a slot, then says so. In a get the server fills a slot, says so, and the client reads it. Both ends sum the bytes that they see,
//! and a file gets its name only if the sums are equal. With a key both addresses take only clients that have it, and requests are
//! encrypted. Bytes that go by RDMA are not encrypted.

mod client;
mod command;
mod door;
mod error;
mod figures;
mod files;
mod requests;
mod server;
mod sum;
mod window;

pub use command::{P2pCommand, run};
