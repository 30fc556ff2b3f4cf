//! Stores over another store, which see every call as one value. Such a store counts, repeats, delays or rewrites calls.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::{Changed, Count, KeyChange, KeyWatch, LeaseId, Store, StoreError};

/// A store over [`AroundStore::inner`]. Every type that implements this trait is a [`Store`].
pub trait AroundStore: Send + Sync + Debug {
    /// Returns the store that the calls go to.
    fn inner(&self) -> &dyn Store;

    /// Returns what [`Store::bounded`] returns.
    fn with_bound(&self, bound: Duration) -> Arc<dyn Store>;

    /// Makes `call` of the inner store by [`StoreCall::make`]: once, several times, late, changed, or not at all.
    ///
    /// # Errors
    /// The error of the inner store, or why the inner store was not asked.
    fn around(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError>;

    /// Does what [`Store::wait_for_change`] does.
    fn wait_around(&self, timeout: Duration) {
        self.inner().wait_for_change(timeout);
    }

    /// Does what [`Store::next_change`] does.
    ///
    /// # Errors
    /// The errors of [`Store::next_change`].
    fn next_around(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        self.inner().next_change(watch, since, timeout)
    }
}

/// The function of [`Store`] that a [`StoreCall`] stands for, with its arguments that are neither keys nor values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the functions")]
pub enum StoreCallKind {
    Put,
    TryGet,
    CompareAndSet,
    Remove,
    List,
    RemoveBelow,
    ChangedSince { since: u64 },
    Count,
    TakeLease { ttl: Duration },
    PutLeased { id: LeaseId },
    RenewLease { id: LeaseId },
    EndLease { id: LeaseId },
}

/// A call of a store with its arguments. What the function does not take is empty.
#[derive(Clone, Debug)]
pub struct StoreCall<'a> {
    /// The function.
    pub kind: StoreCallKind,
    /// The key; of a look, which has `keys` and `below`, empty.
    pub key: Cow<'a, str>,
    /// The value that is set.
    pub value: Option<Cow<'a, [u8]>>,
    /// The value that [`Store::compare_and_set`] expects.
    pub expected: Option<Cow<'a, [u8]>>,
    /// The keys of a look.
    pub keys: Vec<Cow<'a, str>>,
    /// The key below which a look finds all keys.
    pub below: Option<Cow<'a, str>>,
}

impl<'a> StoreCall<'a> {
    /// Returns the call of a function that takes `key`, and no value.
    #[must_use]
    pub fn of(kind: StoreCallKind, key: &'a str) -> Self {
        Self {
            kind,
            key: key.into(),
            value: None,
            expected: None,
            keys: Vec::new(),
            below: None,
        }
    }

    /// Returns the call of a function that sets `key` to `value`.
    #[must_use]
    pub fn setting(kind: StoreCallKind, key: &'a str, value: &'a [u8]) -> Self {
        Self {
            value: Some(value.into()),
            ..Self::of(kind, key)
        }
    }

    /// Makes this call on `store`. A value that is missing is set as an empty one.
    ///
    /// # Errors
    /// The errors of the function of [`Store`].
    pub fn make(&self, store: &dyn Store) -> Result<StoreAnswer, StoreError> {
        let key = self.key.as_ref();
        let value = self.value.as_deref().unwrap_or_default();
        Ok(match self.kind {
            StoreCallKind::Put => {
                store.put(key, value)?;
                StoreAnswer::Done
            }
            StoreCallKind::TryGet => StoreAnswer::Value(store.try_get(key)?),
            StoreCallKind::CompareAndSet => {
                let expected = self.expected.as_deref();
                StoreAnswer::Is(store.compare_and_set(key, expected, value)?)
            }
            StoreCallKind::Remove => StoreAnswer::Is(store.remove(key)?),
            StoreCallKind::List => StoreAnswer::Names(store.list(key)?),
            StoreCallKind::RemoveBelow => StoreAnswer::Removed(store.remove_below(key)?),
            StoreCallKind::ChangedSince { since } => {
                let keys: Vec<&str> = self.keys.iter().map(AsRef::as_ref).collect();
                StoreAnswer::Changed(store.changed_since(&keys, self.below.as_deref(), since)?)
            }
            StoreCallKind::Count => StoreAnswer::Count(store.count(key)?),
            StoreCallKind::TakeLease { ttl } => {
                StoreAnswer::Lease(store.take_lease(key, value, ttl)?)
            }
            StoreCallKind::PutLeased { id } => StoreAnswer::Is(store.put_leased(key, value, id)?),
            StoreCallKind::RenewLease { id } => StoreAnswer::Is(store.renew_lease(key, id)?),
            StoreCallKind::EndLease { id } => {
                store.end_lease(key, id)?;
                StoreAnswer::Done
            }
        })
    }

    /// Returns the key of the call. Of a look it is the key below which the look finds all keys, or else the first key of the look.
    #[must_use]
    pub fn key(&self) -> &str {
        let of_a_look = self.below.as_ref().or(self.keys.first());
        of_a_look.unwrap_or(&self.key)
    }

    /// Returns whether the call changes nothing in the store.
    #[must_use]
    pub const fn reads(&self) -> bool {
        matches!(
            self.kind,
            StoreCallKind::TryGet
                | StoreCallKind::List
                | StoreCallKind::ChangedSince { .. }
                | StoreCallKind::Count
        )
    }

