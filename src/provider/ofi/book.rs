//! The operations of a lane: those that wait because the provider has refused them, those under way, and those that are done.
//!
//! A WQE is one operation or several (`split`), with one account. A WQE that counts at the peer does so by its last operation, which is
//! held until the others are done: nothing keeps operations in order. Operations complete one by one, in any order.

use std::collections::VecDeque;

use super::split::{Limits, Piece, Pieces};
#[cfg(test)]
use super::trial::Planted;
use crate::provider::{Cause, Counted, LocalRange, Tag, Verb, Work};

/// An operation to post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) is_read: bool,
    /// The counter of the peer at which the operation counts.
    pub(super) counter: Option<u32>,
    /// What names the first byte at the peer, with `key`.
    pub(super) remote: u64,
    pub(super) key: u32,
    pub(super) piece: Piece,
    /// The number of its account.
    account: u16,
}

impl Op {
    /// Returns a write of one range that is in no book.
    pub(super) fn first(range: LocalRange, remote: u64, key: u32) -> Option<Self> {
        let mut pieces = Pieces::new(std::slice::from_ref(&range), Limits::new(0, 1));
        Some(Self {
            is_read: false,
            counter: None,
            remote,
            key,
            piece: pieces.next()?,
            account: 0,
        })
    }
}

/// Why an operation was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is to be tried again.
    Again,
    /// It is refused for good.
    Failed(Cause),
}

/// A WQE that is not accounted for.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    tag: Tag,
    /// The counter of the peer at which the WQE counts.
    counter: Option<u16>,
    /// The number of operations that are refused or under way.
    parts: u32,
    /// The operation that is held until the others are done.
    last: Option<Op>,
    cause: Option<Cause>,
}

/// The operations of one lane.
#[derive(Debug)]
pub(super) struct Book {
    limits: Limits,
    /// The accounts, by number. None: the number is free.
    accounts: Box<[Option<Account>]>,
    free_accounts: Vec<u16>,
    /// The account of the operation under way with each context.
    contexts: Box<[Option<u16>]>,
    /// The contexts that no operation has. The one that was longest free is taken first, so that a completion which comes twice is seen.
    free_contexts: VecDeque<u16>,
    /// The operations that are to be posted, in order.
    queue: VecDeque<Op>,
    finished: VecDeque<(Tag, Option<Cause>)>,
    /// The WQEs that are done and count at the peer.
    counted: Counted,
    /// The number of WQEs that are not accounted for.
    in_flight: u32,
    /// True if no operation is posted any more.
    has_failed: bool,
    #[cfg(test)]
    defect: Defect,
}

/// What a planted defect needs.
#[cfg(test)]
#[derive(Debug, Default)]
struct Defect {
    planted: Option<Planted>,
    /// The contexts of operations under way, in the order of their posts.
    posted: VecDeque<u16>,
    /// Contexts that the provider still has, of operations that were taken for done.
    early: Vec<u16>,
}

/// How far a turn has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Driven {
    /// Nothing waits that could be posted.
    All,
    /// All contexts are taken: the next turn is after a completion.
    Full,
    /// The provider has refused an operation.
    Refused,
}

impl Book {
    /// Returns a book for `depth` WQEs and as many operations under way.
    pub(super) fn new(depth: u16, limits: Limits) -> Self {
        Self {
            limits,
            accounts: vec![None; depth.into()].into(),
            free_accounts: (0..depth).rev().collect(),
            contexts: vec![None; depth.into()].into(),
            free_contexts: (0..depth).collect(),
            queue: VecDeque::with_capacity(depth.into()),
            finished: VecDeque::new(),
            counted: Counted::default(),
            in_flight: 0,
            has_failed: false,
            #[cfg(test)]
            defect: Defect::default(),
        }
    }

