//! Memory of this process that lies in files which may become shorter.
//!
//! Whoever may write a file can truncate it, also while a program has it mapped. Then the pages after its new end are gone, and the
//! next load or store there ends the process with SIGBUS. A library that copies such memory for others is to get an error instead.
//!
//! [`Mappings`] find such memory. [`copy`] lets the kernel copy: `process_vm_readv` and `process_vm_writev` on
//! this process itself say EFAULT where a page is gone. That costs a system call for each copy, so all other memory is to be
//! copied as ever.
//!
//! A handler of SIGBUS would cost nothing until a page is gone. But there is one for the whole process, for all of its threads:
//! programs, Python and sanitizers install theirs before or after ours. To look at a page first is no help either: the file may
//! be truncated between the look and the copy.

mod copies;
mod mappings;
mod maps;

pub use copies::{Gone, copy};
pub use mappings::Mappings;
pub use maps::MapLine;
