//! What an engine knows of another engine, across all connections to it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::ledger::report::Remote;
use crate::engine::lock::lock;
use crate::engine::memory::table::RemoteTable;
use crate::engine::route::link::Link;
use crate::engine::wire::notices::{Behind, Inbox, Notice, NoticeError, Outbox, Record, charge};

/// An engine remembers so many times its limit of peers, if it has exchanged notices with them. So a later connection goes on with the
/// notices.
const REMEMBERED: usize = 16;
/// Bytes that a life of a peer takes of the room for notices that the program has not taken, besides these notices.
const LIFE: u64 = 1024;

/// A report that another engine is gone. Its last connection has ended, not by this side's wish, and this side's QPs to it are reset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerGone {
    /// The name that the configuration of that engine gives it.
    pub name: String,
    /// The life of the engine.
    pub incarnation: u64,
    /// What is known of that engine's memory. Until its QPs are reset too, bytes that this side has sent may land there.
    pub remote: Remote,
    /// How the last connection has ended.
    pub reason: String,
}

/// One life of another engine.
#[derive(Debug)]
pub(in crate::engine) struct EngineLife {
    pub(in crate::engine) incarnation: u64,
    name: String,
    /// The regions of this engine life that were imported.
    pub(in crate::engine) remote: Mutex<Arc<RemoteTable>>,
    outbox: Mutex<Outbox>,
    inbox: Mutex<Inbox>,
    /// The connections to this life.
    links: Mutex<Vec<Arc<Link>>>,
}

impl EngineLife {
    /// Returns the notices that go to this life.
    pub(in crate::engine) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        lock(&self.outbox)
    }

    /// Returns what is known of notices that come from this life.
    pub(in crate::engine) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    /// Sends a notice, for which room was reserved.
    pub(in crate::engine) fn send(&self, transfer: Option<Behind>, bytes: Box<[u8]>) {
        self.outbox().push(transfer, bytes);
        self.wake();
    }

    /// Wakes the threads of its connections.
    fn wake(&self) {
        for wake in lock(&self.links).iter().filter_map(|link| link.wake()) {
            wake.wake();
        }
    }

    fn has_had_notices(&self) -> bool {
        self.inbox().accepted() > 0 || self.outbox().has_sent()
    }
}

/// An engine that this one has met.
#[derive(Debug)]
struct Met {
    /// The latest life of the engine.
    known: Arc<EngineLife>,
    /// Connections to that life.
    links: u32,
    /// The turn in which the last of these connections has ended.
    left: u64,
}

impl Met {
    fn is_used(&self) -> bool {
        self.links > 0 || Arc::strong_count(&self.known) > 1
    }
}

/// All engines that this one has met.
#[derive(Debug)]
pub(in crate::engine) struct EngineLives {
    /// The limit of peers. At most so many engines without a connection and a handle are kept, and at most so many reports of
    /// engines that are gone.
    most: usize,
    /// The most bytes of notices of all peers that the program has not taken. This is a full inbox of each, and as much again for lives
    /// that have ended.
    most_queued: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The engines, by name.
    engines: HashMap<String, Met>,
    /// The number of connections that have ended.
    turn: u64,
    /// Reports that the program has not taken yet.
    gone: VecDeque<PeerGone>,
    /// Notices that the program has not taken yet. Those of one engine are in the order in which it has sent them.
    notices: VecDeque<(Arc<EngineLife>, Record)>,
    /// The bytes of these notices, and what their lives take besides.
    queued: u64,
}

impl State {
    /// Makes room for one more engine. If `most` are known, this forgets those without a connection, a handle and notices. If
    /// [`REMEMBERED`] times as many are known even then, it forgets the unused engine that has left first.
    fn forget(&mut self, most: usize) {
        if self.engines.len() < most {
            return;
        }
        self.engines
            .retain(|_, met| met.is_used() || met.known.has_had_notices());
        if self.engines.len() < most.saturating_mul(REMEMBERED) {
            return;
        }
        // The less time has passed since an engine left, the more likely it comes back.
        let unused = self.engines.iter().filter(|(_, met)| !met.is_used());
        let oldest = unused.min_by_key(|(_, met)| met.left);
        if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
            tracing::warn!(
                "a connection to '{oldest}' does not go on with its notices: {most} peers are too many others"
            );
            self.engines.remove(&oldest);
        }
    }

    fn take_notice(&mut self) -> Option<(Arc<EngineLife>, Record)> {
        let (known, record) = self.notices.pop_front()?;
        let mut inbox = known.inbox();
        inbox.take(record.bytes.len());
        let life = if inbox.is_empty() { LIFE } else { 0 };
        self.queued -= charge(record.bytes.len()) + life;
        drop(inbox);
        Some((known, record))
    }
}

