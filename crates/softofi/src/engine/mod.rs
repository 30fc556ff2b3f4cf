//! The work of endpoints: operations become parts, parts travel, land and are told of.
//!
//! An endpoint has a socket of its own, whose name follows from its address. An initiator connects to each peer once. It cuts an operation
//! into parts and sends each at its own time, in any order, with the bytes that its memory has then. The target keeps each part for a while and
//! lets it land; a part may stay on the way also when its initiator is gone. The target's close drops what has not landed. The seed decides
//! all of this, together with numbers of endpoints and operations, and not with times or addresses.
//!
//! # Rooms
//!
//! ```text
//! work.rs nic.rs          an endpoint at work; the thread of a device, which turns it
//! sender.rs receiver.rs   the initiator's side; the target's side
//! peer.rs                 what an initiator has of one peer
//! operation.rs link.rs    an operation in parts; a connection
//! frame.rs contexts.rs    what travels; which contexts are in use
//! memory.rs timer.rs      copies of the program's memory; when there is work again
//! address.rs dice.rs      addresses of 32 bytes; what is random
//! ```

mod address;
pub(crate) mod contexts;
mod dice;
mod frame;
mod link;
mod memory;
mod nic;
mod operation;
mod peer;
mod receiver;
mod sender;
mod timer;
mod work;

pub(crate) use address::{ADDRESS_BYTES, Address};
pub(crate) use memory::read;
pub(crate) use nic::Nic;
pub(crate) use operation::{FarSpan, Kind, Level, Order, Span, Told};
pub(crate) use work::Work;
