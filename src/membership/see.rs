//! What a rank sees of its group: who is gone, who suspects whom, who may come in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::choose::Suspicions;
use super::driver::{Driver, rank_generations};
use super::event::Cause;
use super::group_store::{Look, Row};
use super::presence::RankGeneration;
use super::record::{GroupRecord, Members, newer};
use super::rules::Seen;

impl Driver {
    /// What the rules go by.
    pub(super) fn see(&mut self, record: &GroupRecord, look: &Look) -> Seen {
        let now = Instant::now();
        let gone = self.gone(record, look, now);
        let inner = self.shared.lock();
        let row = inner.row(now, &self.shared.bounds);
        Seen {
            promises: look.promises.clone(),
            started: self.shared.layer.started(),
            older_view_needed: self.older_view_needed(),
            suspicions: suspicions(record, look, (self.own(), &row)),
            accused: accused(record, look, self.own()),
            joining: ready(record, look, &gone),
            leaves: leaves(record, look)
                .filter(|(who, _)| look.held.contains(who))
                .collect(),
            gone,
            connected: inner.connected.clone(),
        }
    }

    /// Who has to go whatever anybody says, with the cause taken down.
    fn gone(
        &mut self,
        record: &GroupRecord,
        look: &Look,
        now: Instant,
    ) -> BTreeSet<RankGeneration> {
        let own = self.own();
        let sets = [Some(&record.members), record.proposed.as_ref()];
        let all = sets.into_iter().flatten().flat_map(rank_generations);
        let others: BTreeSet<RankGeneration> = all.filter(|who| *who != own).collect();
        let asks = newest(&look.asks);
        let succeeded =
            |who: &&RankGeneration| asks.get(&who.0).is_some_and(|newest| *newest > who.1);
        let found = [
            (
                Cause::LeaseLost,
                self.presence.lost(now, &look.held, &others),
            ),
            (
                Cause::Leaves,
                leaves(record, look)
                    .map(|(who, _)| who)
                    .filter(|who| others.contains(who))
                    .collect(),
            ),
            (
                Cause::Successor,
                others.iter().filter(succeeded).copied().collect(),
            ),
            (Cause::Silent, self.silent(record, look, now)),
        ];
        let mut gone = BTreeSet::new();
        for (cause, ranks) in found {
            for &(rank, generation) in &ranks {
                let is_member = self.shared.lock().table.members().get(&rank) == Some(&generation);
                if is_member {
                    self.shared.suspect(rank, cause.clone());
                }
            }
            gone.extend(ranks);
        }
        gone.extend(self.shared.lock().table.certain());
        gone.remove(&own);
        gone
    }

    /// Who has left the proposal that this rank has promised unanswered for too long.
    fn silent(
        &mut self,
        record: &GroupRecord,
        look: &Look,
        now: Instant,
    ) -> BTreeSet<RankGeneration> {
        let Some(proposed) = &record.proposed else {
            self.since.proposal = None;
            return BTreeSet::new();
        };
        let since = match self.since.proposal {
            Some((proposal, since)) if proposal == record.proposal => since,
            _ => now,
        };
        self.since.proposal = Some((record.proposal, since));
        let promised = self
            .local
            .promised
            .is_some_and(|(of, _)| of == record.proposal);
        if !promised || now.duration_since(since) < self.shared.bounds.promise {
            return BTreeSet::new();
        }
        rank_generations(proposed)
            .filter(|(slot, _)| !look.promises.contains_key(slot))
            .collect()
    }

    pub(super) fn older_view_needed(&self) -> bool {
        match self.views[..] {
            [_, first] => newer(first.wrapping_sub(1), self.shared.layer.finished()),
            _ => false,
        }
    }
}

/// Who has said goodbye in the view of `record`, and the last call that it starts.
fn leaves(record: &GroupRecord, look: &Look) -> impl Iterator<Item = (RankGeneration, u32)> {
    let said = look.leaves.iter();
    let now = said.filter(|(_, goodbye)| goodbye.epoch == record.epoch);
    now.map(|(who, goodbye)| (*who, goodbye.last))
}

/// The newest generation of each slot.
fn newest(of: &BTreeSet<RankGeneration>) -> BTreeMap<u32, u32> {
    // In ascending order, so the last one stays.
    of.iter().copied().collect()
}

