//! The keys that peers of this engine have: keys that are being made, that live, or that are being ended.
//!
//! A key belongs to one connection, and is ended once: by the program, at its time, or with the connection. The thread that ends
//! it returns when the HCA has destroyed it. From then on the memory may be used for something else. A second thread that ends
//! the key waits for the first.
//!
//! The HCA gives the number of a dead key to a later one. So the key of a late reader may become valid again, and that reader
//! still reads nothing. Each key is named by addresses that no other key of this engine has ever had, and the HCA compares them.
//! `models::engine::keys` has these rules.

use std::collections::HashMap;
#[cfg(test)]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::error::{EngineError, HostError};
use crate::engine::memory::regions::Users;
use crate::engine::route::link::Link;
use crate::provider::local::{Board, COPYING, ShownRegion, Unshown};
use crate::provider::{HostKey, ProviderError};
use crate::verbs::VerbsError;

/// The first address that names a byte of a grant. Memory of programs lies below.
const FIRST_ADDRESS: u64 = 1 << 62;
/// The address after the last that names a byte of a grant.
const LAST_ADDRESS: u64 = 1 << 63;
/// The size of a page. The address of a grant has the same place in its page as the byte that it names. A page is left out after each
/// range.
const PAGE: u64 = 4096;
/// Time between two tries to end a key that the HCA keeps.
const AGAIN: Duration = Duration::from_secs(1);

/// Number of tries to end a key for which no caller tries again.
const TRIES: u32 = 3;

/// A key at the HCA.
pub(in crate::engine) trait Key {
    /// Ends the key, so that no request begins by it any more. After a failure it can be called again.
    fn destroy(&mut self) -> Result<(), ProviderError>;

    /// Waits until no request and no copy by these keys goes on. They are destroyed already. An error is about all of them.
    fn leave(keys: &mut [&mut Self]) -> Result<(), ProviderError>;
}

/// A key of each HCA, which peers of this machine may use for copies, too.
#[derive(Debug)]
pub(in crate::engine) struct PeerKey {
    /// The keys of the rails that were not ended yet.
    keys: Vec<HostKey>,
    /// The place on the board for peers of this machine. `is_marked`: no copy begins any more.
    shown: Option<(Arc<Board>, usize)>,
    is_marked: bool,
    #[expect(dead_code, reason = "held for its drop")]
    unshown: Option<Unshown>,
}

impl PeerKey {
    /// Makes the key of a grant, of keys of each HCA. It is shown on this board, if there is one.
    pub(in crate::engine) fn new(
        keys: Vec<HostKey>,
        board: Option<&Arc<Board>>,
        region: &ShownRegion,
    ) -> Self {
        let place = board.map(|board| (board, board.show(region, None, None)));
        let (shown, unshown) = match place {
            Some((board, Ok(place))) => (Some((Arc::clone(board), place)), None),
            Some((_, Err(unshown))) => (None, Some(unshown)),
            None => (None, None),
        };
        Self {
            keys,
            shown,
            is_marked: false,
            unshown,
        }
    }
}

impl Key for PeerKey {
    fn destroy(&mut self) -> Result<(), ProviderError> {
        if let Some((board, place)) = &self.shown
            && !std::mem::replace(&mut self.is_marked, true)
        {
            board.mark(*place);
        }
        while let Some(key) = self.keys.last_mut() {
            key.destroy()?;
            self.keys.pop();
        }
        Ok(())
    }

    // This is not part of `destroy`. So a peer of this machine that stands still does not keep the HCA's keys alive, and a thread waits
    // once for all keys.
    fn leave(keys: &mut [&mut Self]) -> Result<(), ProviderError> {
        let shown = keys.iter().filter_map(|key| key.shown.as_ref());
        let (boards, places): (Vec<_>, Vec<_>) = shown.cloned().unzip();
        // An engine has one board.
        if let Some(board) = boards.first() {
            let busy = |threads| {
                ProviderError::from(VerbsError::argument(
                    "threads of a peer that copy",
                    threads,
                    "0",
                ))
            };
            board.leave(&places, COPYING).map_err(busy)?;
        }
        keys.iter_mut().for_each(|key| key.shown = None);
        Ok(())
    }
}

/// All keys of one engine.
#[derive(Debug)]
pub(in crate::engine) struct Keys<K> {
    state: Mutex<State<K>>,
    changed: Condvar,
    pub(in crate::engine) clock: Clock,
}

