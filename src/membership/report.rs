//! How a group stands by the keys in its store, for a reader that is no rank.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_rules::members::Members;
use membership_rules::record::{Proposal, RankGeneration, Record};
use membership_rules::slots::Slots;
use rendezvous::{Patient, Process, Store, repeat};

use super::GroupError;
use super::config::GroupConfig;
use super::event::GroupView;
use super::generations::PATIENCE;
use super::group_store::{GroupStore, LookAt};
use super::newcomers::held_for;
use super::stored::{RECORD, parse_any_record};

/// The generation as which the reader looks. No rank has it.
const READER: RankGeneration = (u32::MAX, 0);

/// What the store says of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupReport {
    /// Number of slots of the team.
    pub slots: u32,
    /// The newest view.
    pub view: GroupView,
    /// The proposal of the next view, if one is open.
    pub proposal: Option<OpenProposal>,
    /// The members, and other ranks that hold a lease.
    pub ranks: Vec<RankReport>,
    /// Slots that members hold back, because newcomers of these slots came to nothing.
    pub held_back: Vec<HeldBackReport>,
    /// Keys that count as missing, each with its name and the reason.
    pub odd: Vec<String>,
}

/// A slot that waits before members take in its next newcomer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldBackReport {
    /// The slot.
    pub rank: u32,
    /// Number of newcomers that came to nothing, one after the other.
    pub failures: u32,
    /// How long members wait after the last of these newcomers, in leases.
    pub leases: u32,
}

/// A proposal that not all ranks of it have promised yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenProposal {
    /// The number of the proposal, as its record has it.
    pub number: u64,
    /// The rank that has made the proposal.
    pub by: u32,
    /// Members that stay.
    pub keeps: Vec<u32>,
    /// The generation of each newcomer, by slot.
    pub takes: Members,
    /// Members that leave by their own wish.
    pub leaves: Vec<u32>,
    /// Pairs that the next view parts, the lower slot first.
    pub parts: Vec<(u32, u32)>,
}

/// One generation of a rank, and what the rank says against others in the newest view.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankReport {
    /// Slot of the rank.
    pub rank: u32,
    /// Generation of the rank, from 1 on.
    pub generation: u32,
    /// True if the rank is a member of the newest view.
    pub is_member: bool,
    /// True if the rank holds its lease.
    pub holds_lease: bool,
    /// True if the rank wants to be taken in.
    pub asks: bool,
    /// Ranks of which this rank hears nothing.
    pub unheard: Vec<u32>,
    /// Ranks to which a QP of this rank is in error.
    pub broken: Vec<u32>,
    /// Ranks with which this rank had no contact for the stall bound.
    pub overdue: Vec<u32>,
    /// Ranks whose processes this rank has seen to end.
    pub ended: Vec<u32>,
    /// Number of calls of this rank that found no free send buffer, and so sent nothing.
    pub unbuffered: u32,
}

/// Returns how the group that meets in `store` stands, or None before its founders have met. Changes nothing in the store.
///
/// # Errors
/// [`GroupError::Store`]; [`GroupError::Record`] if the record is not one that a group writes.
pub fn read_group(store: &Arc<dyn Store>) -> Result<Option<GroupReport>, GroupError> {
    let until = Instant::now() + PATIENCE;
    let Some(text) = repeat(until, || store.try_get(RECORD))? else {
        return Ok(None);
    };
    let (_, slots) = parse_any_record(&text).map_err(|error| GroupError::Record {
        key: RECORD.to_owned(),
        reason: error.to_string(),
    })?;
    let patient: Arc<dyn Store> = Arc::new(Patient::new(Arc::clone(store), PATIENCE));
    let ttl = GroupConfig::new().lease_ttl;
    let mut group = GroupStore::new(patient, READER, slots, ttl, Process::this());
    let mut odd = group.reader_mut().look(&LookAt::All)?;
    odd.extend(group.reader_mut().look(&LookAt::Members)?);
    let kept = group.kept();
    let Some(record) = &kept.record else {
        return Ok(None);
    };
    let open = record.open.as_ref();
    Ok(Some(GroupReport {
        slots,
        view: GroupView::from(record.as_ref()),
        proposal: open.map(|open| OpenProposal::of(record.number, open)),
        ranks: ranks(&group),
        held_back: held_back(&group, record),
        odd,
    }))
}

/// Returns the members of the record, and others that hold a lease, in the order of their slots.
fn ranks(group: &GroupStore) -> Vec<RankReport> {
    let kept = group.kept();
    let record = kept.record.as_ref();
    let members = record.map_or_else(Members::default, |record| record.members.clone());
    let epoch = kept.record.as_ref().map_or(0, |record| record.epoch);
    let all: BTreeSet<RankGeneration> = members
        .iter()
        .chain(kept.members.iter().map(|(who, _)| who))
        .collect();
    let report = |who: RankGeneration| {
        let stored = kept.rows.get(&who);
        let row = stored
            .map(|row| row.row(epoch, |_| true))
            .unwrap_or_default();
        RankReport {
            rank: who.0,
            generation: who.1,
            is_member: members.get(who.0) == Some(who.1),
            holds_lease: kept.members.contains(who),
            asks: kept.members.asks(who),
            unheard: slots_of(&row.unheard),
            broken: slots_of(&row.broken),
            overdue: slots_of(&row.overdue),
            ended: slots_of(&row.ended),
            unbuffered: stored.map_or(0, |row| row.unbuffered),
        }
    };
    all.into_iter().map(report).collect()
}

