//! RAII over DevX: context, PD, MR, control heap (UMEM), doorbell registers (UAR), CQ, QP.
//!
//! Ownership runs upwards: an object keeps alive whatever it was made from, so dropping in any order is right.
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
//! An application that has opened the device itself hands over its context and domain ([`Context::adopt`], [`Pd::adopt`]). It
//! closes them itself when [`adopted`] counts them no more.
//!
//! What a QP is like, [`QpConfig`] says; where it takes its memory from, [`QpPlaces`].
//!
//! `verbs` never calls a GPU and never touches device memory. The control heap lies in a region given by its address.
//! [`Qp::write_image`] says what the region's owner must write to it; `verbs` itself fills only host memory. A function that
//! fails takes down all that it had made; the error is typed, with opcode, status and syndrome where a command was refused. If
//! the HCA will not destroy an object, the memory behind it is kept for ever instead of being given to the next.

mod address;
mod adopt;
mod blocks;
mod bond;
mod caps;
mod command;
mod context;
mod counters;
mod cq;
mod device;
mod error;
mod events;
mod export;
mod gid;
mod heap;
mod host_queue;
mod image;
mod mailbox;
mod mr;
mod path;
mod pd;
mod port;
mod probe;
mod qp;
mod qp_attr;
mod qp_config;
mod qp_create;
mod range_key;

mod shared_cq;
mod sink;
mod traffic_class;
mod uar;
mod umem;

pub use crate::memheap::{HeapError, HeapStats};
pub use crate::sys::{LoadError, MissingFunction};
pub(crate) use address::UNICAST_LIDS;
pub use address::{AddressVector, GlobalRoute, InfinibandAddress, RoceAddress};
pub use adopt::adopted;
pub use blocks::QpPlaces;
pub use caps::{Caps, DataOrder, LagMode};
pub use context::Context;
pub use counters::{CounterSet, PacketCounts};
pub use device::{DeviceInfo, DeviceSelector, device_list, missing_functions};
pub use error::{CommandError, VerbsError};
pub use events::{Events, HcaEvent};
pub use export::{Dmabuf, Export, Rung};
pub use gid::{Gid, GidEntry};
pub use heap::{ControlBlock, ControlHeap, HEAP_ALIGN, HeapRegion};
pub(crate) use host_queue::PostedCounts;
pub use image::{ImageAttr, ImagePart, QpLayout, RecvLayout};
pub use mailbox::{DoorbellProxy, MAILBOX_BYTES};
pub use mlx5_prm::qp::QpState;
pub use mlx5_prm::qpc::{Ads, Qpc};
pub use mr::{Access, Mr};
pub use pd::Pd;
pub(crate) use port::FULL_MEMBER;
pub use port::{LinkLayer, Mtu, PortInfo};
pub(crate) use probe::Probe;
pub use qp::{Init, Qp, QpStatus, Reset, Rtr, Rts, State, TransitionError};
pub use qp_attr::{PathAttr, SendAttr};
pub use qp_config::{CqKind, Doorbell, QpConfig, Queues, Sharing};
pub(crate) use range_key::{KeyRange, RangeKey};
pub(crate) use shared_cq::{Queue, SharedCq};
pub use sink::AtomicSink;
pub use traffic_class::{TrafficClass, TrafficClassFrom};
pub use uar::DoorbellRegister;
