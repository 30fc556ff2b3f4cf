//! RoCEv2: the packet codec, the reliable transport and its UDP carrier.

pub mod endpoint;
pub mod headers;
pub mod icrc;
mod number_map;
pub mod opcode;
pub mod packet;
pub mod port;
pub mod psn;
pub mod requester;
pub mod responder;
pub mod timer;
pub mod udp;
mod window;

#[cfg(test)]
mod link_tests;
#[cfg(test)]
mod testing;