/// Returns the slots that wait, as the rows of members say.
fn held_back(group: &GroupStore, record: &Record) -> Vec<HeldBackReport> {
    let mut all: BTreeMap<u32, u32> = BTreeMap::new();
    let rows = record
        .members
        .iter()
        .filter_map(|who| group.kept().rows.get(&who));
    for (slot, failures) in rows.flat_map(|row| row.held.iter()) {
        let most = all.entry(slot).or_default();
        *most = failures.max(*most);
    }
    let unit = Duration::from_secs(1);
    let report = |(rank, failures)| HeldBackReport {
        rank,
        failures,
        leases: u32::try_from(held_for(unit, failures).as_secs()).unwrap_or(u32::MAX),
    };
    all.into_iter().map(report).collect()
}

fn slots_of(slots: &Slots) -> Vec<u32> {
    slots.iter().collect()
}

impl OpenProposal {
    fn of(number: u64, open: &Proposal) -> Self {
        Self {
            number,
            by: open.by,
            keeps: slots_of(&open.keep),
            takes: open.takes.clone(),
            leaves: open.leaves.keys().copied().collect(),
            parts: open.parts.iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::stored::{
        Member, StoredRow, member_key, record_text, row_key, row_text,
    };
    use rendezvous::MemoryStore;

    fn store() -> Arc<dyn Store> {
        Arc::new(MemoryStore::new())
    }

    #[test]
    fn a_store_shows_members_and_parted_pairs_with_the_ranks_that_say_so() {
        let store = store();
        assert_eq!(read_group(&store).unwrap(), None);
        let mut record = Record::founded([(0, 1), (1, 1), (2, 3)].into());
        record.parted.insert(0, 2);
        let mut parts = record.parted.clone();
        parts.insert(1, 2);
        let open = Proposal {
            by: 1,
            keep: record.slots(),
            takes: Members::from([(3, 2)]),
            parts,
            ..Proposal::default()
        };
        let record = record.propose(open).unwrap();
        store.put(RECORD, &record_text(&record, 5)).unwrap();
        let lease = |who: RankGeneration, asks| {
            let process = Process::this();
            let member = serde_json::to_vec(&Member {
                process,
                asks,
                lost: false,
            })
            .unwrap();
            let ttl = Duration::from_secs(60);
            store.take_lease(&member_key(who), &member, ttl).unwrap();
        };
        lease((0, 1), false);
        lease((2, 3), false);
        lease((3, 2), true);
        let row = StoredRow {
            slots: 5,
            epoch: record.epoch,
            broken: [2].into_iter().collect(),
            unheard: [1].into_iter().collect(),
            held: [(4, 4)].into(),
            ..StoredRow::default()
        };
        store.put(&row_key((0, 1)), &row_text(&row)).unwrap();
        store.put(&row_key((1, 1)), b"{").unwrap();

        let report = read_group(&store).unwrap().unwrap();
        assert_eq!(report.slots, 5);
        assert_eq!(report.view.parted, [(0, 2)]);
        let proposal = report.proposal.as_ref().unwrap();
        assert_eq!((proposal.by, proposal.number), (1, record.number));
        assert_eq!(proposal.parts, [(0, 2), (1, 2)]);
        assert_eq!(proposal.keeps, [0, 1, 2]);
        let ranks: Vec<_> = report
            .ranks
            .iter()
            .map(|it| {
                (
                    it.rank,
                    it.generation,
                    it.is_member,
                    it.holds_lease,
                    it.asks,
                )
            })
            .collect();
        let wanted = [
            (0, 1, true, true, false),
            (1, 1, true, false, false),
            (2, 3, true, true, false),
            (3, 2, false, true, true),
        ];
        assert_eq!(ranks, wanted);
        let held: Vec<_> = report
            .held_back
            .iter()
            .map(|it| (it.rank, it.failures, it.leases))
            .collect();
        assert_eq!(held, [(4, 4, 4)]);
        assert_eq!(report.ranks[0].broken, [2]);
        assert_eq!(report.ranks[0].unheard, [1]);
        assert!(report.ranks[1].unheard.is_empty());
        assert_eq!(report.odd.len(), 1, "{:?}", report.odd);
        assert!(
            report.odd[0].contains("'group/row/1.1'"),
            "{:?}",
            report.odd
        );
    }

    #[test]
    fn a_record_that_cannot_be_is_refused_by_name() {
        let store = store();
        store.put(RECORD, b"{").unwrap();
        let error = read_group(&store).unwrap_err().to_string();
        assert!(
            error.starts_with("invalid record 'group/record'"),
            "{error}"
        );
    }
}