/// The matrix: what ranks of the view say of each other. `own` is what this rank has to say now.
///
/// A pair counts when it has stood for its bound. Then all that is said of either of both counts as well, however new, and of
/// those whom that concerns: else the first who finds a rank ill would be as likely to go as that rank.
fn suspicions(record: &GroupRecord, look: &Look, (own, row): (RankGeneration, &Row)) -> Suspicions {
    let counts = |(slot, generation): &RankGeneration| record.members.get(slot) == Some(generation);
    let others = look.rows.iter().filter(|(who, _)| **who != own);
    let rows: Vec<(RankGeneration, &Row)> = others
        .map(|(who, row)| (*who, row))
        .chain([(own, row)])
        .filter(|(who, _)| counts(who))
        .collect();
    let pairs = |of: fn(&Row) -> &BTreeSet<RankGeneration>| -> BTreeSet<(u32, u32)> {
        let row = |(who, row): &(RankGeneration, &Row)| {
            let slot = who.0;
            let of: Vec<RankGeneration> = of(row).iter().copied().filter(counts).collect();
            of.into_iter().map(move |(of, _)| (slot, of))
        };
        rows.iter().flat_map(row).collect()
    };
    let mut counted = pairs(|row| &row.suspects);
    let overdue = pairs(|row| &row.overdue);
    counted.extend(&overdue);
    let mut doubts = pairs(|row| &row.doubts);
    // Each round takes a pair out of `doubts`, or is the last.
    loop {
        let concerned: BTreeSet<u32> = counted.iter().flat_map(|(a, b)| [*a, *b]).collect();
        let touches = |(a, b): &(u32, u32)| concerned.contains(a) || concerned.contains(b);
        let (more, rest): (BTreeSet<_>, BTreeSet<_>) = doubts.into_iter().partition(touches);
        if more.is_empty() {
            break;
        }
        counted.extend(more);
        doubts = rest;
    }
    let mut found = Suspicions::default();
    for (a, b) in counted {
        found.doubt(a, b);
    }
    for (a, b) in overdue {
        found.add(a, b);
    }
    found
}

/// Whether another member doubts `own`.
fn accused(record: &GroupRecord, look: &Look, own: RankGeneration) -> bool {
    let doubts = |(who, row): (&RankGeneration, &Row)| {
        record.members.get(&who.0) == Some(&who.1)
            && *who != own
            && (row.doubts.contains(&own) || row.suspects.contains(&own))
    };
    look.rows.iter().any(doubts)
}

/// To whom a rank is to connect: to those who want to come in; who comes in itself, to those who are there as well.
pub(super) fn wanted(
    record: &GroupRecord,
    look: &Look,
    own: RankGeneration,
    member: bool,
) -> BTreeSet<RankGeneration> {
    let free = |(slot, generation): &(u32, u32)| {
        let taken = member && record.members.contains_key(slot);
        !taken && !record.was_dropped(*slot, *generation)
    };
    let asks = newest(&look.asks).into_iter().filter(free);
    let others: Vec<RankGeneration> = match member {
        true => Vec::new(),
        false => rank_generations(&record.members).collect(),
    };
    let all = asks.chain(others);
    all.filter(|who| who.0 != own.0 && look.held.contains(who))
        .collect()
}

