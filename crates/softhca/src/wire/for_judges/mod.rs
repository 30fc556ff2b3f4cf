//! What packets between two runtimes of Warpverbs never need: datagrams (UD), and the carrier that sends whole Ethernet frames.
//!
//! Programs of others send datagrams, and Linux's Soft-RoCE in a virtual machine is reached by frames. An RC write between
//! processes goes by [`requester`](super::requester), [`udp`](super::udp) and [`responder`](super::responder) alone.

pub mod datagram;
pub mod frames;
