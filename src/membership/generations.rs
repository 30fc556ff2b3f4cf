//! Draws generations of a slot. Each generation is given once, so that two processes are never taken for one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use membership_rules::record::RankGeneration;
use rendezvous::{Store, StoreError, repeat};

use super::GroupError;
use super::stored::{RECORD, parse_any_record};

/// How long a call before the group runs is repeated: longer than an etcd needs to choose another leader.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

const GENERATIONS: &str = "generation";
/// Keys below these are named by slot and generation. They exist from a generation's first record until the group dropped that generation.
const TRACES: [&str; 4] = ["rank", "hello", "group/taken", "group/member"];
/// The value under the key of a drawn generation. Only the name of the key carries meaning.
const DRAWN: &[u8] = b"1";

/// Returns the next generation of `slot`; each call returns another number, also across processes. The number is one above the newest
/// generation that was drawn. If the store knows of none, it is one above the newest generation of which the store holds any
/// record.
///
/// # Errors
/// [`GroupError::Store`]; [`GroupError::Record`] if the generation 2^32 - 1 was drawn, or if the record cannot be read.
pub fn next_generation(store: &dyn Store, slot: u32) -> Result<u32, GroupError> {
    loop {
        let until = Instant::now() + PATIENCE;
        let newest = newest_generation(store, slot, until)?;
        let next = newest.checked_add(1).ok_or_else(|| GroupError::Record {
            key: generation_key((slot, newest)),
            reason: format!("generation {newest}; there is none after it"),
        })?;
        if draw(store, (slot, next), until)? {
            return Ok(next);
        }
    }
}

fn newest_generation(store: &dyn Store, slot: u32, until: Instant) -> Result<u32, GroupError> {
    match drawn(store, slot, until)?.last() {
        Some(newest) => Ok(*newest),
        None => newest_trace(store, slot, until),
    }
}

/// Draws this generation. Returns whether it did; if not, the generation was drawn before.
///
/// A rank that draws a generation removes the keys of all earlier ones, the earliest first. So the key of this generation may have been set
/// and removed before. Then the store holds the key of a later generation. A list may be read while keys are removed, so this call lists
/// twice, and the second list must still have the key.
fn draw(
    store: &dyn Store,
    (slot, generation): RankGeneration,
    until: Instant,
) -> Result<bool, StoreError> {
    let key = generation_key((slot, generation));
    if !repeat(until, || store.compare_and_set(&key, None, DRAWN))? {
        return Ok(false);
    }
    let found = drawn(store, slot, until)?;
    let is_newest = found.last() <= Some(&generation);
    if !is_newest || !drawn(store, slot, until)?.contains(&generation) {
        return Ok(false);
    }
    for old in found.range(..generation) {
        repeat(until, || store.remove(&generation_key((slot, *old))))?;
    }
    Ok(true)
}

