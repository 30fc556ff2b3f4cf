//! The names of the keys, and the slots and generations in them.

use membership_rules::record::RankGeneration;
use rendezvous::{Store, StoreError};

pub(in crate::membership) const GROUP: &str = "group";
pub(in crate::membership) const RECORD: &str = "group/record";
pub(in crate::membership) const MEMBERS: &str = "group/member";
pub(in crate::membership) const CONFIG: &str = "group/config";
pub(in crate::membership) const ROWS: &str = "group/row/";
pub(in crate::membership) const PROMISES: &str = "group/promise/";
/// The keys below this one hold the words of ranks that want to leave.
pub(in crate::membership) const GOODBYES: &str = "group/leaves/";
/// The kinds of keys that a generation writes under its own name.
const WORDS: [&str; 5] = ["row", "leaves", "over", "taken", "member"];
/// The value under the `over` key of a rank that has ended.
pub(in crate::membership) const OVER: &[u8] = b"1";

/// The keys below this one hold the words of ranks whose store has lost the record.
pub(in crate::membership) const HAD: &str = "group/had";

/// Returns the keys below which generations write under their own names. No rank reads the keys of generations that are over.
pub(in crate::membership) fn all_words() -> impl Iterator<Item = String> {
    let all = WORDS.into_iter().chain(["had"]);
    all.map(|kind| format!("{GROUP}/{kind}"))
}

/// Returns the keys that `who` writes below those of [`all_words`], without `had`.
pub(in crate::membership) fn words_of(who: RankGeneration) -> impl Iterator<Item = String> {
    WORDS.into_iter().map(move |kind| key(kind, who))
}

/// Writes that `who` has ended.
pub(in crate::membership) fn say_over(
    store: &dyn Store,
    who: RankGeneration,
) -> Result<(), StoreError> {
    store.put(&key("over", who), OVER)
}

/// Returns the key of a rank's lease.
pub(in crate::membership) fn member_key(who: RankGeneration) -> String {
    key("member", who)
}

/// Returns the key of a rank's row, which says how it stands with the others.
pub(in crate::membership) fn row_key(who: RankGeneration) -> String {
    key("row", who)
}

/// Returns the key by which a rank says that it has ended.
pub(in crate::membership) fn over_key(who: RankGeneration) -> String {
    key("over", who)
}

/// Returns the key by which a rank says that it wants to leave.
pub(in crate::membership) fn goodbye_key(who: RankGeneration) -> String {
    key("leaves", who)
}

/// Returns the key by which a rank says which record it has had, while the store has lost it.
pub(in crate::membership) fn had_key(who: RankGeneration) -> String {
    key("had", who)
}

pub(in crate::membership) fn key(kind: &str, (slot, generation): RankGeneration) -> String {
    format!("group/{kind}/{slot}.{generation}")
}

/// Returns the key of a rank's promise for a proposal.
pub(in crate::membership) fn promise_key(proposal: u64, who: RankGeneration) -> String {
    key(&format!("promise/{proposal}"), who)
}

/// Returns the slot and the generation that `name` says.
pub(in crate::membership) fn rank_generation(
    name: &str,
    slots: u32,
) -> Result<RankGeneration, String> {
    let split = name.split_once('.');
    let (slot, generation) = split.ok_or("its name is not SLOT.GENERATION")?;
    let slot: u32 = slot.parse().map_err(|_| format!("'{slot}' is no slot"))?;
    if slot >= slots {
        return Err(format!("slot {slot}; there are {slots}"));
    }
    match generation.parse() {
        Ok(generation) if generation != 0 => Ok((slot, generation)),
        _ => Err(format!("'{generation}' is no generation")),
    }
}
