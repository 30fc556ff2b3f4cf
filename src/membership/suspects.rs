//! What this rank has against others, and since when. Events, the words that kernels read, and the parting of pairs follow from it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use membership_rules::members::Members;
use membership_rules::record::RankGeneration;
use membership_rules::slots::Slots;

use super::event::Cause;

/// The causes of one rank against members of its view.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    members: Members,
    found: BTreeMap<RankGeneration, Causes>,
}

/// The causes against one member. A member without a cause is trusted and has no entry.
#[derive(Debug, Default)]
struct Causes {
    /// The causes that stand now, with the time since when each does.
    now: BTreeMap<Cause, Instant>,
    /// All causes that were reported since the rank was trusted last. A timeout comes and goes with each call, and is reported once.
    told: BTreeSet<Cause>,
}

/// What adding a cause has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// Nothing: the cause stood already, or the slot has no member.
    Nothing,
    /// The cause stands again. It has been reported already, and the rank has not been trusted since.
    Again,
    /// The cause stands now and is to be reported.
    New,
}

impl Cause {
    /// Returns whether this cause means that a QP to the rank is of no use any more. It stays so until the QPs are connected anew.
    fn breaks_pair(&self) -> bool {
        matches!(
            self,
            Self::QpError(_) | Self::QpFlushed | Self::QpEvent(_) | Self::Told(_)
        )
    }

    /// Returns whether a look into the store may follow from this cause. A timeout only runs clocks, at the pace of looks.
    pub(super) const fn is_news(&self) -> bool {
        !matches!(self, Self::Timeout)
    }

    /// Returns whether the host makes kernels stop waiting for a rank with this cause. A timeout is the kernels' own finding, and a word
    /// from the rank withdraws it.
    fn is_told(&self) -> bool {
        !matches!(self, Self::Timeout | Self::Leaves | Self::Overdue)
    }
}

impl Suspects {
    /// Takes over the members of a new view. Causes against ranks that are no members any more are forgotten.
    pub(super) fn set_members(&mut self, members: &Members) {
        self.members.clone_from(members);
        self.found
            .retain(|(slot, generation), _| members.get(*slot) == Some(*generation));
    }

    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    /// Adds a cause against the member in `slot`.
    pub(super) fn add(&mut self, slot: u32, cause: Cause, now: Instant) -> Added {
        let Some(generation) = self.members.get(slot) else {
            return Added::Nothing;
        };
        let causes = self.found.entry((slot, generation)).or_default();
        if causes.now.contains_key(&cause) {
            return Added::Nothing;
        }
        causes.now.insert(cause.clone(), now);
        if causes.told.insert(cause) {
            Added::New
        } else {
            Added::Again
        }
    }

    /// Takes a cause back. Returns whether the rank was suspected because of it, and no longer is suspected at all.
    pub(super) fn withdraw(&mut self, slot: u32, cause: &Cause) -> bool {
        self.retain(slot, |of| of != cause)
    }

    /// Notes that the QPs to the member in `slot` were connected anew. Returns whether it was suspected because of them, and no longer is
    /// at all.
    pub(super) fn mend(&mut self, slot: u32) -> bool {
        self.retain(slot, |of| !of.breaks_pair())
    }

    fn retain(&mut self, slot: u32, stays: impl Fn(&Cause) -> bool) -> bool {
        let Some(generation) = self.members.get(slot) else {
            return false;
        };
        let Some(causes) = self.found.get_mut(&(slot, generation)) else {
            return false;
        };
        let before = causes.now.len();
        causes.now.retain(|cause, _| stays(cause));
        let ends = causes.now.len() < before && causes.now.is_empty();
        if causes.now.is_empty() {
            self.found.remove(&(slot, generation));
        }
        ends
    }

    /// Returns whether the member in `slot` is suspected because of `cause`.
    pub(super) fn has(&self, slot: u32, cause: &Cause) -> bool {
        let generation = self.members.get(slot);
        let causes = generation.and_then(|generation| self.found.get(&(slot, generation)));
        causes.is_some_and(|causes| causes.now.contains_key(cause))
    }

    /// Returns the members that are suspected because of `cause`.
    pub(super) fn because_of(&self, cause: &Cause) -> Slots {
        self.those(|of, _| of == cause)
    }

    /// Returns the members for which kernels wait in vain without a known reason: no QP to them is known to have failed, and they are not
    /// known to have ended.
    pub(super) fn unexplained(&self) -> Slots {
        let explains = |cause: &Cause| {
            cause.breaks_pair() || matches!(cause, Cause::ProcessExit | Cause::Over)
        };
        let explained = self.those(|cause, _| explains(cause));
        self.because_of(&Cause::Timeout).without(&explained)
    }

    /// Returns the members to which a QP has been of no use for `bound`.
    pub(super) fn broken(&self, now: Instant, bound: Duration) -> Slots {
        self.those(|cause, since| cause.breaks_pair() && now.duration_since(since) >= bound)
    }

    /// Returns how long it takes until a QP to a further member will have been of no use for `bound`. Returns None if there is no such
    /// member.
    pub(super) fn next_broken(&self, now: Instant, bound: Duration) -> Option<Duration> {
        let all = self.found.values().flat_map(|causes| &causes.now);
        let breaks = all.filter(|(cause, _)| cause.breaks_pair());
        let left = breaks.map(|(_, since)| bound.saturating_sub(now.duration_since(*since)));
        left.filter(|left| !left.is_zero()).min()
    }

