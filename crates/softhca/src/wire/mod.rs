//! RoCE: the packet codec, the reliable transport and its carriers.

pub mod capture;
pub mod carrier;
pub mod config;
pub mod endpoint;
pub mod envelope;
pub mod faults;
pub mod for_judges;
pub mod frame;
pub mod headers;
pub mod icrc;
pub mod memory;
mod number_map;
pub mod opcode;
pub mod packet;
pub mod port;
pub mod psn;
pub mod requester;
pub mod responder;
pub mod subnet;
pub mod timer;
pub mod udp;
mod window;

#[cfg(test)]
mod link_tests;
#[cfg(test)]
mod testing;
