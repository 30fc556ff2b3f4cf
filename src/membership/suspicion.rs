//! Whom this rank suspects, why, and since when.
//!
//! A cause either says that a rank is known to be gone, or that it was not reached; the latter has to stand for a while before
//! it counts, since it may heal, and since others have to say the same before anybody can tell who of both is ill.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::config::Bounds;
use super::event::Cause;
use super::presence::RankGeneration;
use super::record::Members;

/// The suspicions of one rank against members of its view.
#[derive(Debug, Default)]
pub(super) struct Table {
    members: Members,
    found: BTreeMap<RankGeneration, BTreeMap<Cause, Instant>>,
}

impl Cause {
    /// Whether the rank is known to be gone: no word of it can prove otherwise.
    pub(super) fn is_certain(&self) -> bool {
        match self {
            Self::Timeout
            | Self::QpError(_)
            | Self::QpFlushed
            | Self::QpEvent(_)
            | Self::PortDown
            | Self::Told(_) => false,
            Self::LeaseLost | Self::ProcessExit | Self::Successor | Self::Leaves | Self::Silent => {
                true
            }
        }
    }

    /// Whether kernels are told not to wait: a timeout is their own finding, which a word of the rank takes back.
    fn is_told(&self) -> bool {
        !matches!(self, Self::Timeout | Self::Leaves)
    }

    /// How long it stands before it counts.
    fn bound(&self, bounds: &Bounds) -> Duration {
        match self {
            Self::Timeout => bounds.stall,
            Self::QpError(_)
            | Self::QpFlushed
            | Self::QpEvent(_)
            | Self::PortDown
            | Self::Told(_) => bounds.error,
            _ => Duration::ZERO,
        }
    }
}

impl Table {
    /// The view has changed: suspicions against others than these say nothing any more.
    pub(super) fn set_members(&mut self, members: &Members) {
        self.members.clone_from(members);
        self.found
            .retain(|(slot, generation), _| members.get(slot) == Some(generation));
    }

    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    /// Adds a cause against the member in `slot`. Whether it is new.
    pub(super) fn add(&mut self, slot: u32, cause: Cause, now: Instant) -> bool {
        let Some(&generation) = self.members.get(&slot) else {
            return false;
        };
        let causes = self.found.entry((slot, generation)).or_default();
        let new = !causes.contains_key(&cause);
        causes.entry(cause).or_insert(now);
        new
    }

    /// Takes a cause back. Whether the rank was suspected because of it, and is no longer at all.
    pub(super) fn withdraw(&mut self, slot: u32, cause: &Cause) -> bool {
        let Some(&generation) = self.members.get(&slot) else {
            return false;
        };
        let Some(causes) = self.found.get_mut(&(slot, generation)) else {
            return false;
        };
        let ends = causes.remove(cause).is_some() && causes.is_empty();
        if ends {
            self.found.remove(&(slot, generation));
        }
        ends
    }

    /// Whether the member in `slot` is suspected because of `cause`.
    pub(super) fn has(&self, slot: u32, cause: &Cause) -> bool {
        let generation = self.members.get(&slot);
        let causes = generation.and_then(|generation| self.found.get(&(slot, *generation)));
        causes.is_some_and(|causes| causes.contains_key(cause))
    }

    /// Who is known to be gone.
    pub(super) fn certain(&self) -> BTreeSet<RankGeneration> {
        self.those(|cause, _| cause.is_certain())
    }

    /// Who was not reached for so long that it counts.
    pub(super) fn ripe(&self, now: Instant, bounds: &Bounds) -> BTreeSet<RankGeneration> {
        self.those(|cause, since| {
            !cause.is_certain() && now.duration_since(since) >= cause.bound(bounds)
        })
    }

    /// Who was not reached for so long that one of both has to go, whatever others say.
    pub(super) fn overdue(&self, now: Instant, bounds: &Bounds) -> BTreeSet<RankGeneration> {
        self.those(|cause, since| {
            let bound = cause.bound(bounds).max(bounds.stall);
            !cause.is_certain() && now.duration_since(since) >= bound
        })
    }

    /// Who is not reached now, for however short a time.
    pub(super) fn doubted(&self) -> BTreeSet<RankGeneration> {
        self.those(|cause, _| !cause.is_certain())
    }

    /// Whom kernels are told not to wait for.
    pub(super) fn told(&self) -> BTreeSet<u32> {
        let told = self.those(|cause, _| cause.is_told());
        told.into_iter().map(|(slot, _)| slot).collect()
    }

    fn those(&self, counts: impl Fn(&Cause, Instant) -> bool) -> BTreeSet<RankGeneration> {
        let found = self.found.iter();
        let those =
            found.filter(|(_, causes)| causes.iter().any(|(cause, since)| counts(cause, *since)));
        those.map(|(who, _)| *who).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::GroupConfig;

    fn bounds() -> Bounds {
        GroupConfig::default()
            .bounds(Duration::from_secs(1), Duration::from_secs(30))
            .unwrap()
    }

    #[test]
    fn only_a_timeout_against_a_rank_needs_the_whole_stall_bound_and_kernels_are_not_told_of_it() {
        let now = Instant::now();
        let mut table = Table::default();
        table.set_members(&[(0, 1), (1, 3), (2, 1)].into());
        assert!(table.add(1, Cause::Timeout, now));
        assert!(
            !table.add(1, Cause::Timeout, now + Duration::from_secs(2)),
            "it stands since the first time"
        );
        assert_eq!(table.told(), BTreeSet::new());
        assert_eq!(
            table.ripe(now + Duration::from_millis(4999), &bounds()),
            BTreeSet::new()
        );
        assert_eq!(
            table.ripe(now + Duration::from_secs(5), &bounds()),
            [(1, 3)].into()
        );
        assert_eq!(table.certain(), BTreeSet::new());
        assert!(table.withdraw(1, &Cause::Timeout));
        assert_eq!(
            table.ripe(now + Duration::from_secs(9), &bounds()),
            BTreeSet::new()
        );

        assert!(table.add(2, Cause::QpError(0x15), now));
        assert_eq!(table.told(), [2].into());
        assert_eq!(
            table.ripe(now + Duration::from_secs(1), &bounds()),
            [(2, 1)].into()
        );
        assert!(table.add(0, Cause::ProcessExit, now));
        assert_eq!(table.told(), [0, 2].into());
        assert_eq!(table.certain(), [(0, 1)].into());
    }

    #[test]
    fn what_was_found_of_one_generation_is_not_held_against_the_next() {
        let now = Instant::now();
        let mut table = Table::default();
        table.set_members(&[(0, 1), (1, 1)].into());
        table.add(1, Cause::ProcessExit, now);
        assert!(!table.add(5, Cause::ProcessExit, now), "no member");
        table.set_members(&[(0, 1)].into());
        assert!(!table.has(1, &Cause::ProcessExit));
        table.set_members(&[(0, 1), (1, 2)].into());
        assert_eq!(
            (table.told(), table.certain()),
            (BTreeSet::new(), BTreeSet::new())
        );
    }
}