#[derive(Debug)]
struct State<K> {
    entries: HashMap<u64, Entry<K>>,
    next: u64,
    /// The address after the last that was given to a grant.
    address: u64,
}

#[derive(Debug)]
struct Entry<K> {
    /// The number of its connection.
    link: u64,
    /// The users of the registration on which the key stands.
    users: Arc<Users>,
    ends: Option<Instant>,
    /// Its connection has ended, but the HCA has kept the key, or a peer still copies. The thread of any connection ends the key at `ends`.
    is_orphan: bool,
    stage: Stage<K>,
}

#[derive(Debug)]
enum Stage<K> {
    /// The command that makes the key runs. `is_doomed`: the connection has ended since.
    Making {
        is_doomed: bool,
    },
    Live(K),
    /// The command that ends the key runs.
    Ending,
}

/// A range of memory of this side.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Range {
    pub(in crate::engine) address: u64,
    pub(in crate::engine) bytes: u64,
}

/// The values with which a key is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Place {
    pub(in crate::engine) number: u64,
    /// The address that names the first byte.
    pub(in crate::engine) named: u64,
    /// The low byte of the key.
    pub(in crate::engine) tag: u8,
}

/// The clock of the keys. Tests set it ahead.
#[derive(Debug, Default)]
pub(in crate::engine) struct Clock {
    #[cfg(test)]
    ahead_ms: AtomicU64,
}

impl Clock {
    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "that of a test is ahead")]
    fn now(&self) -> Instant {
        Instant::now()
    }

    #[cfg(test)]
    fn now(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.ahead_ms.load(Ordering::SeqCst))
    }

    /// Sets the clock ahead.
    #[cfg(test)]
    pub(in crate::engine) fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.ahead_ms.fetch_add(by, Ordering::SeqCst);
    }
}

impl<K> Default for Keys<K> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                entries: HashMap::new(),
                next: 1,
                address: FIRST_ADDRESS,
            }),
            changed: Condvar::new(),
            clock: Clock::default(),
        }
    }
}

impl<K: Key> Keys<K> {
    /// Returns a place for a key over `range`, for `peer`, which `link` connects. `users` counts the key until it is dead.
    pub(in crate::engine) fn reserve(
        &self,
        link: &Link,
        peer: &str,
        users: Arc<Users>,
        range: Range,
    ) -> Result<Place, EngineError> {
        let Range { address, bytes } = range;
        let mut state = self.state();
        // Under the lock: either this thread sees that the connection has ended, or the thread that ends the connection sees the key.
        link.check(peer)?;
        let named = state.address.next_multiple_of(PAGE) + address % PAGE;
        let end = named
            .checked_add(bytes)
            .and_then(|end| end.checked_add(PAGE));
        let end = end.filter(|end| *end <= LAST_ADDRESS);
        let given = state.address - FIRST_ADDRESS;
        state.address = end.ok_or(EngineError::GrantSpace { given, bytes })?;
        let number = state.next;
        state.next += 1;
        let entry = Entry {
            link: link.number(),
            users,
            ends: None,
            is_orphan: false,
            stage: Stage::Making { is_doomed: false },
        };
        state.entries.insert(number, entry);
        let [tag, ..] = number.to_le_bytes();
        Ok(Place { number, named, tag })
    }

    /// Takes a key that was made. Returns false if its connection has ended since: then the caller ends the key.
    pub(in crate::engine) fn made(
        &self,
        number: u64,
        key: K,
        time_to_live: Option<Duration>,
    ) -> bool {
        let now = self.clock.now();
        let mut state = self.state();
        let Some(entry) = state.entries.get_mut(&number) else {
            return false;
        };
        let is_doomed = matches!(entry.stage, Stage::Making { is_doomed: true });
        entry.ends = time_to_live.and_then(|it| now.checked_add(it));
        entry.stage = Stage::Live(key);
        drop(state);
        self.changed.notify_all();
        !is_doomed
    }

    /// Notes that no key was made.
    pub(in crate::engine) fn not_made(&self, number: u64) {
        let removed = self.state().entries.remove(&number);
        if let Some(entry) = removed {
            entry.users.leave();
        }
        self.changed.notify_all();
    }