impl EngineLives {
    /// Returns the knowledge of an engine that has at most `most` peers, and for each peer an inbox of `inbox` bytes.
    pub(in crate::engine) fn new(most: u32, inbox: u32) -> Self {
        Self {
            most: most as usize,
            most_queued: 2 * u64::from(most) * (u64::from(inbox) + LIFE),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Adds a connection to this life of `name`. `theirs` is the size of the peer's inbox, `own` that of this engine's inbox for the peer.
    /// What was known of an earlier life is forgotten.
    pub(in crate::engine) fn enter(
        &self,
        name: &str,
        incarnation: u64,
        [theirs, own]: [u64; 2],
        link: &Arc<Link>,
    ) -> Arc<EngineLife> {
        let mut state = self.state();
        if !state.engines.contains_key(name) {
            state.forget(self.most);
        }
        let new = || {
            let known = EngineLife {
                incarnation,
                name: name.to_owned(),
                remote: Mutex::default(),
                outbox: Mutex::new(Outbox::new(theirs)),
                inbox: Mutex::new(Inbox::new(own)),
                links: Mutex::default(),
            };
            Met {
                known: Arc::new(known),
                links: 0,
                left: 0,
            }
        };
        let met = state.engines.entry(name.to_owned()).or_insert_with(new);
        if met.known.incarnation != incarnation {
            *met = new();
        }
        met.links += 1;
        lock(&met.known.links).push(Arc::clone(link));
        Arc::clone(&met.known)
    }

    /// Takes a connection out that has ended. `gone` is none if this side ended it. When it was the last connection of the
    /// engine, the report is kept for the program.
    pub(in crate::engine) fn leave(&self, known: &EngineLife, link: &Link, gone: Option<PeerGone>) {
        let EngineLife {
            name, incarnation, ..
        } = known;
        lock(&known.links).retain(|it| it.number() != link.number());
        if known.outbox().leave(link.number()) {
            known.wake();
        }
        let mut state = self.state();
        state.turn += 1;
        let turn = state.turn;
        let is_last = match state.engines.get_mut(name) {
            Some(met) if met.known.incarnation == *incarnation => {
                met.links -= 1;
                met.left = turn;
                met.links == 0
            }
            // A later life has taken the name.
            _ => true,
        };
        if let Some(gone) = gone.filter(|_| is_last) {
            if state.gone.len() >= self.most
                && let Some(oldest) = state.gone.pop_front()
            {
                tracing::warn!(
                    "the program has not asked which peers are gone, so the oldest is dropped: {oldest:?}"
                );
            }
            state.gone.push_back(gone);
            self.changed.notify_all();
        }
    }

    /// Returns the next engine that is gone. None: the time is over.
    pub(in crate::engine) fn gone(&self, most: Duration) -> Option<PeerGone> {
        self.next(most, |state| state.gone.pop_front())
    }

    fn next<T>(&self, most: Duration, mut look: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let end = Instant::now().checked_add(most);
        let mut state = self.state();
        loop {
            if let Some(found) = look(&mut state) {
                return Some(found);
            }
            let left = end.map_or(most, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes a notice in that has come from `known`.
    pub(in crate::engine) fn accept(
        &self,
        known: &Arc<EngineLife>,
        record: Record,
    ) -> Result<(), NoticeError> {
        // Under the lock: the notices that two connections bring stand in the order of their numbers.
        let mut state = self.state();
        let mut inbox = known.inbox();
        // A notice that has come before takes no room.
        if record.number < inbox.accepted() {
            return Ok(());
        }
        let life = if inbox.is_empty() { LIFE } else { 0 };
        let used = state.queued + charge(record.bytes.len()) + life;
        let most = self.most_queued;
        if used > most {
            return Err(NoticeError::Untaken { used, most });
        }
        if inbox.accept(record.number, record.bytes.len())? {
            state.queued = used;
            state.notices.push_back((Arc::clone(known), record));
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Returns the next notice, of any engine. None: the time is over.
    pub(in crate::engine) fn notice(&self, most: Duration) -> Option<Notice> {
        let (known, record) = self.next(most, State::take_notice)?;
        known.wake();
        Some(Notice {
            peer: known.name.clone(),
            incarnation: known.incarnation,
            bytes: record.bytes,
            transfer: record.transfer,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::limits::OVERHEAD;

    const INBOX: u32 = 1 << 17;

    fn link(number: u64) -> Arc<Link> {
        Arc::new(Link::new(number, 0, &[0], None))
    }

    fn enter(all: &EngineLives, life: (&str, u64), link: &Arc<Link>) -> Arc<EngineLife> {
        let (name, incarnation) = life;
        all.enter(name, incarnation, [INBOX.into(); 2], link)
    }

    fn record(number: u64, bytes: usize) -> Record {
        Record {
            number,
            transfer: None,
            bytes: vec![0; bytes].into(),
        }
    }

    /// Connects a life of a peer, which sends a notice that the program takes, and goes.
    fn visit(all: &EngineLives, name: &str, number: u64) {
        let link = link(number);
        let known = enter(all, (name, 1), &link);
        let due = known.inbox().accepted();
        all.accept(&known, record(due, 0)).unwrap();
        all.notice(Duration::ZERO).expect("it has come");
        all.leave(&known, &link, None);
    }

    #[test]
    fn of_too_many_that_have_gone_the_one_that_has_gone_first_is_forgotten() {
        let all = EngineLives::new(1, INBOX);
        let names: Vec<String> = (0..=REMEMBERED).map(|nth| nth.to_string()).collect();
        for (name, number) in names.iter().zip(0..).take(REMEMBERED) {
            visit(&all, name, number);
        }
        // The first comes back, and goes after the second.
        visit(&all, &names[0], 100);
        visit(&all, &names[REMEMBERED], 101);
        let accepted = |name: &String| {
            let state = all.state();
            let met = state.engines.get(name)?;
            Some(met.known.inbox().accepted())
        };
        let found: Vec<Option<u64>> = names.iter().map(accepted).collect();
        let mut expected = vec![Some(1); REMEMBERED + 1];
        (expected[0], expected[1]) = (Some(2), None);
        assert_eq!(found, expected);
    }

    #[test]
    fn a_notice_that_has_come_before_is_dropped_where_there_is_no_room_either() {
        const BYTES: usize = 1 << 16;
        let all = EngineLives::new(1, INBOX);
        let most = 2 * (u64::from(INBOX) + LIFE);
        let room = most / (BYTES as u64 + OVERHEAD + LIFE);
        let come = |life: u64, number| {
            let link = link(life);
            let known = enter(&all, ("a", life), &link);
            (all.accept(&known, record(number, BYTES)), known)
        };
        let (_, first) = come(0, 0);
        let lives: Vec<_> = (1..room).map(|life| come(life, 0)).collect();
        assert!(lives.iter().all(|(accepted, _)| *accepted == Ok(())));
        let refused = all.accept(&first, record(1, BYTES));
        assert!(
            matches!(refused, Err(NoticeError::Untaken { .. })),
            "{refused:?}"
        );
        assert_eq!(all.accept(&first, record(0, BYTES)), Ok(()));
        let taken = std::iter::from_fn(|| all.notice(Duration::ZERO)).count();
        assert_eq!(taken as u64, room);
    }

    #[test]
    fn lives_of_which_the_program_takes_nothing_have_a_bound_together() {
        const BYTES: usize = 1 << 16;
        let each = BYTES as u64 + OVERHEAD + LIFE;
        for is_one_name in [true, false] {
            let all = EngineLives::new(2, INBOX);
            let most = 4 * (u64::from(INBOX) + LIFE);
            let visit = |life: u64| {
                let name = if is_one_name { 0 } else { life }.to_string();
                let link = link(life);
                let known = enter(&all, (&name, life), &link);
                let accepted = all.accept(&known, record(0, BYTES));
                all.leave(&known, &link, None);
                accepted
            };
            let room = most / each;
            for life in 0..room {
                assert_eq!(visit(life), Ok(()), "{life}");
            }
            let used = (room + 1) * each;
            assert_eq!(visit(room), Err(NoticeError::Untaken { used, most }));
            // The program takes one notice.
            all.notice(Duration::ZERO).expect("it has come");
            assert_eq!(visit(room + 1), Ok(()));
            while all.notice(Duration::ZERO).is_some() {}
            assert_eq!(all.state().queued, 0);
        }
    }
}
