//! RoCE: the packet codec, the reliable transport and its carriers.
//!
//! An RC write between processes uses [`requester`], [`udp`] and [`responder`] alone. Other programs send datagrams ([`datagram`]). Linux's
//! Soft-RoCE in a virtual machine is reached by Ethernet frames ([`frames`]).
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! port.rs                    the port of an HCA: its wire and the carrier of its packets
//! config.rs endpoint.rs frames.rs  which carrier;
//!                            QPs, destinations, timers, and the QP that may send next; Ethernet frames as a carrier
//! capture.rs datagram.rs faults/ memory.rs udp.rs  what crossed the wire, in a file;
//!                            UD; packets that get lost or damaged; carriers: in memory, UDP
//! carrier.rs requester.rs responder.rs  what carries packets;
//!                            the two halves of a connected QP
//! frame.rs packet.rs         Ethernet frames; packets in their parts
//! icrc.rs                    the CRC of a packet, and the flow that it covers
//! headers.rs                 the transport headers
//! number_map.rs opcode.rs psn.rs timer.rs window.rs  maps by small numbers;
//!                            opcodes; sequence numbers; when to send again; how much is under way
//! ```

pub mod capture;
pub mod carrier;
pub mod config;
pub mod datagram;
pub mod endpoint;
pub mod faults;
pub mod frame;
pub mod frames;
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
pub mod timer;
pub mod udp;
mod window;

pub use crate::{envelope, subnet};

#[cfg(test)]
mod link_tests;
#[cfg(test)]
mod testing;
