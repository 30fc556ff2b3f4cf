//! The changes that modes make. Fences have scopes, lanes of a warp share a post or post by themselves, a mailbox has its host thread, and
//! a QP may have one user.
//!
//! A fence whose scope does not reach the NIC drains nothing for the NIC. In block mode publishers fence at block scope only, so the model
//! tracks in `known` which WQEs a thread must make visible. These are the WQEs that the thread wrote. It also learns those that the writer
//! of a flag knew, by an acquire fence after reading that flag. A release fence that reaches the NIC is cumulative: it waits for all these
//! WQEs, in any thread's store buffer.

use super::Violation;
use super::configuration::{Configuration, Fence, Scope};
use super::model::Move;
use super::property::Mutant;
use super::serve::{DOORBELL, DOORBELL_INDEX, RECORD};
use super::state::{At, LANE, State, Thread, Word, bit, block};
use super::thread::Step;

impl Configuration {
    /// Returns the least scope of a fence that orders for the NIC.
    fn reaches_the_nic(&self) -> Scope {
        if self.host_queues {
            Scope::Sys
        } else {
            Scope::Gpu
        }
    }

    /// Returns the scope of a fence, and the least scope that is enough for its purpose.
    fn scope(&self, fence: Fence) -> (Scope, Scope) {
        let nic = self.reaches_the_nic();
        let (right, needed) = match fence {
            Fence::Publish | Fence::Hold if self.block => (Scope::Cta, nic),
            // The host's thread reads the mailbox, so the fence needs system scope.
            Fence::Doorbell if self.mailbox => (Scope::Sys, Scope::Sys),
            _ => (nic, nic),
        };
        let scope = match (self.mutant, fence) {
            (Mutant::PublishFenceOfGpu, Fence::Publish)
            | (Mutant::DoorbellFenceOfGpu, Fence::Doorbell) => Scope::Gpu,
            _ => right,
        };
        (scope, needed)
    }

    /// Returns the store that rings, to the register or to the mailbox.
    pub(crate) fn doorbell_store(&self, head: i32) -> (u8, i32) {
        let word = if self.mailbox {
            u8::try_from(self.mailbox_word()).unwrap()
        } else {
            DOORBELL
        };
        (word, head)
    }

    /// The steps of lanes: they write their WQEs in any order, whatever their leader does.
    pub(crate) fn lane_steps(
        &self,
        state: &State,
        number: usize,
        emit: &mut impl FnMut(Move, State),
    ) {
        let thread = &state.threads()[number];
        for lane in (0..8).filter(|lane| thread.lanes >> lane & 1 != 0) {
            let mut next = *state;
            let thread = next.thread(number);
            thread.lanes &= !(1 << lane);
            let index = thread.index + lane;
            let is_last = lane == thread.blocks - 1;
            let op = self.programs[usize::from(thread.program)][usize::from(thread.done)];
            let wanted = op.flags.wait || self.crosses(thread.index, thread.blocks);
            let signalled = is_last && wanted;
            let word = u8::try_from(self.block(index)).unwrap();
            thread
                .buffer
                .push((word | LANE, block::new(index, block::SINGLE, signalled)));
            emit(Move::Lane(number, lane), next);
        }
    }
}

