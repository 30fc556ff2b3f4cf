//! Execution outside of this library: an executor runs the WQEs, and softhca keeps commands, states and keys.
//!
//! An HCA with [`Execution::External`] never touches the memory that programs register. It takes regions by their address alone, so they
//! may be memory that only a GPU reaches. All that the executor needs of QPs, CQs and keys stands in tables of its own memory ([`HcaQp`],
//! [`HcaCq`], [`HcaKey`]). At the end of each command softhca writes the changed entries to these tables, before the command returns. The
//! executor is a kernel (crate `gpuhca`), attached by [`softhca_attach`]. Crate `gpuhca-abi` has the definitions that both share.
//!
//! # How an entry changes
//!
//! An entry begins with a head word: a life and a state, or 0 for no entry. A kernel reads the head first and uses the rest only while the
//! head is not 0. A change of an entry takes three steps, since softhca must not write the rest while a kernel may use it:
//!
//! 1. softhca writes 0 into the heads of all entries that end or change.
//! 2. softhca raises the generation word and waits for the answer of the executor ([`Executor::settle`]). The answer says that each of its
//!    blocks has finished the pass in which it may have read an older head.
//! 3. softhca writes the new entries, heads last.
//!
//! So `DESTROY_MKEY`, `2RST`, `2ERR` and the other commands that end an object return when nothing uses the object any more, as with a
//! ConnectX. An executor keeps data of a QP or CQ between two passes ([`HcaQpProgress`], [`HcaCqProgress`]). These carry the life that they
//! belong to; a reset begins a new life.
//!
//! # Doorbells
//!
//! Each UAR page has a twin in the executor's memory with the registers at the same places. The page holds the twin's address at [`TWIN`],
//! below the registers. `map_mmio` of the executor's devices reads that address, and kernels then ring the twin itself. Doorbells that a
//! host rings in the page (probes, mailboxes) are carried over to the twin by the engine thread.
//!
//! # What external execution does not do
//!
//! - It runs only RC QPs whose peers are external HCAs of this process, with direct keys. SRQs, datagrams, XRC, windows and indirect keys
//!   are refused or grant nothing.
//! - It has no events of CQs, and no findings that the checker makes by looking into rings.

mod attach;

pub use super::executor::entries::{
    HcaControl, HcaCq, HcaCqProgress, HcaKey, HcaQp, HcaQpProgress,
};
pub use super::executor::execution::{Execution, UnknownExecution};
pub use attach::{softhca_attach, softhca_detach};
pub use gpuhca_abi::{Executor, TWIN};
