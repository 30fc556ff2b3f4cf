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

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

mod around;
mod bring_up;
mod call;
mod counted;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod lease;
mod look;
mod looks;
mod measure;
mod memory;
mod patient;
mod process;
mod records;
mod text;
#[doc(hidden)]
pub mod thread;
mod trust;
mod watch;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use around::{AroundStore, StoreAnswer, StoreCall, StoreCallKind};
pub use bring_up::{BringUpStore, TextMap};
pub use call::{Known, MAX_BOUND, Timed};
pub use counted::{Asked, Counted};
pub use error::StoreError;
#[cfg(feature = "etcd")]
pub use etcd::EtcdStore;
pub use file::FileStore;
pub use lease::Lease;
pub use look::{Changed, Count, Entry, MAX_LOOK};
pub use looks::Looks;
pub use measure::{Measured, measure};
pub use memory::MemoryStore;
pub use patient::{Patient, repeat};
pub use process::{Life, Process};
pub use records::{RECORD_VERSION, Records};
pub use text::{Foreign, is_plain, printable};
pub use thread::{ThreadPanicked, ThreadRefused};
pub use trust::read_secret;
pub use watch::{KeyChange, KeyWatch};

/// The most bytes of a key.
pub const MAX_KEY: usize = 256;
/// The most bytes of a value. etcd takes so many in one request, with room for the rest of the request.
pub const MAX_VALUE: usize = 1 << 20;
/// The shortest and the longest time to live of a lease.
pub const LEASE_TTL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(3600);

/// The number of one taking of a lease. A later taking of the same key has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// A map that all ranks reach. A key is one or more names joined by `/`; a name has letters, digits, `.`, `_` and `-`.
///
/// **Bounds.** Every call ends within the bound of its handle ([`Store::bounded`]), the two waits within their timeout and one
/// bound. A call sends each request once. Its error says whether the change can have been made ([`StoreError::known`]) and, where
/// the store did not answer, how long the call took.
///
/// **Order.** All readers see the changes of one key in one order. Of two keys that one rank changed one after the other, a
/// reader of the second change sees the first. A change that arrives late replaces nothing newer; it may set a key that was set
/// and removed meanwhile.
///
/// **Revisions.** Each change of a key gives the key a revision greater than all before it. In memory and in an etcd a revision
/// is of the whole store, and all handles see the same ones. In a directory the handle that looks gives the number when it first
/// sees the change. The number means nothing to another handle, except to those made from it by [`Store::bounded`]. No look
/// misses a change after the revision that it asks for.
pub trait Store: Send + Sync + Debug {
    /// Returns another handle on the same store, with the same leases and revisions. Its calls end within `bound`, and within [`MAX_BOUND`]
    /// in any case.
    fn bounded(&self, bound: Duration) -> Arc<dyn Store>;

    /// Returns the name of this store, for reports.
    fn name(&self) -> String {
        "the store".to_owned()
    }

    /// Returns the name of this store if it carries no leases. A team can meet in such a store, a group cannot. Its calls about leases fail
    /// with [`StoreError::NoLeases`].
    fn without_leases(&self) -> Option<String> {
        None
    }

    /// Sets `key`. Readers see the old or the new value, never a part of one.
    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError>;

    /// Returns the value of `key` now. Returns None if the key was never set, was removed, or its lease has run out.
    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Sets `key` to `value` in one step if its value is `expected` (`None`: not set). Returns whether it did.
    ///
    /// After an error the change may have been made or not: read the key.
    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError>;

    /// Removes `key`. Returns whether it was set.
    fn remove(&self, key: &str) -> Result<bool, StoreError>;

    /// Returns the names directly below `key` that are set, sorted. The list is empty if no key is set.
    fn list(&self, key: &str) -> Result<Vec<String>, StoreError>;

    /// Removes all keys below `key`, at every depth, and returns how many were set.
    ///
    /// In memory and in an etcd that is one step. In a directory each key is removed by itself: after an error some are removed. After
    /// [`StoreError::NoAnswer`] all are removed or none. A late request removes nothing that is newer than the call.
    fn remove_below(&self, key: &str) -> Result<u64, StoreError>;

    /// Returns the entries of `keys`, and of the keys below `below` at every depth, that are set and have changed after revision `since`.
    /// Revision 0 asks for all. In memory and in an etcd the look is one request, of one moment. A directory is read key by key.
    ///
    /// Keys that were removed are not listed: [`Store::count`] shows that some are gone.
    ///
    /// # Errors
    /// More than [`MAX_LOOK`] keys. A value that cannot be read is no error of the call: see [`Changed::unreadable`].
    fn changed_since(
        &self,
        keys: &[&str],
        below: Option<&str>,
        since: u64,
    ) -> Result<Changed, StoreError>;

