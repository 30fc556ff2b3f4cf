//! Where calls stand in the program of phases: their numbers, and which of them have started and ended.

use super::configuration::Parted;
use super::numbers::SETS;
use super::state::{End, Stage, State};
use crate::moe::signals::pattern::{DISPATCH, Phase};

impl Parted {
    /// Returns the number of the `index`-th call.
    pub(super) fn number(&self, state: &State, index: u8) -> u8 {
        let leapt = state.leapt != 0 && index >= state.leapt;
        let leap = if leapt { self.leap } else { 0 };
        self.first.wrapping_add(index - 1).wrapping_add(leap)
    }

    pub(super) fn phase(&self, at: u8) -> Option<Phase> {
        self.phases.get(usize::from(at)).copied()
    }

    /// Returns the index of a call's send phase in the program.
    pub(super) fn place_of_send(&self, kind: usize, index: u8) -> u8 {
        let found = self
            .phases
            .iter()
            .position(|phase| phase.sends && phase.kind == kind && phase.call == index);
        u8::try_from(found.expect("what is received is sent")).expect("few phases")
    }

    /// Returns the last call that has got its number.
    pub(super) fn started(&self, at: u8, held: bool) -> u8 {
        let end = usize::from(at) + usize::from(held);
        let begun = &self.phases[..end.min(self.phases.len())];
        let calls = begun
            .iter()
            .filter(|phase| phase.sends && phase.kind == DISPATCH);
        calls.map(|phase| phase.call).max().unwrap_or(0)
    }

    /// Returns the last call that has ended together with all calls before it.
    pub(super) fn finished(&self, end: &End) -> u8 {
        let started = self.started(end.at, end.stage != Stage::Idle);
        let left = &self.phases[usize::from(end.at)..];
        let open = left.iter().map(|phase| phase.call).min();
        let ended = open.map_or(self.calls, |open| open - 1).min(started);
        ended.max(started.saturating_sub(SETS))
    }
}
