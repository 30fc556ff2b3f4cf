//! The places of GPUs and NICs in a machine, as sysfs shows them: PCI tree, NUMA nodes, RDMA devices with their ports.
//!
//! [`Machine::read`] takes the directory that holds `sys`, so that a test can read its own tree. It never fails. A missing file
//! leaves out one fact. A file that cannot hold a fact (endless, no text, a link in a loop) is listed in [`Machine::unread`] with
//! its path. Every file and every directory is read up to a bound.
//!
//! [`Machine::distance`] is the distance of a NIC from a GPU, in the words of NCCL and `nvidia-smi topo`.
//! [`Machine::distance_from_node`] is the distance from the CPUs of a NUMA node. [`Wish::choose`] gives the order in which a rank
//! or an engine should try its ports.
//!
//! ```
//! use warpverbs::topology::{Distance, Machine, PciAddress};
//!
//! let machine = Machine::of_this_process();
//! let [gpu, nic]: [PciAddress; 2] = ["0000:1b:00.0".parse()?, "0000:18:00.0".parse()?];
//! if machine.distance(gpu, nic) == Some(Distance::Pix) {
//!     println!("{gpu} and {nic} are behind one switch");
//! }
//! # Ok::<(), warpverbs::topology::BadAddress>(())
//! ```

mod choice;
mod distance;
mod layers;
mod machine;
mod numa;
mod pci;
mod rdma;
mod reason;
mod sysfs;

pub use choice::{Candidate, Choice, PassedOver, Wish};
pub use distance::Distance;
pub(crate) use layers::{LayerOffer, common_layer, layers_of};
pub use machine::{Machine, gids};
pub use numa::NumaNode;
pub use pci::{BadAddress, PciAddress, PciDevice};
pub use rdma::{GidFact, GidKind, LinkLayer, PortState, RdmaDevice, RdmaPort};
pub use reason::Reason;
pub use sysfs::Unread;
pub(crate) use sysfs::text as sysfs_text;
