//! The sysfs tree in which libibverbs and other tools find the software HCAs of this process.
//!
//! The tree is a real directory, which `SYSFS_PATH` names, since libibverbs and libc walk it with calls that this library cannot take over.
//! Its shape is that of the kernel: class directories hold links to devices below a PCI function. So `realpath` on a class link gives a PCI
//! path.
//!
//! The link of a device in `class/infiniband_verbs` is made last and removed first. libibverbs finds a device by this link. So a program
//! that lists devices meanwhile sees only devices that are whole. The files of `counters` and `hw_counters` and the states of ports are
//! written anew each time this process opens one of them.
//!
//! | file | duty |
//! |---|---|
//! | `tree` | the directory, and the devices in it |
//! | `files`, `cpus` | the files of a device; the processors that one of them names |
//! | `refresh`, `counters` | files that are written anew; which these are, and what they hold |
//! | `place` | the path of the directory |
//! | `identity` | the names, addresses and ids of a device |

mod counters;
mod cpus;
mod error;
mod files;
mod identity;
mod place;
mod refresh;
mod tree;

pub(crate) use counters::changes;
pub use error::SysfsError;
pub(crate) use identity::{GidType, Identity, MAX_PORTS, PortIdentity, port_number};
pub(crate) use place::{new_tree_path, tree_exists};
pub(crate) use refresh::refresh;
pub(crate) use tree::{add_device, remove_device};
