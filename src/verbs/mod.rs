//! RAII over DevX: context, PD, MR, control heap (UMEM), doorbell registers (UAR), CQ, QP.
//!
//! Ownership runs upwards: an object keeps alive whatever it was made from, so dropping in any order is right.
//!
//! ```text
//! Context <- Pd <- Mr
//!    ^        ^---------------- Qp <S>   (QP, then its CQ, then memory and register)
//!    |<- ControlHeap <- blocks --^
//!    |<- DoorbellRegister -------^
//! ```
//!
//! `verbs` never calls a GPU and never touches the memory that it registers: the control heap lies in a region given by its
//! address, and [`QpLayout::image`] says what the region's owner must write there. Everything that fails takes down what it
//! had made; the error is typed, with opcode, status and syndrome where a command was refused. If the HCA will not destroy
//! an object, the memory behind it is kept for ever instead of being given to the next.

mod caps;
mod command;
mod context;
mod cq;
mod device;
mod error;
mod gid;
mod heap;
mod image;
mod mr;
mod path;
mod pd;
mod port;
mod qp;
mod qp_attr;
mod qp_config;
mod uar;

pub use crate::memheap::HeapStats;
pub use caps::Caps;
pub use context::Context;
pub use device::{DeviceInfo, DeviceSelector, device_list};
pub use error::{CommandError, VerbsError};
pub use gid::{Gid, GidEntry};
pub use heap::{ControlBlock, ControlHeap, HEAP_ALIGN};
pub use image::{ImageAttr, ImagePart, QpLayout};
pub use mlx5_prm::qp::QpState;
pub use mr::{Access, Mr};
pub use pd::Pd;
pub use port::{Mtu, PortInfo};
pub use qp::{Init, Qp, QpStatus, Reset, Rtr, Rts, State, TransitionError};
pub use qp_attr::{PathAttr, SendAttr};
pub use qp_config::{CqKind, Doorbell, QpConfig, Queues, Sharing};
pub use uar::DoorbellRegister;
