//! The keys that a rank asks for even when it does not act, and whether a record that a watch delivered makes that look unnecessary.

use std::collections::BTreeSet;

use membership_rules::members::Members;
use rendezvous::{Entry, MAX_LOOK, StoreError};

use super::event::GroupEventKind;
use super::group_store::LookAt;
use super::rank::Rank;
use super::stored::{GOODBYES, PROMISES, goodbye_key, over_key, promise_key, row_key};

/// Keeps the record that the watch delivered. Returns whether this rank needs no other key now.
pub(super) fn take_down(rank: &mut Rank, entry: &Entry) -> bool {
    let before = rank.store.kept().record.clone();
    if let Some(error) = rank.store.reader_mut().take_down(entry) {
        rank.shared.tell(GroupEventKind::Failed { error });
    }
    let (Some(before), Some(now)) = (before, &rank.store.kept().record) else {
        return false;
    };
    // The rank has to look if another rank has woken all ranks by the record, or if this rank is a newcomer.
    if before.asked != now.asked || rank.own.applied == 0 {
        return false;
    }
    let own = row_key(rank.own());
    // Leavers and newcomers wake the members by the record when they have written. So no look need ask for these keys.
    let rings = |key: &String| key.starts_with(PROMISES) || key.starts_with(GOODBYES);
    named(rank).iter().all(|key| *key == own || rings(key))
}

/// Looks at the record, at the newcomers, and at [`named`]. A rank that misses the leases of many members would read all keys. Its list of
/// leases may only be old, as that of founders that find the record at their first look. So such a rank reads the leases first, and then
/// decides again what it names.
pub(super) fn look_at_named(rank: &mut Rank) -> Result<Vec<String>, StoreError> {
    let mut keys = named(rank);
    let mut odd = Vec::new();
    if keys.len() >= MAX_LOOK {
        let own = BTreeSet::from([row_key(rank.own())]);
        odd = rank.store.reader_mut().look(&LookAt::Named(own))?;
        keys = named(rank);
    }
    odd.extend(rank.store.reader_mut().look(&LookAt::Named(keys))?);
    Ok(odd)
}

/// Returns the keys that this rank asks for even when it does not act:
///
/// - its own row, which another writer may have changed;
/// - row, `over` and promise of each member whose lease it misses;
/// - the rows of the ranks from which the view parts it;
/// - of leavers, row and `over`, which say whether they are through;
/// - the promises of newcomers, which come first;
/// - the goodbye of the rank that acts, which cannot take itself out.
///
/// If these are more than one look can ask for, it returns only some: then a look at all keys takes the place of this look.
fn named(rank: &Rank) -> BTreeSet<String> {
    let own = rank.own();
    let mut named = BTreeSet::from([row_key(own)]);
    let kept = rank.store.kept();
    let Some(record) = &kept.record else {
        return named;
    };
    let holders = rank.holders(record);
    let member = |slot| Some((slot, record.members.get(slot)?));
    let missed = record.slots().without(&holders);
    for who in missed.iter().filter_map(member).filter(|who| *who != own) {
        if named.len() >= MAX_LOOK {
            return named;
        }
        named.extend([row_key(who), over_key(who)]);
        if record.open.is_some() {
            named.insert(promise_key(record.number, who));
        }
    }
    // The row of a parted rank says whether that rank still has calls to make from before the view.
    let parted = record.parted.of(own.0);
    let parted = record.members.iter().filter(|who| parted.contains(who.0));
    named.extend(parted.map(row_key));
    for who in rank.shared.lock().farewells.keys() {
        named.extend([row_key(*who), over_key(*who)]);
    }
    let takes = record.open.as_ref().map(|open| &open.takes);
    let takes = takes.into_iter().flat_map(Members::iter);
    named.extend(takes.map(|who| promise_key(record.number, who)));
    let mut before = record.members.iter().take_while(|who| *who != own);
    let acts = before.find(|who| holders.contains(who.0));
    named.extend(acts.map(goodbye_key));
    named
}
