//! The libc symbols that this library takes over, so that unmodified RDMA libraries find software HCAs.
//!
//! libibverbs and libmlx5 reach the kernel through a dozen libc functions, all of them called through the
//! dynamic symbol table. This module exports functions of the same names. Linked into an executable (rlib),
//! the executable's definitions come first for every library in the process; preloaded (cdylib), the
//! library's do. Either way no library, kernel module or privilege is needed.
//!
//! The functions that the library takes over, and why:
//!
//! | symbols | why |
//! |---|---|
//! | `open*`, `stat*`, `access`, `faccessat`, `euidaccess`, `readlink*`, `getxattr`, `chdir` | `/dev/infiniband/uverbsN`; `/sys/class/infiniband*` lies in our own tree |
//! | `fstat*` | libibverbs wants a character device; the descriptor is a memfd |
//! | `ioctl` | all verbs commands |
//! | `close`, `dup*`, `fcntl` | when the last descriptor of a context is closed, its objects go |
//! | `socket` | `NETLINK_RDMA` is refused: it would list the machine's real devices only |
//! | `fopen*`, `opendir`, `scandir*`, `realpath`, `glob`, `wordexp`, `ftw`, `nftw`, `fts_open` .. | programs that read `/sys/class/infiniband` by a hard-coded path (UCX, ibstat); libc opens files in them past `open` |
//!
//! `mmap` is not among them. The uverbs descriptor is a memfd whose bytes *are* the UAR space, so the kernel itself maps doorbell
//! pages. Code that hooks mmap for its own ends does not matter.
//!
//! These functions run in every process that the library is loaded into: before main, inside malloc, in the child of a vfork, in
//! signal handlers. So until a path or descriptor is known to be ours they allocate nothing and take no lock. They make exactly
//! the system call that the caller asked for. Nothing unwinds out of them.

/// Defines exported C functions: `[names] (arguments) -> result => body;`.
///
/// Variadic functions are defined with their last argument fixed. On x86-64 and AArch64 Linux a variadic integer or pointer
/// travels in the register that a fixed one would. Where the caller passed none, the kernel does not look at it.
macro_rules! symbols {
    ($( [$($name:ident)+] $arguments:tt -> $result:ty => $body:expr; )+) => { $( symbols! {
        // SAFETY: our caller keeps the contract of libc's function of this name, which is that of the body.
        @define [$($name)+] $arguments -> $result, unsafe { $body }
    } )+ };
    (@define [$($name:ident)+] $arguments:tt -> $result:ty, $body:expr) => { $(
        // SAFETY: the name is libc's, and so are signature and meaning.
        // Miri has symbols of its own by these names.
        #[cfg_attr(not(miri), unsafe(no_mangle))]
        #[expect(clippy::allow_attributes, reason = "the compilers of today do not know the lint that newer ones deny")]
        #[allow(unknown_lints, invalid_runtime_symbol_definitions, reason = "stable Rust defines no variadic function")]
        unsafe extern "C" fn $name $arguments -> $result {
            $body
        }
    )+ };
}

/// [`symbols`] whose bodies are safe.
macro_rules! safe_symbols {
    ($( [$($name:ident)+] $arguments:tt -> $result:ty => $body:expr; )+) => {
        $( symbols!(@define [$($name)+] $arguments -> $result, $body); )+
    };
}

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
mod walk;

pub(crate) use fds::{File, insert};
pub(crate) use raw::process_id;
pub(crate) use start::{at_exit, is_forked_child, tree_path};

use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::c_int;

use crate::errno::Errno;

/// Runs the body of a call that is ours and turns its outcome into what C expects. A panic becomes `EIO`.
fn answer(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    // Unwind safety: shared state is behind mutexes that tolerate poisoning.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(Errno(value))) => raw::fail(value),
        Err(_) => raw::fail(libc::EIO),
    }
}