    /// Returns the members whose processes have ended.
    pub(super) fn ended(&self) -> Slots {
        self.because_of(&Cause::ProcessExit)
    }

    /// Returns the members for which the host makes kernels stop waiting.
    pub(super) fn told(&self) -> Slots {
        self.those(|cause, _| cause.is_told())
    }

    /// Returns the members for which kernels do not wait: those that the host has named, and those that kernels have found silent.
    pub(super) fn silent(&self) -> Slots {
        self.those(|cause, _| cause.is_told() || matches!(cause, Cause::Timeout))
    }

    fn those(&self, counts: impl Fn(&Cause, Instant) -> bool) -> Slots {
        let of = |causes: &Causes| {
            let mut now = causes.now.iter();
            now.any(|(cause, since)| counts(cause, *since))
        };
        let found = self.found.iter().filter(|(_, causes)| of(causes));
        found.map(|((slot, _), _)| *slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_millis(200);

    fn set(slots: &[u32]) -> Slots {
        slots.iter().copied().collect()
    }

    fn of(members: &[u32]) -> Suspects {
        let mut suspects = Suspects::default();
        suspects.set_members(&members.iter().map(|slot| (*slot, 1)).collect());
        suspects
    }

    #[test]
    fn a_qp_error_counts_for_kernels_at_once_and_in_the_record_at_its_bound() {
        let (mut suspects, start) = (of(&[0, 1, 2]), Instant::now());
        let added = suspects.add(1, Cause::QpError(0x8115), start);
        assert_eq!(added, Added::New);
        let same = suspects.add(1, Cause::QpError(0x8115), start + BOUND);
        assert_eq!(same, Added::Nothing);
        assert_eq!(suspects.told(), set(&[1]));
        let early = start + BOUND - Duration::from_nanos(1);
        assert_eq!(suspects.broken(early, BOUND), set(&[]));
        assert_eq!(
            suspects.next_broken(early, BOUND),
            Some(Duration::from_nanos(1))
        );
        assert_eq!(suspects.broken(start + BOUND, BOUND), set(&[1]));
        assert_eq!(suspects.next_broken(start + BOUND, BOUND), None);
        // Another cause stays when the QPs are mended.
        suspects.add(1, Cause::Timeout, start);
        assert!(!suspects.mend(1));
        assert_eq!(suspects.broken(start + BOUND, BOUND), set(&[]));
        assert!(
            suspects.told().is_empty(),
            "kernels have found that themselves"
        );
        assert!(suspects.withdraw(1, &Cause::Timeout));
        assert!(!suspects.withdraw(1, &Cause::Timeout));
    }

    #[test]
    fn a_wait_in_vain_is_unexplained_until_a_qp_or_the_rank_is_over() {
        let start = Instant::now();
        let found = |causes: &[Cause]| {
            let mut suspects = of(&[0, 1, 2]);
            for cause in causes {
                suspects.add(1, cause.clone(), start);
            }
            suspects.unexplained()
        };
        for vague in [Cause::Unheard, Cause::Silent, Cause::Leaves, Cause::Overdue] {
            assert_eq!(found(std::slice::from_ref(&vague)), set(&[]), "{vague:?}");
            let both = [Cause::Timeout, vague];
            assert_eq!(found(&both), set(&[1]), "{both:?}");
        }
        for certain in [Cause::ProcessExit, Cause::Over, Cause::QpFlushed] {
            let both = [Cause::Timeout, certain];
            assert_eq!(found(&both), set(&[]), "{both:?}");
        }
    }

    #[test]
    fn what_is_against_a_rank_of_another_view_is_gone_with_it() {
        let (mut suspects, start) = (of(&[0, 1]), Instant::now());
        let stranger = suspects.add(2, Cause::ProcessExit, start);
        assert_eq!(stranger, Added::Nothing);
        suspects.add(1, Cause::ProcessExit, start);
        assert_eq!(suspects.ended(), set(&[1]));
        suspects.set_members(&[(0, 1), (1, 2)].into());
        assert_eq!(suspects.ended(), set(&[]));
        assert!(!suspects.has(1, &Cause::ProcessExit));
    }

    #[test]
    fn a_passing_timeout_is_reported_once_while_another_cause_stays() {
        let (mut suspects, start) = (of(&[0, 1]), Instant::now());
        let add = |suspects: &mut Suspects, cause| suspects.add(1, cause, start);
        assert_eq!(add(&mut suspects, Cause::QpFlushed), Added::New);
        assert_eq!(add(&mut suspects, Cause::Timeout), Added::New);
        for _ in 0..3 {
            assert!(!suspects.withdraw(1, &Cause::Timeout));
            assert_eq!(add(&mut suspects, Cause::Timeout), Added::Again);
        }
        // After it was trusted, the rank is suspected anew.
        assert!(!suspects.withdraw(1, &Cause::Timeout));
        assert!(suspects.mend(1));
        assert_eq!(add(&mut suspects, Cause::Timeout), Added::New);
    }
}
