//! The next step of a thread: begin, write, publish, wait. `admission` and `serve` have the other steps.

use super::Violation;
use super::configuration::{Configuration, Fence, Op};
use super::model::Move;
use super::property::{Mutant, Property};
use super::state::{At, LANE, State, Thread, Word, Words, batch_at, bit, block, parked, written};
use crate::explore::broken;

/// A thread of a state that is about to take a step.
pub(crate) struct Step<'a> {
    pub(crate) configuration: &'a Configuration,
    pub(crate) words: &'a Words,
    pub(crate) thread: &'a Thread,
    pub(crate) op: Op,
    /// All threads, this one included.
    pub(crate) threads: &'a [Thread],
    /// The results of the steps found so far: words and thread after each. No place has more than three.
    next: [Option<(Words, Thread)>; 3],
}

impl Configuration {
    /// Emits the steps of thread `number`, and those in which its stores become visible.
    pub(crate) fn thread_steps(
        &self,
        state: &State,
        number: usize,
        emit: &mut impl FnMut(Move, State),
    ) -> Result<(), Violation> {
        let thread = &state.threads()[number];
        let stores = thread.buffer.stores();
        for (at, (word, value)) in stores.iter().enumerate() {
            // Stores to one word become visible in order, and stores to different words in any order.
            if stores[..at].iter().any(|(earlier, _)| earlier == word) {
                continue;
            }
            let mut next = *state;
            self.commit(&mut next, usize::from(*word & !LANE), *value, thread.life)?;
            next.thread(number).buffer.remove(at);
            emit(Move::Store(number, *word), next);
        }
        self.lane_steps(state, number, emit);
        let program = self.programs.get(usize::from(thread.program));
        let op = program.and_then(|ops| ops.get(usize::from(thread.done)));
        if op.is_none() && thread.at == At::Idle {
            return Ok(());
        }
        let mut step = Step {
            configuration: self,
            words: &state.words,
            thread,
            op: op.copied().unwrap_or_default(),
            threads: state.threads(),
            next: [None; 3],
        };
        step.take()?;
        for (words, thread) in step.next.into_iter().flatten() {
            let mut next = *state;
            next.words = words;
            *next.thread(number) = thread;
            emit(Move::Thread(number, step.thread.at), next);
        }
        Ok(())
    }
}

