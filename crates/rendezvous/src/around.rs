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

/// A call of a store with its arguments. Each variant is named as the function of [`Store`] that it stands for.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the arguments are those of the functions")]
pub enum StoreCall<'a> {
    Put {
        key: Cow<'a, str>,
        value: Cow<'a, [u8]>,
    },
    TryGet {
        key: Cow<'a, str>,
    },
    CompareAndSet {
        key: Cow<'a, str>,
        expected: Option<Cow<'a, [u8]>>,
        value: Cow<'a, [u8]>,
    },
    Remove {
        key: Cow<'a, str>,
    },
    List {
        key: Cow<'a, str>,
    },
    RemoveBelow {
        key: Cow<'a, str>,
    },
    ChangedSince {
        keys: Vec<Cow<'a, str>>,
        below: Option<Cow<'a, str>>,
        since: u64,
    },
    Count {
        key: Cow<'a, str>,
    },
    TakeLease {
        key: Cow<'a, str>,
        value: Cow<'a, [u8]>,
        ttl: Duration,
    },
    PutLeased {
        key: Cow<'a, str>,
        value: Cow<'a, [u8]>,
        id: LeaseId,
    },
    RenewLease {
        key: Cow<'a, str>,
        id: LeaseId,
    },
    EndLease {
        key: Cow<'a, str>,
        id: LeaseId,
    },
}

impl StoreCall<'_> {
    /// Makes this call on `store`.
    ///
    /// # Errors
    /// The errors of the function of [`Store`].
    pub fn make(&self, store: &dyn Store) -> Result<StoreAnswer, StoreError> {
        Ok(match self {
            Self::Put { key, value } => {
                store.put(key, value)?;
                StoreAnswer::Done
            }
            Self::TryGet { key } => StoreAnswer::Value(store.try_get(key)?),
            Self::CompareAndSet {
                key,
                expected,
                value,
            } => StoreAnswer::Is(store.compare_and_set(key, expected.as_deref(), value)?),
            Self::Remove { key } => StoreAnswer::Is(store.remove(key)?),
            Self::List { key } => StoreAnswer::Names(store.list(key)?),
            Self::RemoveBelow { key } => StoreAnswer::Removed(store.remove_below(key)?),
            Self::ChangedSince { keys, below, since } => {
                let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
                StoreAnswer::Changed(store.changed_since(&keys, below.as_deref(), *since)?)
            }
            Self::Count { key } => StoreAnswer::Count(store.count(key)?),
            Self::TakeLease { key, value, ttl } => {
                StoreAnswer::Lease(store.take_lease(key, value, *ttl)?)
            }
            Self::PutLeased { key, value, id } => {
                StoreAnswer::Is(store.put_leased(key, value, *id)?)
            }
            Self::RenewLease { key, id } => StoreAnswer::Is(store.renew_lease(key, *id)?),
            Self::EndLease { key, id } => {
                store.end_lease(key, *id)?;
                StoreAnswer::Done
            }
        })
    }

    /// Returns the key of the call, or the first key of a look.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. }
            | Self::TryGet { key }
            | Self::CompareAndSet { key, .. }
            | Self::Remove { key }
            | Self::List { key }
            | Self::RemoveBelow { key }
            | Self::Count { key }
            | Self::TakeLease { key, .. }
            | Self::PutLeased { key, .. }
            | Self::RenewLease { key, .. }
            | Self::EndLease { key, .. } => key,
            Self::ChangedSince { keys, below, .. } => {
                let first = below.as_ref().or(keys.first());
                first.map_or("", AsRef::as_ref)
            }
        }
    }

    /// Returns whether the call changes nothing in the store.
    #[must_use]
    pub const fn reads(&self) -> bool {
        matches!(
            self,
            Self::TryGet { .. }
                | Self::List { .. }
                | Self::ChangedSince { .. }
                | Self::Count { .. }
        )
    }

    /// Returns this call with arguments of its own, so that another thread can make it, or make it later.
    #[must_use]
    pub fn into_owned(self) -> StoreCall<'static> {
        match self {
            Self::Put { key, value } => StoreCall::Put {
                key: owned(key),
                value: owned(value),
            },
            Self::TryGet { key } => StoreCall::TryGet { key: owned(key) },
            Self::CompareAndSet {
                key,
                expected,
                value,
            } => StoreCall::CompareAndSet {
                key: owned(key),
                expected: expected.map(owned),
                value: owned(value),
            },
            Self::Remove { key } => StoreCall::Remove { key: owned(key) },
            Self::List { key } => StoreCall::List { key: owned(key) },
            Self::RemoveBelow { key } => StoreCall::RemoveBelow { key: owned(key) },
            Self::ChangedSince { keys, below, since } => StoreCall::ChangedSince {
                keys: keys.into_iter().map(owned).collect(),
                below: below.map(owned),
                since,
            },
            Self::Count { key } => StoreCall::Count { key: owned(key) },
            Self::TakeLease { key, value, ttl } => StoreCall::TakeLease {
                key: owned(key),
                value: owned(value),
                ttl,
            },
            Self::PutLeased { key, value, id } => StoreCall::PutLeased {
                key: owned(key),
                value: owned(value),
                id,
            },
            Self::RenewLease { key, id } => StoreCall::RenewLease {
                key: owned(key),
                id,
            },
            Self::EndLease { key, id } => StoreCall::EndLease {
                key: owned(key),
                id,
            },
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
        let (key, value) = (key.into(), value.into());
        match self.around(&StoreCall::Put { key, value })? {
            StoreAnswer::Done => Ok(()),
            other => unlike(&other),
        }
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self.around(&StoreCall::TryGet { key: key.into() })? {
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
        let call = StoreCall::CompareAndSet {
            key: key.into(),
            expected: expected.map(Cow::from),
            value: value.into(),
        };
        is(self.around(&call)?)
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        is(self.around(&StoreCall::Remove { key: key.into() })?)
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        match self.around(&StoreCall::List { key: key.into() })? {
            StoreAnswer::Names(names) => Ok(names),
            other => unlike(&other),
        }
    }

    fn remove_below(&self, key: &str) -> Result<u64, StoreError> {
        match self.around(&StoreCall::RemoveBelow { key: key.into() })? {
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
        let call = StoreCall::ChangedSince {
            keys: keys.iter().map(|&key| key.into()).collect(),
            below: below.map(Cow::from),
            since,
        };
        match self.around(&call)? {
            StoreAnswer::Changed(changed) => Ok(changed),
            other => unlike(&other),
        }
    }

    fn count(&self, key: &str) -> Result<Count, StoreError> {
        match self.around(&StoreCall::Count { key: key.into() })? {
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
        let (key, value) = (key.into(), value.into());
        match self.around(&StoreCall::TakeLease { key, value, ttl })? {
            StoreAnswer::Lease(id) => Ok(id),
            other => unlike(&other),
        }
    }

    fn put_leased(&self, key: &str, value: &[u8], id: LeaseId) -> Result<bool, StoreError> {
        let (key, value) = (key.into(), value.into());
        is(self.around(&StoreCall::PutLeased { key, value, id })?)
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        let key = key.into();
        is(self.around(&StoreCall::RenewLease { key, id })?)
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        let key = key.into();
        match self.around(&StoreCall::EndLease { key, id })? {
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
