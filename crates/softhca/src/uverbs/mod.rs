//! The kernel's side of `/dev/infiniband/uverbsN`: it handles ioctls on such a descriptor.
//!
//! [`open()`] opens a descriptor. Behind the descriptor is a `Context`, the counterpart of the kernel's `ib_uverbs_file`. A `Context` has
//! one context of the device model, and the handles by which user space names its objects. `frame` checks what all ioctls have in common;
//! the modules above it hold the methods, by kind of object.
//!
//! Queues made by verbs are like those that DevX makes: their memory is pinned (`pinned`), and the commands are the same.
//!
//! A call that needs a missing feature is refused as a kernel without the feature refuses it. A method that does not exist gives
//! `EPROTONOSUPPORT`, a command of the older interface `EOPNOTSUPP`.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! open.rs                    opens descriptors, and hands their ioctls to the methods
//! write.rs                   commands of the older `write()` interface, which travel inside an ioctl
//! qp_modify.rs               transitions of queue pairs
//! ah.rs cq.rs device.rs devx.rs events.rs objects.rs qp.rs qp_query.rs regions.rs srq.rs uar.rs xrcd.rs  methods: address handles;
//!                            completion queues; context, device, port, GIDs; DevX commands, objects and
//!                            user memory; event descriptors and subscriptions; PDs; queue pairs; memory regions and windows;
//!                            shared receive queues, basic and of XRC domains; doorbell pages; XRC domains
//! frame.rs                   an ioctl: its header, its attributes, and the rules for all methods
//! context.rs                 the object behind a descriptor
//! handles.rs                 the numbers by which user space names its objects
//! queues.rs                  what is kept of queues made by verbs
//! listeners.rs memory.rs pinned.rs subscriptions.rs  events of verbs;
//!                            a program's word about its memory; memory of queues; events of DevX
//! clock.rs event_queue.rs qp_rules.rs structs.rs user.rs  the clock page;
//!                            descriptors that events are read from; which attributes a transition takes; structs of
//!                            the kernel; memory of the caller
//! ```

mod ah;
mod clock;
mod context;
mod cq;
mod device;
mod devx;
mod event_queue;
mod events;
mod frame;
mod handles;
mod listeners;
mod memory;
mod objects;
mod open;
mod pinned;
mod qp;
mod qp_modify;
mod qp_query;
mod qp_rules;
mod queues;
mod regions;
mod srq;
mod structs;
mod subscriptions;
mod uar;
mod user;
mod write;
mod xrcd;

pub(crate) use open::{RDMA_VERBS_IOCTL, character_device, open};