impl Step<'_> {
    fn take(&mut self) -> Result<(), Violation> {
        match self.thread.at {
            At::Idle => self.begin(),
            At::GuardCountLate => self.goto_with(At::Admit, &[self.add(Word::READERS, 1)], |_| ()),
            At::GuardCheck => self.guard_check(),
            At::GuardDrop => self.guard_drop(),
            At::Flush => self.flush()?,
            At::Stale => self.stale()?,
            At::Admit => self.admit()?,
            At::ReserveByCas => self.reserve_by_cas()?,
            At::Undo => self.undo()?,
            At::AdmitWait => self.admit_wait()?,
            At::Reserve => self.reserve()?,
            At::SlotWait => self.slot_wait()?,
            At::Write => self.write()?,
            At::Peek => self.peek()?,
            At::Publish => self.publish()?,
            At::Wait => self.wait()?,
            At::Scan => self.scan()?,
            At::HoldFence => self.hold_fence()?,
            At::RingFence => self.ring_fence()?,
            At::Park => self.park()?,
            At::LeaveCas => self.leave_cas()?,
            At::LeaveFence => self.leave_fence()?,
            At::LeavePark => self.leave_park()?,
            At::RecordFence => self.record_fence()?,
            At::Barrier => self.barrier(),
            At::ExclusivePublish => self.exclusive_publish()?,
            At::ExclusiveRing => self.exclusive_ring()?,
            At::Agent => self.agent(),
            At::PollCons => self.poll_cons(),
            At::PollEntry => self.poll_entry(),
            At::PollRecheck => self.poll_recheck(),
            At::PollConsLate => self.poll_cons_late(),
            At::PollTake => self.poll_take()?,
            At::PollCas => self.poll_cas(),
            At::PollSyndrome => self.poll_syndrome()?,
            At::Refresh => self.refresh(),
            At::RefreshDrop => self.refresh_drop(),
            At::Held => self.held(),
        }
        Ok(())
    }

    // ---- how steps are written down ----

    pub(crate) fn word(&self, word: usize) -> i32 {
        self.words[word]
    }

    pub(crate) fn is(&self, mutant: Mutant) -> bool {
        self.configuration.mutant == mutant
    }

    pub(crate) fn has(&self, bit: i32) -> bool {
        self.thread.bits & bit != 0
    }

    pub(crate) fn add(&self, word: usize, by: i32) -> (usize, i32) {
        (word, self.words[word] + by)
    }

    /// Changes `words` at once, as a read-modify-write or as a load that found something, and goes on at `at`.
    pub(crate) fn goto_with(
        &mut self,
        at: At,
        words: &[(usize, i32)],
        change: impl FnOnce(&mut Thread),
    ) {
        let mut thread = *self.thread;
        thread.at = at;
        change(&mut thread);
        self.finish(words, thread);
    }

    pub(crate) fn goto(&mut self, at: At, change: impl FnOnce(&mut Thread)) {
        self.goto_with(at, &[], change);
    }

    pub(crate) fn finish(&mut self, words: &[(usize, i32)], thread: Thread) {
        let mut all = *self.words;
        for (word, value) in words {
            all[*word] = *value;
        }
        let free = self.next.iter_mut().find(|next| next.is_none());
        *free.unwrap() = Some((all, thread));
    }

    /// Ends the operation, whose own result does not matter here.
    pub(crate) fn ends(&mut self, words: &[(usize, i32)]) {
        let thread = *self.thread;
        self.ends_as(&thread, words);
    }

    fn ends_as(&mut self, before: &Thread, words: &[(usize, i32)]) {
        if before.lanes != 0 {
            // The lanes of a warp end together.
            return;
        }
        let mut thread = before.cleared(At::Idle);
        if self.configuration.persistent {
            thread.at = At::Refresh;
            thread.life = before.life;
        } else if self.configuration.guard {
            thread.at = At::GuardDrop;
            thread.life = before.life;
        } else {
            thread.done += 1;
        }
        self.finish(words, thread);
    }

    /// Lets the put return its ticket. `store` is one more store, which is not yet visible.
    pub(crate) fn posted(&mut self, words: &[(usize, i32)], store: Option<(u8, i32)>) {
        let mut before = *self.thread;
        if let Some(store) = store {
            before.buffer.push(store);
        }
        let is_nop = self.has(bit::NOP);
        if !is_nop && !self.op.flags.wait {
            self.ends_as(&before, words);
        } else {
            let mut thread = before.cleared(At::Wait);
            thread.life = before.life;
            if is_nop {
                thread.bits = bit::NOP_POSTED;
                thread.ticket = before.ticket;
            } else {
                thread.bits = before.bits & bit::HELD;
                thread.ticket = before.index + before.blocks;
            }
            self.finish(words, thread);
        }
    }

    /// Ghost: checks that nothing of an old life acts after the reset.
    pub(crate) fn in_life(&self) -> Result<(), Violation> {
        let now = self.word(Word::LIFE);
        if self.thread.life != now && !self.configuration.free {
            return broken(
                Property::Life,
                format!(
                    "a thread of life {} acts in {now} at {:?}",
                    self.thread.life, self.thread.at
                ),
            );
        }
        Ok(())
    }

    // ---- what is no put ----

    /// Rings for everything reserved so far, or posts a NOP that rings.
    fn flush(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        if self.word(Word::DOORBELL_INDEX) >= self.word(Word::RESV)
            || self.is(Mutant::FlushDoesNothing)
        {
            self.ends(&[]);
        } else {
            self.goto(At::Admit, |thread| thread.blocks = 1);
        }
        Ok(())
    }

    fn stale(&mut self) -> Result<(), Violation> {
        let ticket = self.thread.ticket;
        let life = self.word(Word::LIFE);
        let is_stale =
            ticket <= self.word(Word::BASE) && !self.is(Mutant::NoStaleCheck) && life != 0;
        if self.word(Word::CONS) >= ticket && !is_stale && life > 0 {
            return broken(
                Property::Stale,
                format!("ticket {ticket} of life 0 reported done in {life}"),
            );
        }
        self.ends(&[]);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        let ticket = self.thread.ticket;
        let stale = ticket <= self.word(Word::BASE) && self.word(Word::LIFE) != 0;
        let failed = self.word(Word::ERR) != 0 && !self.is(Mutant::ErrorNotSeenByWait);
        if stale || self.word(Word::CONS) >= ticket || failed {
            self.ends(&[]);
            return Ok(());
        }
        self.poll()?;
        let unrung = ticket > self.word(Word::DOORBELL_INDEX);
        if self.has(bit::HELD) && unrung && !self.is(Mutant::WaitDoesNotRing) {
            self.goto(At::Admit, |thread| {
                thread.blocks = 1;
                thread.bits = bit::NOP;
            });
        }
        Ok(())
    }

    // ---- WQEs and publication ----

    fn write(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        let c = self.configuration;
        let (index, blocks) = (self.thread.index, self.thread.blocks);
        let is_nop = self.has(bit::NOP);
        let crosses = c.crosses(index, blocks);
        let wanted = self.op.flags.wait;
        let signalled = if self.is(Mutant::SignalOnRequestOnly) && !is_nop {
            wanted
        } else {
            wanted || is_nop || crosses
        };
        let two = self.op.flags.two && !is_nop;
        let two_signalled = self.is(Mutant::TwoBlocksSignalled);
        let wqe = |at| {
            let here = index + at;
            let content = match at {
                0 if two => block::new(here, block::HEAD, two_signalled),
                1 if two => block::new(here, block::TAIL, false),
                _ => block::new(here, block::SINGLE, signalled && at == blocks - 1),
            };
            (u8::try_from(c.block(here)).unwrap(), content)
        };
        let keep = !is_nop && (!crosses || self.is(Mutant::HoldBackWithoutLimit));
        // The leader is the first lane, and writes its own WQE.
        let own = if c.lanes { 1 } else { blocks };
        let at = if c.lanes {
            At::Barrier
        } else if c.is_alone() {
            At::ExclusivePublish
        } else {
            At::Peek
        };
        self.goto(at, |thread| {
            for at in 0..own {
                thread.buffer.push(wqe(at));
            }
            for at in own..blocks {
                thread.lanes |= 1 << at;
            }
            if c.block {
                for at in 0..blocks {
                    thread.known |= 1 << (index + at).rem_euclid(c.depth);
                }
            }
            if !keep {
                thread.bits &= !bit::MORE;
            }
        });
        Ok(())
    }

    fn peek(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        let c = self.configuration;
        // The record may be read because of an older doorbell, so WQEs are fenced before the record is written.
        if !self.fence(Fence::Publish)
            && c.record
            && !self.is(Mutant::OneFenceWithRecord)
            && !self.is(Mutant::NoPublishFence)
        {
            return Ok(());
        }
        let flag = self.word(c.flag(self.thread.index));
        if self.is_parked(flag, self.thread.index)? {
            self.take_token(flag, None)
        } else {
            self.goto(At::Publish, |_| ());
            Ok(())
        }
    }

    /// Runs fence.release, then one exchange.
    fn publish(&mut self) -> Result<(), Violation> {
        if !self.fence(Fence::Publish) && !self.is(Mutant::NoPublishFence) {
            return Ok(());
        }
        self.in_life()?;
        let c = self.configuration;
        let (index, blocks) = (self.thread.index, self.thread.blocks);
        let word = c.flag(index);
        let flag = self.word(word);
        let exchanged = (word, written(index, blocks, self.has(bit::MORE)));
        if self.is_parked(flag, index)? {
            self.take_token(flag, Some(exchanged))
        } else if c.block {
            let released = self.released(!self.is(Mutant::PublishFenceMissing));
            self.posted(&[exchanged, (c.flag_knows(index), released)], None);
            Ok(())
        } else {
            self.posted(&[exchanged], None);
            Ok(())
        }
    }

    fn take_token(&mut self, flag: i32, exchanged: Option<(usize, i32)>) -> Result<(), Violation> {
        let index = self.thread.index;
        let token = self.word(Word::TOKEN);
        if token != index {
            return broken(
                Property::OneToken,
                format!("the token is taken at {index}, but it is at {token} (-1: held)"),
            );
        }
        let owed = flag & 2 != 0;
        let must = !self.has(bit::MORE) || owed;
        let held = (Word::TOKEN, -1);
        let told = self.told_by(index);
        let late_barrier = self.is(Mutant::BarrierAfterFence);
        self.goto_with(At::Scan, &[held, exchanged.unwrap_or(held)], |thread| {
            thread.head = index + thread.blocks;
            thread.seen |= told;
            if late_barrier {
                thread.buffer.join_lanes();
            }
            if must {
                thread.bits |= bit::MUST;
            }
        });
        Ok(())
    }

    /// Returns what the holder of the token sees: the index after the last published batch, the flag of that index, and whether it must
    /// ring. In block mode it also returns the WQEs that the flags have published.
    pub(crate) fn sweep(&self) -> Result<(i32, i32, bool, u8), Violation> {
        let c = self.configuration;
        let mut head = self.thread.head;
        let mut must = self.has(bit::MUST);
        let mut told = self.thread.seen;
        loop {
            let flag = self.word(c.flag(head));
            self.is_of_this_lap(flag, head)?;
            let Some((blocks, more)) = batch_at(flag, head) else {
                return Ok((head, flag, must, told));
            };
            told |= self.told_by(head);
            must |= !more;
            head += blocks;
        }
    }

    fn is_parked(&self, flag: i32, index: i32) -> Result<bool, Violation> {
        self.is_of_this_lap(flag, index)?;
        Ok(flag == parked(index, false) || flag == parked(index, true))
    }

    /// Ghost: if flags keep a part of an index only, checks that a flag which looks like that of `index` is the flag of `index`.
    fn is_of_this_lap(&self, flag: i32, index: i32) -> Result<(), Violation> {
        let (range, kept) = (self.configuration.flag_range, flag >> 8);
        let looks_the_same = range != 0 && flag != 0 && (kept - index) % range == 0;
        if looks_the_same && kept != index {
            return broken(
                Property::Lap,
                format!("the flag of {kept} looks like that of {index}"),
            );
        }
        Ok(())
    }
}

/// Returns the place at which an operation begins once the guard is taken.
pub(crate) fn first(op: Op) -> At {
    if op.flags.flush { At::Flush } else { At::Admit }
}
