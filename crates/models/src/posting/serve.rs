//! The steps of the holder of the token, until the token is parked again.

use super::Violation;
use super::configuration::{Fence, Nic};
use super::modes::announce;
use super::property::{Mutant, Property};
use super::state::{At, Word, bit, parked};
use super::thread::Step;
use crate::explore::broken;

/// The indices of words, as the store buffer names them.
pub(crate) const DOORBELL_INDEX: u8 = 3;
pub(crate) const RECORD: u8 = 8;
pub(crate) const DOORBELL: u8 = 9;
const _: () = assert!(DOORBELL_INDEX as usize == Word::DOORBELL_INDEX);
const _: () = assert!(RECORD as usize == Word::RECORD);
const _: () = assert!(DOORBELL as usize == Word::DOORBELL);

/// A mutant does not count the rounds of a holder. The model reports it after this many rounds beyond the budget.
const UNCOUNTED: i32 = 6;

impl Step<'_> {
    /// Sweeps published batches. Then holds back, leaves, or rings.
    pub(crate) fn scan(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        let (head, flag, swept_must, told) = self.sweep()?;
        let must = if self.is(Mutant::OwnHintOnly) {
            self.has(bit::MUST)
        } else {
            swept_must
        };
        let leaves = self.has(bit::QUIET);
        let owner_will_come = self.word(Word::RESV) > head || self.is(Mutant::HandOverToNobody);
        let hands_over = leaves && !self.configuration.leave_quietly && owner_will_come;
        let at = match (must, leaves) {
            (false, _) => At::HoldFence,
            (true, true) if hands_over => At::LeaveCas,
            (true, true) => At::LeaveFence,
            (true, false) => At::RingFence,
        };
        let acquires = self.acquires(at);
        let has_record = self.configuration.record;
        let rings = matches!(at, At::LeaveFence | At::RingFence);
        // The WQEs of other threads are fenced at block scope only, so a fence is needed before the record.
        let fences = rings && self.configuration.block && has_record;
        let at = if fences { At::RecordFence } else { at };
        self.goto(at, |thread| {
            thread.head = head;
            thread.flag = flag;
            if acquires {
                thread.known |= told;
            }
            thread.seen = 0;
            if must {
                thread.bits |= bit::MUST;
            }
            if rings && !fences {
                announce(&mut thread.buffer, head, has_record);
            }
        });
        Ok(())
    }

    /// If the doorbell is held back, makes the thread's own WQEs visible before the token moves on.
    pub(crate) fn hold_fence(&mut self) -> Result<(), Violation> {
        let c = self.configuration;
        if self.fence(Fence::Hold) || c.record || self.is(Mutant::HoldBackWithoutFence) {
            self.in_life()?;
            self.goto(At::Park, |_| ());
        }
        Ok(())
    }

    /// Runs fence.release, then stores the doorbell.
    pub(crate) fn ring_fence(&mut self) -> Result<(), Violation> {
        if self.fence(Fence::Doorbell) || self.is(Mutant::NoFenceBeforeDoorbell) {
            self.in_life()?;
            let doorbell = self.configuration.doorbell_store(self.thread.head);
            self.goto(At::Park, |thread| {
                thread.buffer.push(doorbell);
                thread.bits &= !bit::MUST;
            });
        }
        Ok(())
    }

    /// Swaps the flag that it saw for the parked token, by compare-and-swap. If that fails, one more batch has been published.
    pub(crate) fn park(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        let c = self.configuration;
        let (head, round) = (self.thread.head, self.thread.round);
        if self.is(Mutant::ServesOnAfterParking) && self.unchanged() && round == 0 {
            let parked = [(c.flag(head), parked(head, false)), (Word::TOKEN, head)];
            self.goto_with(At::Scan, &parked, |thread| thread.round = 1);
        } else if self.unchanged() || self.is(Mutant::ParkByStore) {
            self.parks(false, None);
        } else if self.has(bit::QUIET) {
            self.quiet_round()?;
        } else if self.is(Mutant::RoundsNotCounted) {
            if round + 1 > c.budget + UNCOUNTED {
                return broken(Property::Bounded, format!("{} rounds at {head}", round + 1));
            }
            self.goto(At::Scan, |thread| thread.round = round + 1);
        } else {
            let over = round + 1 >= c.budget;
            self.goto(At::Scan, |thread| {
                thread.round = if over { 0 } else { round + 1 };
                if over {
                    thread.bits |= bit::QUIET;
                }
            });
        }
        Ok(())
    }

    /// Parks the token at an index that is reserved. The owner of the index comes, inherits the token and rings.
    pub(crate) fn leave_cas(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        if self.unchanged() {
            self.parks(!self.is(Mutant::DebtForgotten), None);
            Ok(())
        } else {
            self.quiet_round()
        }
    }

    pub(crate) fn leave_fence(&mut self) -> Result<(), Violation> {
        if self.fence(Fence::Doorbell) {
            self.in_life()?;
            self.goto(At::LeavePark, |_| ());
        }
        Ok(())
    }

    /// Parks the token, and rings after that, because no thread is on the way.
    pub(crate) fn leave_park(&mut self) -> Result<(), Violation> {
        self.in_life()?;
        if self.unchanged() {
            let doorbell = self.configuration.doorbell_store(self.thread.head);
            let rings = !self.is(Mutant::LeaveWithoutDoorbell);
            self.parks(false, rings.then_some(doorbell));
            Ok(())
        } else {
            self.quiet_round()
        }
    }

    fn unchanged(&self) -> bool {
        self.word(self.configuration.flag(self.thread.head)) == self.thread.flag
    }

    fn parks(&mut self, owed: bool, store: Option<(u8, i32)>) {
        let head = self.thread.head;
        let c = self.configuration;
        let flag = (c.flag(head), parked(head, owed));
        let token = (Word::TOKEN, head);
        if c.block {
            // The fence after the scan is also a release.
            let hands_over = self.thread.at == At::LeaveCas;
            let branch = if hands_over {
                At::LeaveCas
            } else {
                At::HoldFence
            };
            let released = self.released(self.acquires(branch));
            self.posted(&[flag, token, (c.flag_knows(head), released)], store);
        } else {
            self.posted(&[flag, token], store);
        }
    }

    /// Counts a round without a doorbell after the budget was used up. At most `depth` more WQEBBs can appear in such rounds.
    fn quiet_round(&mut self) -> Result<(), Violation> {
        let c = self.configuration;
        let round = self.thread.round + 1;
        if c.nic == Nic::Strict && round > c.depth {
            return broken(
                Property::Bounded,
                format!("{round} quiet rounds, depth {}", c.depth),
            );
        }
        self.goto(At::Scan, |thread| thread.round = round.min(c.depth + 1));
        Ok(())
    }
}
