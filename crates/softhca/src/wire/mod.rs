//! RoCEv2: the packet codec, the reliable transport and its UDP carrier.

pub mod headers;
pub mod icrc;
pub mod opcode;
pub mod packet;
pub mod psn;
pub mod requester;
pub mod responder;
pub mod timer;

#[cfg(test)]
mod link_tests;
#[cfg(test)]
mod testing;
