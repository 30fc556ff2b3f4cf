//! Handles: numbers that C holds as pointers. Each number is used once, so a handle that was given back differs from all that live.
//! No function dereferences a handle.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::status::{Failure, wv_status};

/// Something that C holds a handle of.
pub(crate) trait Handle: Send + Sync + Sized + 'static {
    /// As C names its type.
    const NAME: &'static str;

    /// Those of its type that live.
    fn live() -> &'static Live<Self>;

    /// Gives it a handle.
    fn hand_out(self) -> *mut Self {
        // Far fewer than 2^60 are made. Not a multiple of 16, at which memory of a program may begin.
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed) << 4 | 1;
        let mut live = Self::live()
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        live.insert(number, Arc::new(self));
        ptr::without_provenance_mut(number)
    }

    /// What a handle of C is for. It stays until the result is gone, even if another thread gives the handle back.
    fn behind(name: &str, handle: *const Self) -> Result<Arc<Self>, Failure> {
        let live = Self::live()
            .0
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let found = live.get(&handle.addr()).map(Arc::clone);
        found.ok_or_else(|| unknown::<Self>(name, handle))
    }

    /// Takes a handle back; null is none. What it is for goes when no thread uses it any more, which is now, as a rule.
    fn take_back(name: &str, handle: *const Self) -> Result<(), Failure> {
        if handle.is_null() {
            return Ok(());
        }
        let mut live = Self::live()
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let taken = live.remove(&handle.addr());
        // Not under the lock: what goes may take its time.
        drop(live);
        taken.map(drop).ok_or_else(|| unknown::<Self>(name, handle))
    }

    /// Takes a handle back by `end`, which may give what it is for back. None: that lives on with its handle, as it does if another
    /// thread uses it.
    fn end_with<R>(
        name: &str,
        handle: *const Self,
        end: impl FnOnce(Self) -> Result<R, Self>,
    ) -> Result<Option<R>, Failure> {
        let live = || {
            let live = Self::live().0.write();
            live.unwrap_or_else(PoisonError::into_inner)
        };
        let taken = {
            let mut live = live();
            let found = live.get(&handle.addr());
            let found = found.ok_or_else(|| unknown::<Self>(name, handle))?;
            // Under the lock no thread gets another one.
            if Arc::strong_count(found) > 1 {
                return Ok(None);
            }
            live.remove(&handle.addr())
        };
        let taken = taken.ok_or_else(|| unknown::<Self>(name, handle))?;
        let ended = Arc::try_unwrap(taken).and_then(|sole| end(sole).map_err(Arc::new));
        Ok(match ended {
            Ok(result) => Some(result),
            Err(back) => {
                live().insert(handle.addr(), back);
                None
            }
        })
    }
}

fn unknown<T: Handle>(name: &str, handle: *const T) -> Failure {
    if handle.is_null() {
        return Failure::argument(name, "null", &format!("a {}", T::NAME));
    }
    let words = format!("{name} is {handle:p}, which is no {} that lives", T::NAME);
    Failure::new(wv_status::WV_BAD_HANDLE, words)
}

/// Those of one type that live.
pub(crate) struct Live<T>(RwLock<BTreeMap<usize, Arc<T>>>);

impl<T> Live<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }
}

impl<T> fmt::Debug for Live<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").finish_non_exhaustive()
    }
}

/// Implements [`Handle`] for a type of the header.
macro_rules! handle {
    ($name:ident) => {
        impl $crate::handle::Handle for $name {
            const NAME: &'static str = stringify!($name);

            fn live() -> &'static $crate::handle::Live<Self> {
                static LIVE: $crate::handle::Live<$name> = $crate::handle::Live::new();
                &LIVE
            }
        }
    };
}
pub(crate) use handle;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Thing(#[expect(dead_code, reason = "dropped with the thing")] Arc<()>);
    handle!(Thing);

    #[derive(Debug)]
    struct Other;
    handle!(Other);

    #[test]
    fn a_handle_lives_until_it_is_given_back_once() {
        let inside = Arc::new(());
        let handle = Thing(Arc::clone(&inside)).hand_out();
        let used = Thing::behind("thing", handle).unwrap();
        Thing::take_back("thing", handle).unwrap();
        assert_eq!(Arc::strong_count(&inside), 2, "a thread uses it");
        drop(used);
        assert_eq!(Arc::strong_count(&inside), 1);
        let again = Thing::take_back("thing", handle).unwrap_err();
        assert_eq!(again.status, wv_status::WV_BAD_HANDLE);
        assert_eq!(
            again.words,
            format!("thing is {handle:p}, which is no Thing that lives")
        );
        assert!(Thing::behind("thing", handle).is_err());
    }

    #[test]
    fn what_is_not_ended_lives_on_under_its_handle() {
        let handle = Thing(Arc::default()).hand_out();
        let used = Thing::behind("thing", handle).unwrap();
        let never = |_: Thing| -> Result<(), Thing> { panic!("another thread uses it") };
        assert_eq!(Thing::end_with("thing", handle, never).unwrap(), None);
        drop(used);
        let refuses = |thing| Err::<(), _>(thing);
        assert_eq!(Thing::end_with("thing", handle, refuses).unwrap(), None);
        assert_eq!(
            Thing::end_with("thing", handle, |_| Ok(3)).unwrap(),
            Some(3)
        );
        let again = Thing::end_with("thing", handle, |_| Ok(3)).unwrap_err();
        assert_eq!(again.status, wv_status::WV_BAD_HANDLE);
    }

    #[test]
    fn null_other_kinds_and_wild_pointers_are_refused() {
        let null = Thing::behind("thing", ptr::null()).unwrap_err();
        assert_eq!(
            (null.status, null.words.as_str()),
            (
                wv_status::WV_BAD_ARGUMENT,
                "thing is null; it must be a Thing"
            )
        );
        Thing::take_back("thing", ptr::null()).unwrap();
        let other = Other.hand_out();
        assert!(Thing::behind("thing", other.cast::<Thing>()).is_err());
        assert!(Thing::take_back("thing", other.cast::<Thing>()).is_err());
        Other::take_back("other", other).unwrap();
        assert!(Thing::behind("thing", ptr::without_provenance(9)).is_err());
    }
}
