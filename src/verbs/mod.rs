//! RAII over DevX: context, PD, MR, control heap (UMEM), doorbell registers (UAR), CQ, QP.
//!
//! An object keeps everything alive from which it was made, so objects may be dropped in any order.
//!
//! ```text
//! Context <- Pd <- Mr
//!    ^        ^---------------- Qp <S>   (QP, then its CQs, then memory and register)
//!    |<- ControlHeap <- blocks --|
//!    |<- DoorbellRegister -------|
//!    |<- CounterSet -------------|
//!        DoorbellProxy <---------^   (with mailboxes: a thread that rings)
//! ```
//!
//! ```
//! use warpverbs::verbs::{Context, DeviceSelector, Pd, device_list};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let _hca = softhca::Hca::new()?; // where there is no ConnectX
//! let devices = device_list()?;
//! let context = Context::open(&DeviceSelector::Name(devices[0].name.clone()))?;
//! let pd = Pd::new(&context)?;
//! assert_eq!(pd.context().info().name, devices[0].name);
//! # Ok(())
//! # }
//! ```
//!
//! An application that has opened the device itself hands over its context and domain ([`Context::adopt`], [`Pd::adopt`]). It closes them
//! itself when [`adopted`] returns 0 for them.
//!
//! [`QpConfig`] is the shape of a QP, and [`QpPlaces`] the places from which it takes its memory.
//!
//! A device without DevX is a [`PlainContext`], which libibverbs opens alone; objects of it are not those above.
//!
//! `verbs` never calls a GPU and never touches device memory. The control heap lies in a region that is given by its address.
//! [`Qp::write_image`] says what the region's owner must write to it; `verbs` itself fills only host memory. A function that fails takes
//! down everything that it had made. Its error is typed, with opcode, status and syndrome of a refused command. If the HCA refuses to
//! destroy an object, the object's memory is kept for ever, and no other object gets it.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! over.rs plain/     a control heap over a region, in which the HCA is tried by making a QP; devices without DevX and their objects
//! qp/                queue pairs: states, memory, CQs; what this process posts to them itself
//! address.rs         how packets reach the port of a peer
//! mac.rs             the Ethernet address of the next hop
//! memory/            domains, regions and their keys, the control heap
//! mailbox.rs events.rs   the thread that rings for kernels; what an HCA reports by itself
//! context.rs         an open device with all that the runtime needs of it
//! counters.rs uar.rs bond.rs   what the QPs of a context share: a counter set, doorbell registers, what is known of a bond
//! object.rs          an object of the HCA and its memory
//! device/            the list of devices, an open one, its commands, what it says of itself and of its port
//! limits.rs          limits, and the check of a value against them
//! error.rs           all errors
//! rung.rs gid.rs     ways to memory; addresses of ports
//! ```

mod address;
mod bond;
mod context;
mod counters;
mod device;
mod error;
mod events;
mod gid;
mod limits;
mod mac;
mod mailbox;
mod memory;
mod object;
mod over;
mod plain;
mod qp;
mod rung;
mod uar;

pub use crate::memheap::{HeapError, HeapStats};
pub use crate::sys::{LoadError, MissingFunction};
pub use address::{AddressVector, GlobalRoute, InfinibandAddress, RoceAddress};
pub use context::Context;
pub use counters::{CounterSet, PacketCounts};
pub use device::adopt::adopted;
pub use device::caps::{Caps, DataOrder, LagMode};
pub use device::gids::GidEntry;
pub use device::list::{DeviceInfo, DeviceSelector, device_list, missing_functions};
pub(crate) use device::list::{check_mlx5, plain_device_list};
pub(crate) use device::own_port::OwnPort;
pub(crate) use device::port::FULL_MEMBER;
pub use device::port::{LinkLayer, Mtu, PortInfo};
pub use device::traffic_class::{TrafficClass, TrafficClassFrom};
pub use error::{CommandError, VerbsError};
pub use events::{Events, HcaEvent};
pub use gid::Gid;
pub use limits::HEAP_ALIGN;
pub(crate) use limits::UNICAST_LIDS;
pub use mailbox::{DoorbellProxy, MAILBOX_BYTES};
pub use memory::export::{Dmabuf, Export};
pub use memory::heap::{ControlBlock, ControlHeap, HeapRegion};
pub use memory::mr::{Access, Mr};
pub use memory::pd::Pd;
pub(crate) use memory::range_key::{KeyRange, RangeKey};
pub use memory::sink::AtomicSink;
pub use mlx5_prm::qp::QpState;
pub use mlx5_prm::qpc::{Ads, Qpc};
pub(crate) use plain::channel::Channel;
pub use plain::context::PlainContext;
pub(crate) use plain::cq::{PlainCompletion, PlainCq, PlainFailure};
pub(crate) use plain::domain::PlainPd;
pub(crate) use plain::qp::{PlainQp, PlainQpShape, PlainRefusal};
pub(crate) use plain::region::{PlainMr, PlainRange};
pub(crate) use plain::requests::{PlainPiece, PlainRequest, PlainVerb, RequestList};
pub use qp::attr::{PathAttr, SendAttr};
pub use qp::blocks::QpPlaces;
pub use qp::image::{ImageAttr, ImagePart, QpLayout, RecvLayout};
pub(crate) use qp::posting::PostedCounts;
pub(crate) use qp::probe::Probe;
pub use qp::shape::{CqKind, Doorbell, QpConfig, Queues, Sharing};
pub(crate) use qp::shared_cq::{Queue, SharedCq};
pub use qp::states::{Init, Qp, QpStatus, Reset, Rtr, Rts, State, TransitionError};
pub use rung::Rung;
pub use uar::DoorbellRegister;