    /// Returns how many more WQEs the lane takes.
    pub(super) fn room(&self) -> u32 {
        u32::try_from(self.free_accounts.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Returns whether operations are to be posted.
    pub(super) fn waits(&self) -> bool {
        !self.queue.is_empty() && !self.has_failed
    }

    /// Returns whether all contexts are taken.
    pub(super) fn is_full(&self) -> bool {
        self.free_contexts.is_empty()
    }

    /// Returns whether WQEs are done, or have failed, without a completion of the provider.
    pub(super) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Returns the first cause among those WQEs.
    pub(super) fn first_cause(&self) -> Option<Cause> {
        let causes = || self.finished.iter().filter_map(|(_, cause)| *cause);
        let own = causes().find(|cause| !cause.is_flush());
        own.or_else(|| causes().next())
    }

    /// Takes a WQE, whose operations wait for the next turn. Returns false if there is no room.
    pub(super) fn take(&mut self, work: &Work, ranges: &[LocalRange]) -> bool {
        let Some(number) = self.free_accounts.pop() else {
            return false;
        };
        let counter = match work.verb {
            Verb::WriteImmediate(counter) => Some(counter),
            Verb::Write | Verb::Read => None,
        };
        let mut account = Account {
            tag: work.tag,
            counter: counter.and_then(|counter| u16::try_from(counter).ok()),
            ..Account::default()
        };
        let mut remote = work.remote;
        let mut pieces = Pieces::new(ranges, self.limits).peekable();
        while let Some(piece) = pieces.next() {
            let is_last = pieces.peek().is_none();
            let op = Op {
                is_read: work.verb == Verb::Read,
                counter: counter.filter(|_| is_last),
                remote,
                key: work.key,
                piece,
                account: number,
            };
            remote = remote.wrapping_add(piece.bytes());
            #[cfg(test)]
            if self.loses(&op, account.parts) {
                continue;
            }
            if op.counter.is_some() && account.parts > 0 {
                account.last = Some(op);
            } else {
                account.parts += 1;
                self.queue.push_back(op);
            }
        }
        self.accounts[usize::from(number)] = Some(account);
        self.in_flight += 1;
        true
    }

    /// Posts operations, the first that waits first, until one is refused. `post` takes the number of the context.
    pub(super) fn drive(
        &mut self,
        mut post: impl FnMut(&Op, u16) -> Result<(), Refused>,
    ) -> Driven {
        while !self.has_failed
            && let Some(op) = self.queue.front()
        {
            let Some(context) = self.free_contexts.pop_front() else {
                return Driven::Full;
            };
            let account = op.account;
            match post(op, context) {
                Ok(()) => {
                    self.contexts[usize::from(context)] = Some(account);
                    self.queue.pop_front();
                    #[cfg(test)]
                    self.note_post(context);
                }
                Err(Refused::Again) => {
                    self.free_contexts.push_front(context);
                    #[cfg(test)]
                    self.mistake_refusal();
                    return Driven::Refused;
                }
                Err(Refused::Failed(cause)) => {
                    self.free_contexts.push_front(context);
                    self.queue.pop_front();
                    let done = self.end_part(account, Some(cause));
                    self.finished.extend(done);
                }
            }
        }
        Driven::All
    }

    /// Takes the completion of the operation with this context. Returns its WQE if that is accounted for now. A context that no operation
    /// has is no completion of this lane: the provider is faulty, and the lane ignores it.
    pub(super) fn complete(
        &mut self,
        context: u16,
        cause: Option<Cause>,
    ) -> Option<(Tag, Option<Cause>)> {
        let account = self.contexts.get_mut(usize::from(context));
        let Some(account) = account.and_then(Option::take) else {
            #[cfg(test)]
            self.give_early(context);
            tracing::error!("a completion of context {context}, which no operation has");
            return None;
        };
        self.free_contexts.push_back(context);
        #[cfg(test)]
        self.end_prefix(context);
        let done = self.end_part(account, cause)?;
        self.in_flight -= 1;
        Some(done)
    }

    /// Ends one operation of an account. Returns the WQE if it was the last.
    fn end_part(&mut self, number: u16, cause: Option<Cause>) -> Option<(Tag, Option<Cause>)> {
        self.has_failed |= cause.is_some();
        let place = self.accounts.get_mut(usize::from(number))?;
        let account = place.as_mut()?;
        account.cause = account.cause.or(cause);
        account.parts -= 1;
        if account.parts > 0 {
            return None;
        }
        // An operation that counts does not follow one that has failed.
        if let (None, Some(last)) = (account.cause, account.last.take()) {
            account.parts = 1;
            self.queue.push_front(last);
            return None;
        }
        let done = (account.tag, account.cause);
        if let (None, Some(counter)) = (account.cause, account.counter) {
            self.counted.add(counter);
        }
        *place = None;
        self.free_accounts.push(number);
        Some(done)
    }

    /// Fails all WQEs. The endpoint is closed, so the provider has no operation any more.
    pub(super) fn fail(&mut self, cause: Cause) {
        self.has_failed = true;
        self.queue.clear();
        self.contexts.fill(None);
        for account in &mut self.accounts {
            if let Some(account) = account.take() {
                let cause = account.cause.unwrap_or(cause);
                self.finished.push_back((account.tag, Some(cause)));
            }
        }
        // Nothing is posted any more.
        self.free_accounts.clear();
    }

    /// Accounts for the WQEs that are done, or have failed, without a completion of the provider.
    pub(super) fn finish(&mut self, mut each: impl FnMut(Tag, Option<Cause>)) {
        for (tag, cause) in self.finished.drain(..) {
            self.in_flight -= 1;
            each(tag, cause);
        }
    }

    /// Takes the number of WQEs that are done, by the counter of the peer at which they count.
    pub(super) fn take_counted(&mut self) -> Counted {
        std::mem::take(&mut self.counted)
    }

    /// Returns whether a WQE of transfer slot `slot` is not accounted for.
    pub(super) fn holds(&self, slot: u32) -> bool {
        let mut accounts = self.accounts.iter().flatten();
        let mut finished = self.finished.iter();
        accounts.any(|account| account.tag.slot == slot)
            || finished.any(|(tag, _)| tag.slot == slot)
    }
}

/// The defects that tests plant.
#[cfg(test)]
impl Book {
    pub(super) fn with_planted(mut self, planted: Option<Planted>) -> Self {
        self.defect.planted = planted;
        self
    }

    /// [`Planted::LostPart`]: returns whether this operation of a WQE is left out, of which there are `parts` before.
    fn loses(&self, op: &Op, parts: u32) -> bool {
        self.defect.planted == Some(Planted::LostPart) && parts > 0 && op.counter.is_none()
    }

    /// [`Planted::Dropped`], [`Planted::Overtaken`]: the operation that waits first was refused for now.
    fn mistake_refusal(&mut self) {
        match self.defect.planted {
            Some(Planted::Dropped) => {
                self.queue.pop_front();
            }
            Some(Planted::Overtaken) => {
                let Some(refused) = self.queue.pop_front() else {
                    return;
                };
                self.queue.push_back(refused);
                let account = self.accounts.get_mut(usize::from(refused.account));
                let Some(account) = account.and_then(Option::as_mut) else {
                    return;
                };
                if let Some(last) = account.last.take() {
                    account.parts += 1;
                    self.queue.push_front(last);
                }
            }
            _ => {}
        }
    }

    fn note_post(&mut self, context: u16) {
        if self.defect.planted == Some(Planted::Prefix) {
            self.defect.posted.push_back(context);
        }
    }

    /// [`Planted::Prefix`]: the operation with this context is done, so all are taken for done that were posted before.
    fn end_prefix(&mut self, context: u16) {
        let mut posted = self.defect.posted.iter();
        let Some(at) = posted.position(|it| *it == context) else {
            return;
        };
        let before: Vec<u16> = self.defect.posted.drain(..=at).collect();
        for context in before {
            if let Some(account) = self.contexts[usize::from(context)].take() {
                self.defect.early.push(context);
                let done = self.end_part(account, None);
                self.finished.extend(done);
            }
        }
    }

    /// [`Planted::Prefix`]: the provider gives a context back whose operation was taken for done.
    fn give_early(&mut self, context: u16) {
        let mut early = self.defect.early.iter();
        if let Some(at) = early.position(|it| *it == context) {
            self.defect.early.swap_remove(at);
            self.free_contexts.push_back(context);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::provider::Chain;

    const BAD: Cause = Cause::of_libfabric(22, 0);

    fn tag(slice: u32) -> Tag {
        Tag { slot: 1, slice }
    }

    /// Takes WQEs of so many bytes each, from slice `first` on.
    fn take(book: &mut Book, verb: Verb, first: u32, bytes: &[u32]) {
        let mut chain = Chain::default();
        for (slice, bytes) in (first..).zip(bytes) {
            let (address, key, bytes) = (1 << 20, 3, *bytes);
            let range = LocalRange {
                address,
                key,
                bytes,
            };
            chain.push(verb, tag(slice), 1 << 30, 4, [range]);
        }
        for (work, ranges) in chain.from(0) {
            assert!(book.take(work, ranges));
        }
    }

    fn book(depth: u16) -> Book {
        Book::new(depth, Limits::new(100, 4))
    }

    #[test]
    fn what_is_refused_is_posted_first_and_nothing_overtakes_it() {
        let mut book = book(8);
        take(&mut book, Verb::Write, 0, &[1, 2, 3]);
        let mut posted = Vec::new();
        let mut tries = 0;
        let driven = book.drive(|op, context| {
            tries += 1;
            posted.push((op.piece.bytes(), context));
            if tries == 2 {
                Err(Refused::Again)
            } else {
                Ok(())
            }
        });
        assert_eq!(
            (driven, posted.as_slice()),
            (Driven::Refused, &[(1, 0), (2, 1)][..])
        );
        take(&mut book, Verb::Write, 3, &[4]);
        assert!(book.waits());
        posted.clear();
        let driven = book.drive(|op, context| {
            posted.push((op.piece.bytes(), context));
            Ok(())
        });
        assert_eq!(
            (driven, posted.as_slice()),
            (Driven::All, &[(2, 1), (3, 2), (4, 3)][..])
        );
        assert!(!book.waits());
        // They complete in any order.
        for (context, slice) in [(2, 2), (0, 0), (3, 3), (1, 1)] {
            assert_eq!(book.complete(context, None), Some((tag(slice), None)));
        }
        assert_eq!((book.in_flight(), book.room()), (0, 8));
    }

    #[test]
    fn a_wqe_in_parts_is_done_when_all_are_and_counts_by_the_last() {
        let mut book = book(8);
        take(&mut book, Verb::WriteImmediate(7), 0, &[250]);
        let mut posted = Vec::new();
        let mut post = |book: &mut Book| {
            posted.clear();
            book.drive(|op, _| {
                posted.push((op.remote - (1 << 30), op.piece.bytes(), op.counter));
                Ok(())
            });
            posted.clone()
        };
        assert_eq!(post(&mut book), [(0, 100, None), (100, 100, None)]);
        assert_eq!(book.complete(1, None), None);
        assert_eq!(post(&mut book), []);
        assert_eq!(book.complete(0, None), None);
        assert_eq!(post(&mut book), [(200, 50, Some(7))]);
        assert_eq!(book.in_flight(), 1);
        assert_eq!(book.take_counted().at(7), 0);
        assert_eq!(book.complete(2, None), Some((tag(0), None)));
        assert_eq!((book.in_flight(), book.take_counted().at(7)), (0, 1));
    }

    #[test]
    fn after_a_part_that_has_failed_the_last_is_not_posted_and_nothing_counts() {
        let mut book = book(8);
        take(&mut book, Verb::WriteImmediate(7), 0, &[250]);
        assert_eq!(book.drive(|_, _| Ok(())), Driven::All);
        assert_eq!(book.complete(0, Some(BAD)), None);
        assert_eq!(book.complete(1, None), Some((tag(0), Some(BAD))));
        take(&mut book, Verb::Write, 1, &[1]);
        assert_eq!(
            book.drive(|_, _| panic!("a lane that has failed posts")),
            Driven::All
        );
        book.fail(Cause::FLUSHED);
        let mut done = Vec::new();
        book.finish(|tag, cause| done.push((tag, cause)));
        assert_eq!(done, [(tag(1), Some(Cause::FLUSHED))]);
        assert_eq!((book.in_flight(), book.room()), (0, 0));
        assert_eq!(book.take_counted().at(7), 0);
    }

    #[test]
    fn an_operation_refused_for_good_is_finished_without_a_completion() {
        let mut book = book(8);
        take(&mut book, Verb::Read, 0, &[1, 1]);
        let driven = book.drive(|op, _| {
            assert!(op.is_read);
            Err(Refused::Failed(BAD))
        });
        assert!(driven == Driven::All && book.has_finished() && book.has_failed());
        assert!(book.holds(1) && !book.holds(2));
        book.fail(Cause::FLUSHED);
        assert_eq!(book.first_cause(), Some(BAD));
        let mut done = Vec::new();
        book.finish(|tag, cause| done.push((tag.slice, cause)));
        assert_eq!(done, [(0, Some(BAD)), (1, Some(Cause::FLUSHED))]);
        assert!(!book.holds(1));
    }

    #[test]
    fn contexts_that_no_operation_has_are_ignored() {
        let mut book = book(4);
        take(&mut book, Verb::Write, 0, &[1]);
        assert_eq!(book.complete(0, None), None);
        assert_eq!(book.drive(|_, _| Ok(())), Driven::All);
        for context in [1, 3, 4, u16::MAX] {
            assert_eq!(book.complete(context, None), None);
        }
        assert_eq!(book.complete(0, None), Some((tag(0), None)));
        assert_eq!(book.complete(0, None), None);
        assert_eq!(book.in_flight(), 0);
    }

    /// A provider that refuses, completes and fails at random, in any order.
    #[test]
    fn every_wqe_is_accounted_for_once_through_random_turns() {
        let full = std::env::var_os("WV_TEST_FULL").is_some();
        for _ in 0..if full { 3000 } else { 300 } {
            let seed = fastrand::u64(..);
            let mut random = fastrand::Rng::with_seed(seed);
            let depth = random.u16(1..9);
            let mut book = book(depth);
            let fails = random.bool();
            let (mut under_way, mut counts) = (Vec::new(), HashMap::new());
            let mut next = 0;
            for _ in 0..400 {
                if random.bool() && book.room() > 0 {
                    let verb = *random
                        .choice(&[Verb::Write, Verb::WriteImmediate(1)])
                        .unwrap();
                    take(&mut book, verb, next, &[random.u32(1..350)]);
                    next += 1;
                }
                let driven = book.drive(|_, context| match random.u32(0..9) {
                    0..3 => Err(Refused::Again),
                    3 if fails && random.u32(0..20) == 0 => Err(Refused::Failed(BAD)),
                    _ => {
                        assert!(!under_way.contains(&context), "seed {seed}");
                        under_way.push(context);
                        Ok(())
                    }
                });
                assert_eq!(driven == Driven::All, !book.waits(), "seed {seed}");
                if !under_way.is_empty() && random.bool() {
                    let context = under_way.swap_remove(random.usize(..under_way.len()));
                    let cause = (fails && random.u32(0..40) == 0).then_some(BAD);
                    if let Some((tag, _)) = book.complete(context, cause) {
                        *counts.entry(tag.slice).or_insert(0) += 1;
                    }
                }
                let stray = random.u16(..) >> random.u32(0..16);
                if !under_way.contains(&stray) {
                    assert_eq!(book.complete(stray, None), None, "seed {seed}");
                }
                book.finish(|tag, _| *counts.entry(tag.slice).or_insert(0) += 1);
                assert_eq!(
                    book.in_flight() as usize,
                    next as usize - counts.len(),
                    "seed {seed}"
                );
                if book.has_failed() {
                    break;
                }
            }
            book.fail(Cause::FLUSHED);
            book.finish(|tag, _| *counts.entry(tag.slice).or_insert(0) += 1);
            assert_eq!(
                (book.in_flight(), counts.len()),
                (0, next as usize),
                "seed {seed}"
            );
            assert!(counts.values().all(|count| *count == 1), "seed {seed}");
        }
    }
}
