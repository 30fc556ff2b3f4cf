//! What the store holds of a group: one record, and a promise of each rank for the proposal that is open.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Ranks of a view: the generation of each, by rank slot.
pub(crate) type Members = BTreeMap<u32, u32>;

/// The group. Changed by compare-and-set only, so that its changes are one sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupRecord {
    /// Number of the view; grows by one with each.
    pub(crate) epoch: u32,
    /// Who belongs to it.
    pub(crate) members: Members,
    /// First call that runs in it.
    pub(crate) first: u32,
    /// The newest generation of each slot that ever was a member: it does not come back once it was dropped.
    pub(crate) admitted: Members,
    /// Number of the newest proposal; grows for ever.
    pub(crate) proposal: u64,
    /// Whom it keeps and takes in; none: no proposal is open.
    pub(crate) proposed: Option<Members>,
    /// Of the last of each slot that has left: its generation, and the first call that runs without it.
    pub(crate) left: BTreeMap<u32, (u32, u32)>,
}

/// What a rank promises: it will start no call above `last` in the old view, and its QPs to everybody outside the proposal are
/// in error. A rank that is not in the view yet promises no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Promise {
    /// The last call that it started, or will still start.
    pub(crate) last: Option<u32>,
}

/// What a member says that wants to go: `last` is the last call that it starts in the view of `epoch`. It holds in that view only;
/// a member that a change has kept meanwhile says it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Goodbye {
    /// The view that it has when it says so.
    pub(crate) epoch: u32,
    /// The last call that it starts in it.
    pub(crate) last: u32,
}

impl GroupRecord {
    /// The first view of a group.
    pub(crate) fn founded(members: Members) -> Self {
        Self {
            epoch: 1,
            admitted: members.clone(),
            members,
            first: 1,
            proposal: 0,
            proposed: None,
            left: BTreeMap::new(),
        }
    }

    /// Whether this generation was a member once, and is none any more.
    pub(crate) fn was_dropped(&self, slot: u32, generation: u32) -> bool {
        let newest = self.admitted.get(&slot);
        newest.is_some_and(|newest| *newest >= generation)
            && self.members.get(&slot) != Some(&generation)
    }

    /// A further proposal.
    pub(crate) fn propose(&self, proposed: Members) -> Self {
        Self {
            proposal: self.proposal + 1,
            proposed: Some(proposed),
            ..self.clone()
        }
    }

    /// The view that the open proposal becomes once everybody in it has promised; none before.
    ///
    /// It begins behind every call that an old member has started or may still start: rules B5 and B8. One that leaves has said
    /// which is its last.
    pub(crate) fn commit(
        &self,
        promises: &BTreeMap<u32, Promise>,
        leaves: &BTreeMap<(u32, u32), u32>,
    ) -> Option<Self> {
        let proposed = self.proposed.as_ref()?;
        let mut first = self.first;
        for (slot, generation) in proposed {
            let promise = promises.get(slot)?;
            if self.members.get(slot) == Some(generation) {
                first = later(first, promise.last?.wrapping_add(1));
            }
        }
        let mut leavers = leaves.clone();
        leavers.retain(|(slot, generation), _| {
            self.members.get(slot) == Some(generation) && !proposed.contains_key(slot)
        });
        for last in leavers.values() {
            first = later(first, last.wrapping_add(1));
        }
        let mut left = self.left.clone();
        left.extend(
            leavers
                .keys()
                .map(|(slot, generation)| (*slot, (*generation, first))),
        );
        let mut admitted = self.admitted.clone();
        admitted.extend(proposed);
        Some(Self {
            epoch: self.epoch + 1,
            members: proposed.clone(),
            first,
            admitted,
            proposal: self.proposal,
            proposed: None,
            left,
        })
    }
}

/// The later of two calls. Call numbers wrap.
pub(crate) fn later(a: u32, b: u32) -> u32 {
    if newer(b, a) { b } else { a }
}

/// Whether call `a` is newer than call `b`.
pub(crate) fn newer(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}
