//! A store for simulations. It can be taken away from one rank or from all, can stand still or be slow, and may panic.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use membership_rules::record::RankGeneration;
use rendezvous::{
    AroundStore, KeyChange, KeyWatch, MAX_BOUND, Store, StoreAnswer, StoreCall, StoreCallKind,
    StoreError,
};

use super::world::{LOOK, lock};

/// The store as one rank reaches it.
#[derive(Debug)]
pub(in crate::membership) struct CutStore {
    pub(in crate::membership) store: Arc<dyn Store>,
    pub(in crate::membership) away: Arc<AtomicBool>,
    pub(in crate::membership) cut: Arc<AtomicBool>,
    /// True if no call is answered before its bound.
    pub(in crate::membership) held: Arc<AtomicBool>,
    /// True if this rank's promises are not written, and fail after their bound.
    pub(in crate::membership) no_promise: Arc<AtomicBool>,
    /// Time that each call takes, in microseconds.
    pub(in crate::membership) delay: Arc<AtomicU64>,
    pub(in crate::membership) bound: Duration,
    /// The renewal of a lease panics.
    pub(in crate::membership) panics: AtomicBool,
    /// The rank that reaches the store this way.
    pub(in crate::membership) own: RankGeneration,
    /// Names that the next list of a rank leaves out. A list of a directory does that when its reader has seen a holder's beat stand still.
    pub(in crate::membership) unlisted: Arc<Mutex<BTreeSet<(RankGeneration, String)>>>,
    /// The name of a thread that panics once, when it waits for a change.
    pub(in crate::membership) planted: Arc<Mutex<Option<String>>>,
}

impl CutStore {
    /// Returns the store after the delay. While `held` returns true, the call waits until its bound, and then fails. If the store is away
    /// the call fails at once.
    fn open_unless(&self, held: impl Fn() -> bool) -> Result<&dyn Store, StoreError> {
        let start = Instant::now();
        let away = || {
            [&self.away, &self.cut]
                .iter()
                .any(|flag| flag.load(Ordering::Relaxed))
        };
        let waits = || {
            let delay = Duration::from_micros(self.delay.load(Ordering::Relaxed));
            held() || self.held.load(Ordering::Relaxed) || start.elapsed() < delay
        };
        while waits() && !away() && start.elapsed() < self.bound {
            std::thread::sleep(LOOK);
        }
        if away() || waits() {
            return Err(StoreError::Unreachable {
                store: "the store".to_owned(),
                waited: start.elapsed(),
                cause: "it is away".to_owned(),
            });
        }
        Ok(self.store.as_ref())
    }
}

impl AroundStore for CutStore {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn with_bound(&self, bound: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            store: self.store.bounded(bound),
            away: Arc::clone(&self.away),
            cut: Arc::clone(&self.cut),
            held: Arc::clone(&self.held),
            delay: Arc::clone(&self.delay),
            no_promise: Arc::clone(&self.no_promise),
            bound: bound.min(MAX_BOUND),
            panics: AtomicBool::new(self.panics.load(Ordering::Relaxed)),
            own: self.own,
            unlisted: Arc::clone(&self.unlisted),
            planted: Arc::clone(&self.planted),
        })
    }

    fn around(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        let planted = matches!(call.kind, StoreCallKind::RenewLease { .. });
        assert!(!(planted && self.panics.load(Ordering::Relaxed)), "planted");
        let promise = call.kind == StoreCallKind::Put && call.key.starts_with("group/promise/");
        let held = || promise && self.no_promise.load(Ordering::Relaxed);
        let mut answer = call.make(self.open_unless(held)?)?;
        if let StoreAnswer::Names(names) = &mut answer {
            let mut unlisted = lock(&self.unlisted);
            names.retain(|name| !unlisted.remove(&(self.own, format!("{}/{name}", call.key))));
        }
        Ok(answer)
    }

    fn next_around(
        &self,
        watch: &mut KeyWatch,
        since: u64,
        timeout: Duration,
    ) -> Result<KeyChange, StoreError> {
        let is_planted = |name: &String| std::thread::current().name() == Some(name.as_str());
        let planted = lock(&self.planted).take_if(|name| is_planted(name));
        assert!(planted.is_none(), "planted");
        self.open_unless(|| false)?
            .next_change(watch, since, timeout)
    }
}
