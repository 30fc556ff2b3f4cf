//! A member that wants to go, as `leave.rs` lets it: it says which call is its last, and ends when all are through with those before.

use models::explore::broken;

use super::{ABORTED, Fault, Limit, Model, Rank, State, StepKey, Violation};

impl Model {
    /// Who has said goodbye, lives, and is let go by the view of the record; with its last call.
    pub(super) fn goodbyes(&self, state: &State) -> impl Iterator<Item = (u32, u32)> {
        let for_ever = self.0.fault == Some(Fault::GoodbyeForEver);
        let counts = move |(slot, epoch): (&u32, u32)| {
            state.ranks[*slot as usize].alive && (for_ever || epoch == state.record.epoch)
        };
        let said = state.said.iter();
        let now = said.filter(move |(slot, goodbye)| counts((slot, goodbye.epoch)));
        now.map(|(slot, goodbye)| (*slot, goodbye.last))
    }

    /// What a host whose rank wants to go does before it follows the rules; whether that is all.
    pub(super) fn leaves(&self, state: &State, slot: u32, all: &mut Vec<(String, State)>) -> bool {
        let (rank, record) = (&state.ranks[slot as usize], &state.record);
        let mut next = state.clone();
        let own = &mut next.ranks[slot as usize];
        if record.was_dropped(slot, 1) {
            let Some(last) = rank.local.last_call(record) else {
                // The rules end it.
                return false;
            };
            if rank.local.limit != Limit::UpTo(last) {
                own.local.limit = Limit::UpTo(last);
                all.push((format!("{slot} may end with call {last}"), next));
                return true;
            }
            let members = record.members.keys().chain([&slot]);
            let mut living = members.filter(|of| state.ranks[**of as usize].alive);
            let at_once = self.0.fault == Some(Fault::LeavesAtOnce);
            if at_once || living.all(|of| self.is_through(&state.ranks[*of as usize], last)) {
                (own.alive, own.left) = (false, true);
                all.push((format!("{slot} has left"), next));
            }
            return true;
        }
        let alone = record.members.len() == 1 && rank.local.applied == record.epoch;
        if alone {
            let before = record.first - 1;
            let waits = |(of, other): (usize, &Rank)| {
                other.alive && of != slot as usize && !self.is_through(other, before)
            };
            let needed = state.ranks.iter().enumerate().any(waits);
            if self.is_through(rank, before) && !needed {
                (own.alive, own.left) = (false, true);
                all.push((format!("{slot} ends, the last one"), next));
                return true;
            }
        }
        if rank.local.says_goodbye(record) {
            own.local.limit = Limit::UpTo(rank.local.goodbye(record, rank.started).last);
            own.pending = Some((StepKey::Goodbye, record.clone()));
            all.push((format!("{slot} is about to say goodbye"), next));
            return true;
        }
        false
    }

    /// Whether the device has run all calls up to `last`.
    fn is_through(&self, rank: &Rank, last: u32) -> bool {
        rank.next > last.min(self.0.calls)
    }

    /// Every call that a rank ran together with one that has left was run by both, in one view.
    pub(super) fn lost(&self, state: &State) -> Result<(), Violation> {
        let all = || (0u32..).zip(&state.ranks);
        for (gone, leaver) in all().filter(|(_, rank)| rank.left) {
            for (slot, rank) in all().filter(|(_, rank)| rank.alive || rank.left) {
                for (call, (&theirs, &own)) in (1..).zip(rank.ran.iter().zip(&leaver.ran)) {
                    let ran = |epoch| epoch != 0 && epoch != ABORTED;
                    if !ran(theirs) {
                        continue;
                    }
                    let with = state.history[theirs as usize - 1].contains(&gone);
                    if (with || ran(own)) && theirs != own {
                        return broken(
                            "T",
                            format!(
                                "{slot} ran call {call} in epoch {theirs}, {gone}, which has left, in {own}"
                            ),
                        );
                    }
                }
            }
        }
        Ok(())
    }
}