/// Who may be taken in: those who live and want to, and are connected with every living member and with each other. Of two who
/// are not, the one in the lower slot.
fn ready(record: &GroupRecord, look: &Look, gone: &BTreeSet<RankGeneration>) -> Members {
    let reaches = |from: &RankGeneration, to: &RankGeneration| {
        look.rows
            .get(from)
            .is_some_and(|row| row.reached.contains(to))
    };
    let both = |a: &RankGeneration, b: &RankGeneration| reaches(a, b) && reaches(b, a);
    let living = |who: &RankGeneration| look.held.contains(who) && !gone.contains(who);
    let members: Vec<RankGeneration> = rank_generations(&record.members)
        .filter(|who| !gone.contains(who))
        .collect();
    let mut taken: Vec<RankGeneration> = Vec::new();
    for ask in newest(&look.asks).into_iter().filter(living) {
        let all = members.iter().chain(&taken);
        if !record.was_dropped(ask.0, ask.1) && all.into_iter().all(|other| both(&ask, other)) {
            taken.push(ask);
        }
    }
    taken.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(rows: &[(RankGeneration, &[RankGeneration])], asks: &[RankGeneration]) -> Look {
        let row = |(who, reached): &(RankGeneration, &[RankGeneration])| {
            let reached = reached.iter().copied().collect();
            let row = Row {
                reached,
                ..Row::default()
            };
            (*who, row)
        };
        Look {
            rows: rows.iter().map(row).collect(),
            asks: asks.iter().copied().collect(),
            held: rows.iter().map(|(who, _)| *who).collect(),
            ..Look::default()
        }
    }

    #[test]
    fn a_rank_comes_in_when_every_living_member_is_connected_with_it_and_it_with_them() {
        let record = GroupRecord::founded([(0, 1), (1, 1)].into());
        let (a, b, c) = ((0, 1), (1, 1), (2, 4));
        let none = BTreeSet::new();
        let whole = look(&[(a, &[c]), (b, &[c]), (c, &[a, b])], &[c]);
        assert_eq!(ready(&record, &whole, &none), [(2, 4)].into());
        let one_way = look(&[(a, &[c]), (b, &[]), (c, &[a, b])], &[c]);
        assert_eq!(ready(&record, &one_way, &none), Members::new());
        assert_eq!(
            ready(&record, &one_way, &[b].into()),
            [(2, 4)].into(),
            "without the dead one"
        );
        let older = look(&[(a, &[c]), (b, &[c]), (c, &[a, b])], &[(2, 3), c]);
        assert_eq!(
            ready(&record, &older, &none),
            [(2, 4)].into(),
            "the newest generation"
        );
    }

    #[test]
    fn the_first_who_finds_a_rank_ill_does_not_go_for_it() {
        let record = GroupRecord::founded([(0, 1), (1, 1), (2, 1)].into());
        let doubt = Row {
            doubts: [(0, 1)].into(),
            ..Row::default()
        };
        let sure = Row {
            suspects: [(0, 1)].into(),
            ..doubt.clone()
        };
        let members: BTreeSet<u32> = [0, 1, 2].into();
        let kept = |rows: &[(RankGeneration, &Row)], own: &Row| {
            let rows = rows
                .iter()
                .map(|(who, row)| (*who, Row::clone(row)))
                .collect();
            let look = Look {
                rows,
                ..Look::default()
            };
            suspicions(&record, &look, ((1, 1), own)).kept(&members)
        };
        assert_eq!(kept(&[((2, 1), &doubt)], &sure), [1, 2].into());
        assert_eq!(kept(&[((2, 1), &doubt)], &doubt), members, "nobody is sure");
        // A row of an earlier generation says nothing.
        assert_eq!(kept(&[((2, 7), &sure)], &Row::default()), members);
    }

    #[test]
    fn the_first_who_finds_two_ranks_dead_does_not_go_for_them() {
        let record = GroupRecord::founded((0..5).map(|slot| (slot, 1)).collect());
        let doubt = Row {
            doubts: [(0, 1), (3, 1)].into(),
            ..Row::default()
        };
        let first = Row {
            suspects: [(0, 1)].into(),
            ..doubt.clone()
        };
        let look = Look {
            rows: [((4, 1), first), ((1, 1), doubt.clone())].into(),
            ..Look::default()
        };
        let found = suspicions(&record, &look, ((2, 1), &doubt));
        assert_eq!(found.kept(&(0..5).collect()), [1, 2, 4].into());
    }

    #[test]
    fn a_rank_is_accused_by_another_member_only() {
        let record = GroupRecord::founded([(0, 1), (1, 1)].into());
        let row = Row {
            doubts: [(1, 1)].into(),
            ..Row::default()
        };
        let by = |who: RankGeneration| {
            let look = Look {
                rows: [(who, row.clone())].into(),
                ..Look::default()
            };
            accused(&record, &look, (1, 1))
        };
        assert!(by((0, 1)));
        assert!(!by((1, 1)), "itself");
        assert!(!by((0, 2)), "of another generation");
        assert!(!by((2, 1)), "no member");
    }

    #[test]
    fn of_two_newcomers_that_are_not_connected_one_comes_first() {
        let record = GroupRecord::founded([(0, 1)].into());
        let (a, b, c) = ((0, 1), (1, 2), (2, 4));
        let apart = look(&[(a, &[b, c]), (b, &[a]), (c, &[a, b])], &[b, c]);
        assert_eq!(ready(&record, &apart, &BTreeSet::new()), [(1, 2)].into());
        let together = look(&[(a, &[b, c]), (b, &[a, c]), (c, &[a, b])], &[b, c]);
        assert_eq!(
            ready(&record, &together, &BTreeSet::new()),
            [(1, 2), (2, 4)].into()
        );
    }

    #[test]
    fn a_generation_that_was_dropped_is_neither_wanted_nor_taken_in() {
        let mut record = GroupRecord::founded([(0, 1), (1, 1)].into());
        record.members.remove(&1);
        let (a, old, new) = ((0, 1), (1, 1), (1, 2));
        let asks = look(&[(a, &[old, new]), (old, &[a]), (new, &[a])], &[old]);
        assert_eq!(ready(&record, &asks, &BTreeSet::new()), Members::new());
        assert_eq!(wanted(&record, &asks, a, true), BTreeSet::new());
        let asks = look(&[(a, &[old, new]), (old, &[a]), (new, &[a])], &[old, new]);
        assert_eq!(ready(&record, &asks, &BTreeSet::new()), [(1, 2)].into());
        assert_eq!(wanted(&record, &asks, a, true), [new].into());
        assert_eq!(wanted(&record, &asks, new, false), [a].into());
    }
}
