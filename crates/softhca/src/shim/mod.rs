//! The libc symbols that this library takes over, so that unmodified RDMA libraries find software HCAs.
//!
//! libibverbs and libmlx5 reach the kernel through a dozen libc functions, all of them called through the dynamic symbol table. This module
//! exports functions of the same names. If this crate is linked into an executable (rlib), the executable's definitions come first for
//! every library in the process. If it is preloaded (cdylib), its own definitions come first. In both cases no other library, kernel module
//! or privilege is needed.
//!
//! The functions that the library takes over, and why:
//!
//! | symbols | why |
//! |---|---|
//! | `open*`, `stat*`, `access`, `faccessat`, `euidaccess`, `readlink*`, `getxattr`, `chdir` | `/dev/infiniband/uverbsN`; `/sys/class/infiniband*` lies in the tree of this library |
//! | `fstat*` | libibverbs wants a character device; the descriptor is a memfd |
//! | `ioctl` | all verbs commands |
//! | `close`, `dup*`, `fcntl` | when the last descriptor of a context is closed, its objects go |
//! | `socket` | `NETLINK_RDMA` is refused: it would list the machine's real devices only |
//! | `fopen*`, `opendir`, `scandir*`, `realpath`, `glob`, `wordexp`, `ftw`, `nftw`, `fts_open` .. | programs that read `/sys/class/infiniband` by a hard-coded path (UCX, ibstat); libc opens files in them past `open` |
//!
//! `mmap` is not taken over. The uverbs descriptor is a memfd whose bytes *are* the UAR space, so the kernel itself maps doorbell pages. A
//! program may therefore hook mmap for its own ends.
//!
//! These functions run in every process that loads the library: before main, inside malloc, in the child of a vfork, in signal handlers. So
//! they allocate nothing and take no lock until they know that the path or descriptor belongs to this library. For all other paths and
//! descriptors they make exactly the system call that the caller asked for. None of them unwinds into its caller.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! walk.rs                    `ftw`, `nftw`, `fts_open`: walks of libc
//! stdio.rs                   `fopen`, `opendir`, `realpath` and others that go past `open`
//! descriptor.rs open.rs stat.rs  calls on descriptors;
//!                            on paths; looks at a path without opening it
//! start.rs                   the devices of a preloaded library, when a call looks for them
//! describe.rs pattern.rs tree.rs  functions for programs that know this library;
//!                            `glob`; the path of the sysfs tree, from load time on
//! environment.rs fds.rs next.rs path.rs symbols.rs  devices as the environment asks for them;
//!                            which descriptors and paths are ours; the definitions of
//!                            libc; how exported functions are defined
//! complain.rs raw.rs         lines on stderr; system calls
//! ```

#[macro_use]
mod symbols;

mod complain;
mod describe;
mod descriptor;
mod environment;
mod fds;
mod next;
mod open;
mod path;
mod pattern;
mod raw;
mod start;
mod stat;
mod stdio;
mod tree;
mod walk;

pub(crate) use fds::{File, insert};
pub(crate) use raw::process_id;
pub(crate) use tree::{at_exit, is_forked_child, tree_path};
