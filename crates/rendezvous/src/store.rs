//! What every store promises.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Changed, Count, KeyChange, KeyWatch, Looks, StoreError};

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
    /// Returns another handle on the same store, with the same leases and revisions. Its calls end within `bound`, and within
    /// [`MAX_BOUND`](crate::MAX_BOUND) in any case.
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
    /// More than [`MAX_LOOK`](crate::MAX_LOOK) keys. A value that cannot be read is no error of the call: see [`Changed::unreadable`].
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
    /// another rank holds the key. [`Lease`](crate::Lease) renews by itself.
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
