//! The names of the keys, and the slots and generations in them.

use membership_rules::record::RankGeneration;
use rendezvous::{Store, StoreError};

pub(in crate::membership) const GROUP: &str = "group";
pub(in crate::membership) const RECORD: &str = "group/record";
pub(in crate::membership) const MEMBERS: &str = "group/member";
pub(in crate::membership) const CONFIG: &str = "group/config";
pub(in crate::membership) const ROWS: &str = "group/row/";
pub(in crate::membership) const PROMISES: &str = "group/promise/";
/// Below it are the words of ranks that want to leave.
pub(in crate::membership) const GOODBYES: &str = "group/leaves/";
/// Kinds of keys that a generation writes under its own name.
const WORDS: [&str; 5] = ["row", "leaves", "over", "taken", "member"];
/// The value under the `over` key of a rank that has ended.
pub(in crate::membership) const OVER: &[u8] = b"1";

/// Below it are the words of ranks whose store has lost the record.
pub(in crate::membership) const HAD: &str = "group/had";

/// The keys below which generations write under their own names. No rank reads those of generations that are over.
pub(in crate::membership) fn all_words() -> impl Iterator<Item = String> {
    let all = WORDS.into_iter().chain(["had"]);
    all.map(|kind| format!("{GROUP}/{kind}"))
}

/// Returns the keys that `who` writes below them.
pub(in crate::membership) fn words_of(who: RankGeneration) -> impl Iterator<Item = String> {
    WORDS.into_iter().map(move |kind| key(kind, who))
}

/// `who` has ended, and says so.
pub(in crate::membership) fn say_over(
    store: &dyn Store,
    who: RankGeneration,
) -> Result<(), StoreError> {
    store.put(&key("over", who), OVER)
}

/// Returns the lease of a rank.
pub(in crate::membership) fn member_key(who: RankGeneration) -> String {
    key("member", who)
}

/// Returns the key of a rank's row, which says how it stands with the others.
pub(in crate::membership) fn row_key(who: RankGeneration) -> String {
    key("row", who)
}

/// That a rank has ended, by its own word.
pub(in crate::membership) fn over_key(who: RankGeneration) -> String {
    key("over", who)
}

/// That a rank wants to leave.
pub(in crate::membership) fn goodbye_key(who: RankGeneration) -> String {
    key("leaves", who)
}

/// Returns what a rank has had of a record that the store has lost.
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