    /// Returns the number of keys set below `key`, and when the newest of them was created. If neither differs from an earlier count of the
    /// same handle, the same keys are set. Those keys were set all the time, or are set again under the same lease.
    fn count(&self, key: &str) -> Result<Count, StoreError>;

    /// Sets `key` to `value` unless it is set, for as long as [`Store::renew_lease`] is called at least every `ttl`. Returns `None` if
    /// another rank holds the key. [`Lease`] renews by itself.
    ///
    /// A key that is not renewed is gone after `ttl`. To a rank that looks at a directory for the first time, the key is gone after the
    /// rank has seen its beat stand still for `ttl`. A process that has ended loses its leases at once where that can be seen.
    fn take_lease(
        &self,
        key: &str,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<LeaseId>, StoreError>;

    /// Sets `key`, whatever its value was, to `value` for as long as lease `id` lives. This handle, or a handle made from it, has taken the
    /// lease. Returns `false` if the lease is gone; the key is then as it was. The key goes with the lease.
    fn put_leased(&self, key: &str, value: &[u8], id: LeaseId) -> Result<bool, StoreError>;

    /// Keeps a lease for another time to live. Returns `false` if the store says that it is gone, or that `key` is not under it any more.
    ///
    /// This call never ends the lease itself. In a directory a lease whose holder comes late lives again if no rank has taken or changed
    /// its key meanwhile. So a lease that one look has found gone may live at the next look. In memory and in an etcd a lease that is gone
    /// stays gone.
    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError>;

    /// Gives a lease back, so that all keys under it are gone at once. Does nothing if the lease is already lost.
    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError>;

    /// Waits until something may have changed, at most for `timeout`. It may return early.
    fn wait_for_change(&self, timeout: Duration);

    /// Waits until the key of `watch` has changed or was removed after the revision `since`, at most for `timeout`. A second wait with the
    /// same watch goes on where the first one ended. An etcd is asked once for as long as its answer lasts, which is the `timeout` with
    /// which the answer was opened. `since` does not decrease from one wait to the next.
    ///
    /// # Errors
    /// The store cannot be asked, or has ended the watch. The caller waits before it asks again.
    fn next_change(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError>;

    /// As `next_change`, with a watch that ends with this wait. Returns `false` if the key has not changed. `true` may come without a
    /// change.
    ///
    /// # Errors
    /// The store cannot be asked, or has ended the watch.
    fn wait_for_key(&self, key: &str, since: u64, timeout: Duration) -> Result<bool, StoreError> {
        let change = self.next_change(&mut KeyWatch::new(key), since, timeout)?;
        Ok(change != KeyChange::Nothing)
    }

    /// Waits until the value of `key` differs from `known`, at most for `timeout`, and returns it.
    fn watch(
        &self,
        key: &str,
        known: Option<&[u8]>,
        timeout: Duration,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let mut value = None;
        for left in Looks::within(timeout) {
            value = self.try_get(key)?;
            if value.as_deref() != known {
                break;
            }
            if !left.is_zero() {
                self.wait_for_change(left);
            }
        }
        Ok(value)
    }

    /// Waits until `key` is set, at most until `deadline`. A deadline that has passed gives one look.
    fn get(&self, key: &str, deadline: Instant) -> Result<Vec<u8>, StoreError> {
        let start = Instant::now();
        let left = deadline.saturating_duration_since(start);
        let value = self.watch(key, None, left)?;
        value.ok_or_else(|| StoreError::Timeout {
            key: key.to_owned(),
            waited: start.elapsed(),
        })
    }
}

/// Opens the store that `url` names for the run `run_id`.
///
/// - `file://DIRECTORY[?shared]`: a directory that exists. This user or root owns it. No other user can change it or replace a
///   directory above it, unless `shared` says that such users are trusted.
/// - `etcd://[USER:PASSWORD@]HOST:PORT[,HOST:PORT..]/PREFIX[?insecure]`: an etcd, in plain text. A password goes beyond this
///   machine only with `insecure`.
/// - `etcds://..[?ca=FILE&cert=FILE&key=FILE]`: an etcd by TLS 1.2 or later. The certificates of its members must name them, and
///   come from an authority of the file `ca`, or without it from one that browsers trust. `cert` and `key` are this rank's own;
///   only its user may read the key. Files are PEM, their names percent-encoded.
///
/// # Errors
/// Another kind of URL; an error of [`FileStore::open`] or `EtcdStore::open`.
pub fn open_store(url: &str, run_id: &str) -> Result<Arc<dyn Store>, StoreError> {
    let store: Arc<dyn Store> = match url.split_once("://") {
        Some(("file", rest)) if !rest.is_empty() => match rest.strip_suffix("?shared") {
            Some(directory) => Arc::new(FileStore::open_shared(directory.as_ref(), run_id)?),
            None => Arc::new(FileStore::open(rest.as_ref(), run_id)?),
        },
        Some(("etcd" | "etcds", _)) => open_etcd(url, run_id)?,
        _ => {
            return Err(StoreError::Url {
                url: url.to_owned(),
            });
        }
    };
    Ok(Arc::new(Records::new(store, run_id)?))
}

/// Returns an error unless `url` names a store that [`open_store`] could open. Nothing is opened.
///
/// # Errors
/// Another kind of URL, or an invalid address of an etcd.
pub fn check_url(url: &str) -> Result<(), StoreError> {
    match url.split_once("://") {
        Some(("file", rest)) if !rest.is_empty() => Ok(()),
        Some(("etcd" | "etcds", _)) => check_etcd(url),
        _ => Err(StoreError::Url {
            url: url.to_owned(),
        }),
    }
}

#[cfg(feature = "etcd")]
fn check_etcd(url: &str) -> Result<(), StoreError> {
    EtcdStore::check(url)
}

#[cfg(not(feature = "etcd"))]
fn check_etcd(_: &str) -> Result<(), StoreError> {
    Err(StoreError::NoEtcd)
}

#[cfg(feature = "etcd")]
fn open_etcd(url: &str, run_id: &str) -> Result<Arc<dyn Store>, StoreError> {
    Ok(Arc::new(EtcdStore::open(url, run_id)?))
}

#[cfg(not(feature = "etcd"))]
fn open_etcd(_: &str, _: &str) -> Result<Arc<dyn Store>, StoreError> {
    Err(StoreError::NoEtcd)
}

/// Refuses a key that could leave the store's directory, has an empty name, or is too long.
fn check_key(key: &str) -> Result<(), StoreError> {
    let name_ok = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    if key.len() > MAX_KEY {
        return Err(StoreError::TooLong {
            what: "the key",
            key: key.chars().take(32).collect(),
            bytes: key.len(),
            limit: MAX_KEY,
        });
    }
    if key.split('/').all(name_ok) {
        return Ok(());
    }
    Err(StoreError::Key {
        key: key.to_owned(),
    })
}

/// Refuses a value that is too long.
fn check_value(key: &str, value: &[u8]) -> Result<(), StoreError> {
    if value.len() <= MAX_VALUE {
        Ok(())
    } else {
        Err(StoreError::TooLong {
            what: "the value of",
            key: key.to_owned(),
            bytes: value.len(),
            limit: MAX_VALUE,
        })
    }
}

/// Refuses a look that names too many keys, or a text that is no key.
fn check_look(keys: &[&str], below: Option<&str>) -> Result<(), StoreError> {
    if keys.len() > MAX_LOOK {
        return Err(StoreError::TooMany {
            keys: keys.len(),
            limit: MAX_LOOK,
        });
    }
    keys.iter().copied().chain(below).try_for_each(check_key)
}

/// Refuses a time to live that no backend can keep.
fn check_ttl(key: &str, ttl: Duration) -> Result<(), StoreError> {
    if LEASE_TTL.contains(&ttl) {
        Ok(())
    } else {
        Err(StoreError::Ttl {
            key: key.to_owned(),
            ttl,
            least: *LEASE_TTL.start(),
            most: *LEASE_TTL.end(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_cannot_leave_the_store() {
        for key in ["", "/", "a/", "/a", "../a", "a/../b", "a b", "a/.hidden"] {
            assert!(
                matches!(check_key(key), Err(StoreError::Key { .. })),
                "{key}"
            );
        }
        assert!(check_key("window-3/rank_1.json").is_ok());
        assert!(check_key(&"k".repeat(MAX_KEY)).is_ok());
        let error = check_key(&"k".repeat(MAX_KEY + 1)).unwrap_err().to_string();
        assert!(
            error.ends_with("has 257 bytes; at most 256 are kept"),
            "{error}"
        );
    }

    #[test]
    fn only_known_urls_open() {
        let message = open_store("redis://localhost", "1")
            .unwrap_err()
            .to_string();
        assert_eq!(
            message,
            "the store 'redis://localhost' (WARPVERBS_STORE) is not file://DIRECTORY or \
             etcd[s]://[USER:PASSWORD@]HOST:PORT[,HOST:PORT..]/PREFIX"
        );
    }
}