impl Step<'_> {
    /// Returns whether a release fence is over: it waits until everything that it covers is visible to its scope.
    pub(crate) fn fence(&self, fence: Fence) -> bool {
        let (scope, needed) = self.configuration.scope(fence);
        scope < needed || self.fenced()
    }

    /// Returns whether everything is visible that a fence of this thread covers: its own stores and the WQEs that it knows of. Stores of
    /// its lanes count as its own from the barrier on.
    pub(crate) fn fenced(&self) -> bool {
        let thread = self.thread;
        let own = |store: &(u8, i32)| store.0 & LANE == 0;
        !thread.buffer.stores().iter().any(own) && thread.known == 0
    }

    /// `__syncwarp` or `__syncthreads`: waits until all lanes have written. From here on the leader's fences cover their stores.
    pub(crate) fn barrier(&mut self) {
        if self.thread.lanes == 0 || self.is(Mutant::NoBarrier) {
            let joins = !self.is(Mutant::NoBarrier) && !self.is(Mutant::BarrierAfterFence);
            self.goto(self.behind_the_barrier(), |thread| {
                if joins {
                    thread.buffer.join_lanes();
                }
            });
        }
    }

    fn behind_the_barrier(&self) -> At {
        let alone = self.configuration.is_alone();
        if alone {
            At::ExclusivePublish
        } else {
            At::Peek
        }
    }

    // ---- lanes that post by themselves ----

    /// Returns the lanes of this thread's warp, this thread included.
    fn warp(&self) -> impl Iterator<Item = &Thread> {
        let program = self.thread.program;
        let lanes = self.threads.iter();
        lanes.filter(move |other| other.program == program)
    }

    /// Returns whether a lane of the warp has not ended the operation that this thread has ended.
    pub(crate) fn is_ahead_of_its_warp(&self) -> bool {
        self.warp().any(|lane| lane.done < self.thread.done)
    }

    /// Returns whether a lane of the warp has no claim yet in the operation of this thread.
    pub(crate) fn a_lane_looks_for_space(&self) -> bool {
        let looks = |at| matches!(at, At::Idle | At::Admit | At::Undo | At::AdmitWait);
        self.warp()
            .any(|lane| lane.done == self.thread.done && looks(lane.at))
    }

    // ---- block mode ----

    /// Returns the WQEs that the writer of a flag has released at block scope when it writes the flag.
    pub(crate) fn released(&self, by_a_fence: bool) -> i32 {
        i32::from(if by_a_fence { self.thread.known } else { 0 })
    }

    /// Returns the slots that the writer of the flag at `index` knew.
    pub(crate) fn told_by(&self, index: i32) -> u8 {
        let c = self.configuration;
        if c.block {
            u8::try_from(self.word(c.flag_knows(index))).unwrap()
        } else {
            0
        }
    }

    /// Returns whether the holder runs `fence.acq_rel.cta` after its scan, by which it knows what it has seen.
    pub(crate) fn acquires(&self, at: At) -> bool {
        match self.configuration.mutant {
            Mutant::HolderWithoutAcquire => false,
            Mutant::HandOverWithoutAcquire => at != At::LeaveCas,
            Mutant::HoldWithoutAcquire => at != At::HoldFence,
            _ => true,
        }
    }

    /// Announces the head, after the scan and the fence that makes swept WQEs visible to the NIC.
    pub(crate) fn record_fence(&mut self) -> Result<(), Violation> {
        if self.fence(Fence::Record) || self.is(Mutant::OneFenceWithRecord) {
            self.in_life()?;
            let at = if self.has(bit::QUIET) {
                At::LeaveFence
            } else {
                At::RingFence
            };
            let head = self.thread.head;
            let has_record = self.configuration.record;
            self.goto(at, |thread| announce(&mut thread.buffer, head, has_record));
        }
        Ok(())
    }

    // ---- exclusive mode ----

    /// Orders the WQEs before the record, which the NIC may read because of an older doorbell. If the doorbell is held back, nothing is
    /// announced.
    pub(crate) fn exclusive_publish(&mut self) -> Result<(), Violation> {
        let c = self.configuration;
        let skips = !c.record || self.is(Mutant::OneFenceWithRecord);
        if skips || self.fence(Fence::Publish) {
            self.in_life()?;
            if self.has(bit::MORE) {
                self.posted(&[], None);
                return Ok(());
            }
            let head = self.thread.index + self.thread.blocks;
            self.goto(At::ExclusiveRing, |thread| {
                announce(&mut thread.buffer, head, c.record);
            });
        }
        Ok(())
    }

    pub(crate) fn exclusive_ring(&mut self) -> Result<(), Violation> {
        if self.fence(Fence::Doorbell) || self.is(Mutant::NoFenceBeforeDoorbell) {
            self.in_life()?;
            let head = self.thread.index + self.thread.blocks;
            let doorbell = self.configuration.doorbell_store(head);
            self.posted(&[(Word::TOKEN, head)], Some(doorbell));
        }
        Ok(())
    }

    // ---- mailbox ----

    /// A step of the host's thread: it loads the mailbox and stores the register. Its stores are buffered as those of any thread.
    pub(crate) fn agent(&mut self) {
        let c = self.configuration;
        let index = self.word(c.mailbox_word());
        if index != self.thread.index {
            let life = self.word(Word::LIFE);
            self.goto(At::Agent, |thread| {
                thread.index = index;
                thread.life = life;
                thread.buffer.push((DOORBELL, index));
            });
        }
    }
}

/// Pushes the stores of doorbell index and record.
pub(crate) fn announce(buffer: &mut super::state::Buffer, head: i32, has_record: bool) {
    buffer.push((DOORBELL_INDEX, head));
    if has_record {
        buffer.push((RECORD, head));
    }
}