    /// Ends a key. Returns when it is dead, whichever thread has ended it.
    pub(in crate::engine) fn end(&self, number: u64) -> Result<(), EndError> {
        let mut state = self.state();
        let mut key = loop {
            let next = state.next;
            let Some(entry) = state.entries.get_mut(&number) else {
                return if (1..next).contains(&number) {
                    Ok(())
                } else {
                    Err(EngineError::UnknownGrant { number }.into())
                };
            };
            match std::mem::replace(&mut entry.stage, Stage::Ending) {
                Stage::Live(key) => break key,
                // Another thread runs a command for the key, which returns.
                other => entry.stage = other,
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        let ended = key.destroy().and_then(|()| K::leave(&mut [&mut key]));
        let mut state = self.state();
        if ended.is_ok() {
            if let Some(entry) = state.entries.remove(&number) {
                entry.users.leave();
            }
        } else if let Some(entry) = state.entries.get_mut(&number) {
            entry.stage = Stage::Live(key);
        }
        drop(state);
        self.changed.notify_all();
        ended.map_err(EndError::from)
    }

    /// Ends the keys of a connection whose time is over, and orphans. Returns how long it is until the next is due.
    pub(in crate::engine) fn expire(&self, link: u64) -> Option<Duration> {
        let now = self.clock.now();
        self.expire_those(now, |entry| entry.link == link || entry.is_orphan);
        let state = self.state();
        let entries = state.entries.values();
        let ends = entries.filter(|it| it.link == link || it.is_orphan);
        let next = ends.filter_map(|entry| entry.ends).min()?;
        Some(next.saturating_duration_since(now))
    }

    /// Ends the keys of connections that have ended, as far as this is possible now. Returns whether any was ended.
    pub(in crate::engine) fn end_orphans(&self) -> bool {
        let mut has_ended = false;
        for number in self.numbers(|entry| entry.is_orphan) {
            match self.end(number) {
                Ok(()) => has_ended = true,
                Err(error) => {
                    tracing::warn!(
                        "the key of grant {number}, whose connection has ended: {error}"
                    );
                }
            }
        }
        has_ended
    }

    fn expire_those(&self, now: Instant, wanted: impl Fn(&Entry<K>) -> bool) {
        let is_due = |entry: &Entry<K>| wanted(entry) && entry.ends.is_some_and(|end| end <= now);
        for number in self.numbers(is_due) {
            if let Err(error) = self.end(number) {
                tracing::error!("the key of grant {number}, whose time is over: {error}");
                if let Some(entry) = self.state().entries.get_mut(&number) {
                    entry.ends = now.checked_add(AGAIN);
                }
            }
        }
    }

    fn numbers(&self, wanted: impl Fn(&Entry<K>) -> bool) -> Vec<u64> {
        let state = self.state();
        let entries = state.entries.iter();
        let wanted = entries.filter(|(_, entry)| wanted(entry));
        wanted.map(|(number, _)| *number).collect()
    }

    /// Ends all keys of a connection, which takes no more keys.
    pub(in crate::engine) fn end_link(&self, link: u64) {
        self.end_those(|entry| entry.link == link);
    }

    /// Ends all keys.
    pub(in crate::engine) fn end_all(&self) {
        self.end_those(|_| true);
    }

    /// Ends all wanted keys at once, so that this thread waits once for a peer that does not end a copy.
    fn end_those(&self, wanted: impl Fn(&Entry<K>) -> bool) {
        let (mut keys, mut others) = (Vec::new(), Vec::new());
        for (number, entry) in self.state().entries.iter_mut().filter(|(_, it)| wanted(it)) {
            match std::mem::replace(&mut entry.stage, Stage::Ending) {
                // The thread that makes it ends it.
                Stage::Making { .. } => entry.stage = Stage::Making { is_doomed: true },
                Stage::Live(key) => keys.push((*number, key)),
                Stage::Ending => others.push(*number),
            }
        }
        for _ in 0..TRIES {
            keys = self.end_together(keys);
        }
        self.leave_orphans(keys);
        for number in others {
            if let Err(error) = self.end_in_tries(number) {
                tracing::error!("the key of grant {number} is not ended: {error}");
            }
        }
    }

    /// Ends keys whose stage is [`Stage::Ending`]. Returns those that are not dead.
    fn end_together(&self, keys: Vec<(u64, K)>) -> Vec<(u64, K)> {
        let (mut destroyed, mut left) = (Vec::new(), Vec::new());
        for (number, mut key) in keys {
            match key.destroy() {
                Ok(()) => destroyed.push((number, key)),
                Err(error) => {
                    tracing::warn!("grant {number}: {error}");
                    left.push((number, key));
                }
            }
        }
        let mut all: Vec<&mut K> = destroyed.iter_mut().map(|(_, key)| key).collect();
        if all.is_empty() {
            return left;
        }
        if let Err(error) = K::leave(&mut all) {
            tracing::warn!("{} grants: {error}", destroyed.len());
            left.extend(destroyed);
            return left;
        }
        let mut state = self.state();
        for (number, _) in destroyed {
            if let Some(entry) = state.entries.remove(&number) {
                entry.users.leave();
            }
        }
        drop(state);
        self.changed.notify_all();
        left
    }

    /// Leaves keys for later tries.
    fn leave_orphans(&self, keys: Vec<(u64, K)>) {
        if keys.is_empty() {
            return;
        }
        let ends = self.clock.now().checked_add(AGAIN);
        let mut state = self.state();
        for (number, key) in keys {
            tracing::error!("the key of grant {number} is not ended yet");
            if let Some(entry) = state.entries.get_mut(&number) {
                (entry.stage, entry.is_orphan, entry.ends) = (Stage::Live(key), true, ends);
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Ends a key as [`Keys::end`] does. It makes several tries, since no caller would end the key again.
    pub(in crate::engine) fn end_in_tries(&self, number: u64) -> Result<(), EndError> {
        for _ in 1..TRIES {
            match self.end(number) {
                Err(EndError::Provider(error)) => tracing::warn!("grant {number}: {error}"),
                ended => return ended,
            }
        }
        let ended = self.end(number);
        if let Err(EndError::Provider(_)) = ended {
            let ends = self.clock.now().checked_add(AGAIN);
            if let Some(entry) = self.state().entries.get_mut(&number) {
                (entry.is_orphan, entry.ends) = (true, ends);
            }
        }
        ended
    }

    /// Returns how many keys are not dead.
    pub(in crate::engine) fn count(&self) -> usize {
        self.state().entries.len()
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a key is not dead.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum EndError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

impl From<EndError> for HostError {
    fn from(error: EndError) -> Self {
        match error {
            EndError::Engine(error) => error.into(),
            EndError::Provider(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32};
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A key that counts its ends. The first `failures` ends fail.
    #[derive(Debug, Default)]
    struct Fake {
        ended: Arc<AtomicU32>,
        failures: u32,
        /// The channels by which an end says that it has begun, and waits.
        gate: Option<(SyncSender<()>, Receiver<()>)>,
        /// True if a peer copies.
        copies: Arc<AtomicBool>,
        waits: Arc<AtomicU32>,
        is_destroyed: bool,
    }

    impl Key for Fake {
        fn destroy(&mut self) -> Result<(), ProviderError> {
            if let Some((begun, go)) = &self.gate {
                begun.send(()).unwrap();
                go.recv().unwrap();
            }
            if self.failures > 0 {
                self.failures -= 1;
                return Err(VerbsError::argument("key", 1, "0").into());
            }
            self.is_destroyed = true;
            Ok(())
        }

        fn leave(keys: &mut [&mut Self]) -> Result<(), ProviderError> {
            keys[0].waits.fetch_add(1, Ordering::SeqCst);
            if keys[0].copies.load(Ordering::SeqCst) {
                return Err(VerbsError::argument("threads", 1, "0").into());
            }
            for key in keys {
                assert!(key.is_destroyed);
                key.ended.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        }
    }

    fn link(number: u64) -> Link {
        Link::new(number, 0, &[0], None)
    }

    struct Rig {
        keys: Keys<Fake>,
        users: Arc<Users>,
        ended: Arc<AtomicU32>,
        copies: Arc<AtomicBool>,
        waits: Arc<AtomicU32>,
    }

    impl Rig {
        fn new() -> Self {
            Self {
                keys: Keys::default(),
                users: Arc::new(Users::default()),
                ended: Arc::default(),
                copies: Arc::default(),
                waits: Arc::default(),
            }
        }

        fn reserve(&self, link: &Link, bytes: u64) -> Result<Place, EngineError> {
            assert!(self.users.enter());
            let range = Range {
                address: 0x7f12_3456,
                bytes,
            };
            let users = Arc::clone(&self.users);
            let place = self.keys.reserve(link, "b", users, range);
            place.inspect_err(|_| self.users.leave())
        }

        fn fake(&self) -> Fake {
            Fake {
                ended: Arc::clone(&self.ended),
                copies: Arc::clone(&self.copies),
                waits: Arc::clone(&self.waits),
                ..Fake::default()
            }
        }

        fn grant(&self, link: &Link, time_to_live: Option<Duration>) -> u64 {
            let place = self.reserve(link, 4096).unwrap();
            assert!(self.keys.made(place.number, self.fake(), time_to_live));
            place.number
        }

        fn ended(&self) -> u32 {
            self.ended.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn no_two_keys_share_an_address_and_each_has_the_place_in_its_page() {
        let (rig, link) = (Rig::new(), link(1));
        let mut end = FIRST_ADDRESS;
        for nth in 1..600u64 {
            let place = rig.reserve(&link, nth * 100).unwrap();
            assert_eq!(place.number, nth);
            assert!(place.named >= end, "{place:?}");
            assert_eq!(place.named % PAGE, 0x456);
            end = place.named + nth * 100;
        }
    }

    #[test]
    fn addresses_that_are_used_up_are_an_error() {
        let (rig, link) = (Rig::new(), link(1));
        for bytes in [LAST_ADDRESS - FIRST_ADDRESS, u64::MAX] {
            let refused = rig.reserve(&link, bytes).unwrap_err();
            assert_eq!(refused, EngineError::GrantSpace { given: 0, bytes });
        }
        rig.reserve(&link, LAST_ADDRESS - FIRST_ADDRESS - 2 * PAGE)
            .unwrap();
        let refused = rig.reserve(&link, 1).unwrap_err();
        assert!(
            matches!(refused, EngineError::GrantSpace { bytes: 1, .. }),
            "{refused}"
        );
    }

    #[test]
    fn a_key_is_ended_at_its_time_and_not_before() {
        let (rig, [one, other]) = (Rig::new(), [link(1), link(2)]);
        rig.grant(&one, Some(HOUR));
        rig.grant(&one, Some(3 * HOUR));
        rig.grant(&one, None);
        rig.grant(&other, Some(HOUR));
        assert!(rig.keys.expire(1).is_some_and(|left| left <= HOUR));
        assert_eq!(rig.ended(), 0);
        rig.keys.clock.advance(HOUR);
        assert!(rig.keys.expire(1).is_some_and(|left| left > HOUR));
        assert_eq!((rig.ended(), rig.keys.count()), (1, 3));
        rig.keys.clock.advance(2 * HOUR);
        assert_eq!(rig.keys.expire(1), None);
        assert_eq!((rig.ended(), rig.keys.count()), (2, 2));
        assert_eq!(rig.keys.expire(2), None);
        assert_eq!((rig.ended(), rig.keys.count()), (3, 1));
    }

    #[test]
    fn a_key_that_the_hca_keeps_stays_and_is_ended_later() {
        let (rig, link) = (Rig::new(), link(1));
        let place = rig.reserve(&link, 1).unwrap();
        let key = Fake {
            failures: 2,
            ..rig.fake()
        };
        assert!(rig.keys.made(place.number, key, Some(HOUR)));
        let refused = rig.keys.end(place.number).unwrap_err();
        assert!(matches!(refused, EndError::Provider(_)), "{refused}");
        rig.keys.clock.advance(HOUR);
        let again = rig.keys.expire(1).expect("it is tried again");
        assert!(again <= AGAIN, "{again:?}");
        assert_eq!(rig.users.close(), Err(1));
        rig.keys.clock.advance(AGAIN);
        assert_eq!(rig.keys.expire(1), None);
        assert_eq!((rig.ended(), rig.users.close()), (1, Ok(())));
        rig.users.open();
        // The end of the connection tries at once, but not for ever.
        for (failures, left) in [(TRIES - 1, 0), (TRIES, 1)] {
            let place = rig.reserve(&link, 1).unwrap();
            let key = Fake {
                failures,
                ..rig.fake()
            };
            assert!(rig.keys.made(place.number, key, None));
            rig.keys.end_link(1);
            assert_eq!(rig.keys.count(), left);
        }
    }

    #[test]
    fn a_peer_that_copies_is_waited_for_once_for_all_keys_of_its_connection() {
        const KEYS: u32 = 50;
        let (rig, link) = (Rig::new(), link(1));
        let waits = || rig.waits.swap(0, Ordering::SeqCst);
        let grant_all = || {
            for _ in 0..KEYS {
                rig.grant(&link, None);
            }
        };
        grant_all();
        rig.keys.end_link(1);
        assert_eq!((waits(), rig.ended(), rig.keys.count()), (1, KEYS, 0));
        grant_all();
        rig.copies.store(true, Ordering::SeqCst);
        rig.keys.end_link(1);
        assert_eq!((waits(), rig.ended()), (TRIES, KEYS));
        assert_eq!(rig.users.close(), Err(KEYS));
        rig.copies.store(false, Ordering::SeqCst);
        rig.keys.end_all();
        assert_eq!((waits(), rig.ended(), rig.keys.count()), (1, 2 * KEYS, 0));
        assert_eq!(rig.users.close(), Ok(()));
    }

    #[test]
    fn a_key_that_has_outlived_its_connection_is_ended_by_any_other() {
        let (rig, [one, other]) = (Rig::new(), [link(1), link(2)]);
        rig.grant(&other, None);
        for ends in [
            |rig: &Rig| {
                assert!(rig.keys.expire(2).is_some_and(|next| next <= AGAIN));
                rig.keys.clock.advance(AGAIN);
                assert_eq!(rig.keys.expire(2), None);
            },
            |rig: &Rig| assert!(rig.keys.end_orphans() && !rig.keys.end_orphans()),
        ] {
            let place = rig.reserve(&one, 1).unwrap();
            let key = Fake {
                failures: TRIES,
                ..rig.fake()
            };
            assert!(rig.keys.made(place.number, key, None));
            rig.keys.end_link(1);
            assert_eq!((rig.ended(), rig.keys.count()), (0, 2));
            ends(&rig);
            assert_eq!(
                (rig.ended.swap(0, Ordering::SeqCst), rig.keys.count()),
                (1, 1)
            );
        }
    }

    #[test]
    fn threads_that_end_one_key_each_return_when_it_is_dead() {
        let (rig, link) = (Rig::new(), link(1));
        let ((begun, begins), (go, goes)) = (sync_channel(0), sync_channel(0));
        let place = rig.reserve(&link, 1).unwrap();
        let key = Fake {
            gate: Some((begun, goes)),
            ..rig.fake()
        };
        assert!(rig.keys.made(place.number, key, Some(HOUR)));
        rig.keys.clock.advance(HOUR);
        std::thread::scope(|scope| {
            let revoke = || {
                rig.keys.end(place.number).unwrap();
                rig.ended()
            };
            let first = scope.spawn(revoke);
            begins.recv().unwrap();
            let others = [
                scope.spawn(revoke),
                scope.spawn(|| {
                    rig.keys.expire(1);
                    rig.ended()
                }),
            ];
            let with_the_link = scope.spawn(|| {
                rig.keys.end_link(1);
                rig.ended()
            });
            go.send(()).unwrap();
            for thread in others.into_iter().chain([first, with_the_link]) {
                assert_eq!(thread.join().unwrap(), 1);
            }
        });
        assert_eq!(rig.keys.count(), 0);
        rig.keys.end(place.number).unwrap();
        for number in [0, place.number + 1] {
            let refused = rig.keys.end(number).unwrap_err();
            assert!(matches!(
                refused,
                EndError::Engine(EngineError::UnknownGrant { .. })
            ));
        }
    }

    #[test]
    fn no_key_outlives_its_connection_also_not_one_that_is_being_made() {
        let (rig, [one, other]) = (Rig::new(), [link(1), link(2)]);
        rig.grant(&one, None);
        let making = rig.reserve(&one, 1).unwrap();
        let kept = rig.grant(&other, None);
        one.break_off();
        rig.keys.end_link(1);
        assert_eq!((rig.ended(), rig.keys.count()), (1, 2));
        assert!(rig.reserve(&one, 1).is_err());
        // The thread that makes the key sees this, and ends it.
        assert!(!rig.keys.made(making.number, rig.fake(), None));
        rig.keys.end(making.number).unwrap();
        assert_eq!((rig.ended(), rig.keys.count()), (2, 1));
        let failed = rig.reserve(&other, 1).unwrap();
        rig.keys.not_made(failed.number);
        rig.keys.end(kept).unwrap();
        rig.keys.end_all();
        assert_eq!((rig.ended(), rig.users.close()), (3, Ok(())));
    }
}