    /// Returns this call with arguments of its own, so that another thread can make it, or make it later.
    #[must_use]
    pub fn into_owned(self) -> StoreCall<'static> {
        StoreCall {
            kind: self.kind,
            key: owned(self.key),
            value: self.value.map(owned),
            expected: self.expected.map(owned),
            keys: self.keys.into_iter().map(owned).collect(),
            below: self.below.map(owned),
        }
    }
}

fn owned<T: ToOwned + ?Sized>(value: Cow<'_, T>) -> Cow<'static, T> {
    Cow::Owned(value.into_owned())
}

/// The answer of a store to a [`StoreCall`]: what the function of [`Store`] returns.
#[derive(Debug)]
pub enum StoreAnswer {
    /// The answer of [`Store::put`] and [`Store::end_lease`].
    Done,
    /// The answer of [`Store::try_get`].
    Value(Option<Vec<u8>>),
    /// The answer of [`Store::compare_and_set`], [`Store::remove`], [`Store::put_leased`] and [`Store::renew_lease`].
    Is(bool),
    /// The answer of [`Store::list`].
    Names(Vec<String>),
    /// The answer of [`Store::remove_below`].
    Removed(u64),
    /// The answer of [`Store::changed_since`].
    Changed(Changed),
    /// The answer of [`Store::count`].
    Count(Count),
    /// The answer of [`Store::take_lease`].
    Lease(Option<LeaseId>),
}

impl StoreAnswer {
    /// Returns how many bytes of keys and values the answer has.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Value(value) => value.as_ref().map_or(0, Vec::len),
            Self::Names(names) => names.iter().map(String::len).sum(),
            Self::Changed(found) => {
                let entries = found.entries.iter();
                entries
                    .map(|entry| entry.key.len() + entry.value.len())
                    .sum()
            }
            Self::Done | Self::Is(_) | Self::Removed(_) | Self::Count(_) | Self::Lease(_) => 0,
        }
    }
}

/// # Panics
/// [`AroundStore::around`] returned the answer to a call of another kind, which is a defect of its implementation.
impl<A: AroundStore> Store for A {
    fn bounded(&self, bound: Duration) -> Arc<dyn Store> {
        self.with_bound(bound)
    }

    fn name(&self) -> String {
        self.inner().name()
    }

    fn without_leases(&self) -> Option<String> {
        self.inner().without_leases()
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        match self.around(&StoreCall::setting(StoreCallKind::Put, key, value))? {
            StoreAnswer::Done => Ok(()),
            other => unlike(&other),
        }
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self.around(&StoreCall::of(StoreCallKind::TryGet, key))? {
            StoreAnswer::Value(value) => Ok(value),
            other => unlike(&other),
        }
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let call = StoreCall {
            expected: expected.map(Cow::from),
            ..StoreCall::setting(StoreCallKind::CompareAndSet, key, value)
        };
        is(self.around(&call)?)
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        is(self.around(&StoreCall::of(StoreCallKind::Remove, key))?)
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        match self.around(&StoreCall::of(StoreCallKind::List, key))? {
            StoreAnswer::Names(names) => Ok(names),
            other => unlike(&other),
        }
    }

    fn remove_below(&self, key: &str) -> Result<u64, StoreError> {
        match self.around(&StoreCall::of(StoreCallKind::RemoveBelow, key))? {
            StoreAnswer::Removed(removed) => Ok(removed),
            other => unlike(&other),
        }
    }

    fn changed_since(
        &self,
        keys: &[&str],
        below: Option<&str>,
        since: u64,
    ) -> Result<Changed, StoreError> {
        let call = StoreCall {
            keys: keys.iter().map(|&key| key.into()).collect(),
            below: below.map(Cow::from),
            ..StoreCall::of(StoreCallKind::ChangedSince { since }, "")
        };
        match self.around(&call)? {
            StoreAnswer::Changed(changed) => Ok(changed),
            other => unlike(&other),
        }
    }

    fn count(&self, key: &str) -> Result<Count, StoreError> {
        match self.around(&StoreCall::of(StoreCallKind::Count, key))? {
            StoreAnswer::Count(count) => Ok(count),
            other => unlike(&other),
        }
    }

    fn take_lease(
        &self,
        key: &str,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<LeaseId>, StoreError> {
        let kind = StoreCallKind::TakeLease { ttl };
        match self.around(&StoreCall::setting(kind, key, value))? {
            StoreAnswer::Lease(id) => Ok(id),
            other => unlike(&other),
        }
    }

    fn put_leased(&self, key: &str, value: &[u8], id: LeaseId) -> Result<bool, StoreError> {
        let kind = StoreCallKind::PutLeased { id };
        is(self.around(&StoreCall::setting(kind, key, value))?)
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        let kind = StoreCallKind::RenewLease { id };
        is(self.around(&StoreCall::of(kind, key))?)
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        let kind = StoreCallKind::EndLease { id };
        match self.around(&StoreCall::of(kind, key))? {
            StoreAnswer::Done => Ok(()),
            other => unlike(&other),
        }
    }

    fn wait_for_change(&self, timeout: Duration) {
        self.wait_around(timeout);
    }

    fn next_change(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        self.next_around(watch, since, timeout)
    }
}

fn is(answer: StoreAnswer) -> Result<bool, StoreError> {
    match answer {
        StoreAnswer::Is(is) => Ok(is),
        other => unlike(&other),
    }
}

fn unlike<T>(answer: &StoreAnswer) -> T {
    unreachable!("an adapter of a store answered a call of another kind: {answer:?}")
}
