//! Where ranks find each other: a small map of keys to bytes that all of them can reach.
//!
//! A store keeps a few records per rank. Ranks ask it rarely: at bring-up, a few times in each lease, and when membership changes. No
//! message between ranks goes through it. There are three kinds of stores: memory ([`MemoryStore`], ranks are threads), a directory
//! ([`FileStore`], ranks are processes) and etcd (`EtcdStore`, feature `etcd`, ranks are anywhere). [`open_store`] takes a URL and wraps
//! the store in [`Records`], so that a rank of another run or version is refused by name.
//!
//! ```
//! use std::sync::Arc;
//! use std::thread;
//! use std::time::Duration;
//!
//! use rendezvous::{MemoryStore, Store, StoreError};
//!
//! # fn main() -> Result<(), StoreError> {
//! let store = Arc::new(MemoryStore::new());
//! store.put("rank/0/address", b"10.0.0.1")?;
//! store.put("rank/1/address", b"10.0.0.2")?;
//! assert_eq!(store.list("rank")?, ["0", "1"]);
//!
//! // Of all ranks that try it, one sets the key.
//! assert!(store.compare_and_set("leader", None, b"rank 0")?);
//! assert!(!store.compare_and_set("leader", None, b"rank 1")?);
//!
//! // Rank 1 takes over, and rank 0, which watches the key, gets the change.
//! let rank_1 = thread::spawn({
//!     let store = Arc::clone(&store);
//!     move || store.compare_and_set("leader", Some(b"rank 0"), b"rank 1")
//! });
//! let leader = store.watch("leader", Some(b"rank 0"), Duration::from_secs(60))?;
//! assert_eq!(leader.as_deref(), Some(b"rank 1".as_slice()));
//! assert!(rank_1.join().expect("no panic")?);
//! # Ok(())
//! # }
//! ```
//!
//! All stores keep what [`Store`] promises, and one suite of tests runs on each of them. Beyond that:
//!
//! | store | when a rank is killed or stopped in the middle of a change | leases |
//! |---|---|---|
//! | memory | a change is one step under a lock, which a panic elsewhere leaves whole | run out after their time to live |
//! | directory | the change was made or not; no lock is held, so no other rank waits for it | run out when their beat has stood still for their time to live, by the clock of the reader; at once where the holder was a process of this machine and has ended |
//! | etcd | the change was made or not; one that arrives late never replaces what is newer | etcd's own: whole seconds, at least etcd's minimum, 2 s as it comes; the holder gives up after the time it asked for |
//!
//! [`BringUpStore`] is a store over a map that another library keeps ([`TextMap`]), such as PyTorch's. It carries no leases, so it is for
//! teams whose members stay.
//!
//! A call ends within the bound of its handle ([`Store::bounded`], 5 s by default) and tries nothing again. With
//! [`StoreError::Unreachable`] or [`StoreError::Late`] nothing was changed; with [`StoreError::NoAnswer`] the change may have
//! been made ([`StoreError::known`]). [`Timed`] says how long a call took. [`Patient`] repeats calls for callers that can only go
//! on or give up. A system call of a directory cannot be ended: a file system that hangs holds its caller. A directory and a
//! prefix of etcd belong to one run: a rank of another run cannot open them ([`StoreError::OtherRun`]).
//!
//! [`measure()`] says how fast a store answers, and which leases it carries.
//!
//! [`Process`] names the process that has written a value and says whether it still runs. If a thread that a store or a lease
//! runs for itself panics, which is a defect, the next call fails with [`ThreadPanicked`]. A thread that the system does not start is a
//! [`ThreadRefused`].
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! open.rs            `open_store`: a URL as a store
//! etcd/ file/ memory.rs bring_up.rs   stores: in an etcd, in a directory, in memory, over the map of another library
//! counted.rs patient.rs records.rs   stores over another one: they count calls, repeat them, name version and run
//! around.rs lease.rs measure.rs   a call as one value, for a store over another one; a lease that renews itself; how fast a store is
//! store.rs           `Store`: what every store promises
//! watch.rs           the watch of one key
//! look.rs check.rs repeat.rs   results of looks; what every store refuses; a call that is repeated for a while
//! call.rs trust.rs   what is known of a call that has failed; which owners and modes of files are trusted
//! error.rs           all errors
//! limits.rs          all limits
//! text.rs thread.rs process.rs looks.rs   text of other programs; own threads; other processes; the looks of a wait
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

mod around;
mod bring_up;
mod call;
mod check;
mod counted;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod lease;
mod limits;
mod look;
mod looks;
mod measure;
mod memory;
mod open;
mod patient;
mod process;
mod records;
mod repeat;
mod store;
mod text;
#[doc(hidden)]
pub mod thread;
mod trust;
mod watch;

pub use around::{AroundStore, StoreAnswer, StoreCall, StoreCallKind};
pub use bring_up::{BringUpStore, TextMap};
pub use call::{Known, Timed};
pub use counted::{Asked, Counted};
pub use error::StoreError;
#[cfg(feature = "etcd")]
pub use etcd::EtcdStore;
pub use file::FileStore;
pub use lease::Lease;
pub use limits::{LEASE_TTL, MAX_BOUND, MAX_KEY, MAX_LOOK, MAX_VALUE};
pub use look::{Changed, Count, Entry};
pub use looks::Looks;
pub use measure::{Measured, measure};
pub use memory::MemoryStore;
pub use open::{check_url, open_store};
pub use patient::Patient;
pub use process::{Life, Process};
pub use records::{RECORD_VERSION, Records};
pub use repeat::repeat;
pub use store::{LeaseId, Store};
pub use text::{Foreign, is_plain, printable};
pub use thread::{ThreadPanicked, ThreadRefused};
pub use trust::read_secret;
pub use watch::{KeyChange, KeyWatch};