/// Returns the generations of `slot` that are known to be drawn.
fn drawn(store: &dyn Store, slot: u32, until: Instant) -> Result<BTreeSet<u32>, StoreError> {
    let names = repeat(until, || store.list(&format!("{GENERATIONS}/{slot}")))?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

/// A founder has drawn no generation: from now on this one counts as drawn.
pub(super) fn note_generation(store: &dyn Store, of: RankGeneration) -> Result<bool, StoreError> {
    store.compare_and_set(&generation_key(of), None, DRAWN)
}

/// Returns the newest generation of `slot` that was a member of a group or has a record in the store. Returns 0 if the store knows of none.
fn newest_trace(store: &dyn Store, slot: u32, until: Instant) -> Result<u32, GroupError> {
    let mut newest = 0;
    if let Some(text) = repeat(until, || store.try_get(RECORD))? {
        let (record, _) = parse_any_record(&text).map_err(|error| GroupError::Record {
            key: RECORD.to_owned(),
            reason: error.to_string(),
        })?;
        newest = record.admitted.get(slot).unwrap_or(0);
    }
    for below in TRACES {
        let names: Result<Vec<String>, StoreError> = repeat(until, || store.list(below));
        let traces = names?;
        let traces = traces.iter().filter_map(|name| generation_of(name, slot));
        newest = traces.fold(newest, u32::max);
    }
    Ok(newest)
}

/// Returns the generation that `name` says, if `name` is of `slot`. A founder is named by its slot alone.
fn generation_of(name: &str, slot: u32) -> Option<u32> {
    let (of, generation) = name.split_once('.').unwrap_or((name, "1"));
    let generation = generation.parse().ok()?;
    (of.parse() == Ok(slot)).then_some(generation)
}

fn generation_key((slot, generation): RankGeneration) -> String {
    format!("{GENERATIONS}/{slot}/{generation}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::stored::record_text;
    use membership_rules::record::Record;
    use rendezvous::{MemoryStore, Records};
    use std::sync::{Arc, Barrier};

    const LONG: Duration = Duration::from_secs(100);

    #[test]
    fn each_generation_of_a_slot_is_given_once() {
        let store = MemoryStore::new();
        let given: Vec<u32> = std::thread::scope(|scope| {
            let take = || -> Vec<u32> {
                (0..20)
                    .map(|_| next_generation(&store, 3).unwrap())
                    .collect()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            let all = threads.into_iter().map(|thread| thread.join().unwrap());
            all.flatten().collect()
        });
        let each: BTreeSet<u32> = given.iter().copied().collect();
        assert_eq!(each.len(), given.len(), "{given:?}");
        assert_eq!(next_generation(&store, 4).unwrap(), 1);
    }

    #[test]
    fn two_ranks_that_race_over_garbage_draw_two_generations() {
        let memory = Arc::new(MemoryStore::new());
        let raw = Arc::clone(&memory) as Arc<dyn Store>;
        let store = Records::new(raw, "run").unwrap();
        let mut given = BTreeSet::new();
        let both = Barrier::new(2);
        for round in 0..500 {
            memory.put("generation/2", b"no record").unwrap();
            memory.remove_below("generation/2").unwrap();
            if let Some(newest) = given.last() {
                store.put(&format!("rank/2.{newest}"), b"7").unwrap();
            }
            let draw = || {
                both.wait();
                next_generation(&store, 2).unwrap()
            };
            let [one, other] = std::thread::scope(|scope| {
                [scope.spawn(draw), scope.spawn(draw)].map(|thread| thread.join().unwrap())
            });
            assert!(given.insert(one), "round {round}: {one} again");
            assert!(given.insert(other), "round {round}: {other} again");
        }
    }

    #[test]
    fn a_generation_that_others_have_drawn_since_the_look_is_not_drawn_again() {
        let until = Instant::now() + LONG;
        for others in 1..=3 {
            let store = MemoryStore::new();
            let newest = newest_generation(&store, 2, until).unwrap();
            for _ in 0..others {
                next_generation(&store, 2).unwrap();
            }
            // The key that is drawn may exist or not.
            assert!(!draw(&store, (2, newest + 1), until).unwrap(), "{others}");
            assert_eq!(next_generation(&store, 2).unwrap(), others + 1);
        }
    }

    #[test]
    fn the_store_keeps_the_newest_of_the_generations_that_were_drawn() {
        let store = MemoryStore::new();
        for generation in 1..=9 {
            assert_eq!(next_generation(&store, 2).unwrap(), generation);
            let names = store.list("generation/2").unwrap();
            assert_eq!(names, [generation.to_string()]);
        }
    }

    #[test]
    fn a_generation_comes_behind_all_former_ones_whatever_their_keys_hold() {
        let memory = Arc::new(MemoryStore::new());
        let raw = Arc::clone(&memory) as Arc<dyn Store>;
        let store = Records::new(raw, "run").unwrap();
        let forget = || store.remove_below("generation/2").unwrap();
        let next = || next_generation(&store, 2).unwrap();
        assert_eq!(next(), 1, "the store knows of none");
        memory.put("generation/2/1", b"no record").unwrap();
        store.put("generation/2/x", b"1").unwrap();
        store.put("generation/2/-1", b"1").unwrap();
        store.put("generation/2/4294967296", b"1").unwrap();
        assert_eq!(next(), 2);
        // Each trace counts by itself, and traces of other slots do not count.
        store.put("hello/2.3", b"").unwrap();
        store.put("hello/12.9", b"").unwrap();
        store.put("hello/2.x", b"").unwrap();
        forget();
        assert_eq!(next(), 4);
        store.put("rank/2.4", b"7").unwrap();
        store.put("rank/3", b"7").unwrap();
        forget();
        assert_eq!(next(), 5);
        store.put("group/taken/2.5", b"1").unwrap();
        forget();
        assert_eq!(next(), 6);
        let record = Record::founded([(0, 1), (2, 8)].into());
        store.put(RECORD, &record_text(&record, 3)).unwrap();
        forget();
        assert_eq!(next(), 9);
        assert_eq!(next(), 10);
        // If the record cannot be read, the generation is not guessed.
        store.put(RECORD, b"{").unwrap();
        assert_eq!(next(), 11, "the drawn ones are known");
        forget();
        let error = next_generation(&store, 2).unwrap_err().to_string();
        assert!(
            error.starts_with("invalid record 'group/record'"),
            "{error}"
        );
        store.put("generation/2/4294967295", b"1").unwrap();
        let error = next_generation(&store, 2).unwrap_err().to_string();
        assert!(
            error.ends_with("generation 4294967295; there is none after it"),
            "{error}"
        );
    }

    #[test]
    fn a_founder_that_left_no_other_trace_counts_as_the_first_generation() {
        let store = MemoryStore::new();
        store.put("rank/0", b"7").unwrap();
        assert_eq!(next_generation(&store, 0).unwrap(), 2);
        note_generation(&store, (1, 1)).unwrap();
        assert_eq!(next_generation(&store, 1).unwrap(), 2);
    }
}
