//! Looks, leases and changes over a store in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_rules::record::{RankGeneration, Record};
use membership_rules::slots::Slots;
use rendezvous::{MemoryStore, Process, Records, Store, StoreError};

use super::enter::LOOKS;
use super::*;
use crate::membership::stored::{
    CONFIG, OVER, RECORD, StoredRow, member_key, over_key, promise_key, record_text, row_key,
    row_text,
};
use crate::membership::{GroupConfig, GroupError};

const TTL: Duration = Duration::from_secs(10);

fn opened(store: &Arc<MemoryStore>, own: RankGeneration, slots: u32) -> GroupStore {
    let store = Arc::clone(store) as Arc<dyn Store>;
    GroupStore::new(store, own, slots, TTL, Process::this())
}

#[test]
fn a_record_that_cannot_be_is_refused_with_its_key() {
    let store = Arc::new(MemoryStore::new());
    let record = Record::founded([(0, 1), (2, 1)].into());
    store.put(RECORD, &record_text(&record, 3)).unwrap();
    let all = Arc::clone(&store) as Arc<dyn Store>;
    let error = newest_view(&all, 2).unwrap_err().to_string();
    assert_eq!(
        error,
        "invalid record 'group/record' of the group: it is of 3 slots; there are 2"
    );
    store.put(RECORD, b"{").unwrap();
    assert!(matches!(
        newest_view(&all, 2),
        Err(GroupError::Record { .. })
    ));
}

#[test]
fn what_a_row_says_against_ranks_holds_in_its_view_only() {
    let set = |slot: u32| -> Slots { [slot].into_iter().collect() };
    let stored = StoredRow {
        epoch: 3,
        unheard: set(0),
        broken: set(1),
        overdue: set(2),
        ended: set(3),
        meets: set(4),
        connected: [(5, 2), (6, 1)].into(),
        ..StoredRow::default()
    };
    let named = |(_, generation): RankGeneration| generation == 2;
    let row = stored.row(3, named);
    assert_eq!(
        [&row.unheard, &row.broken, &row.overdue, &row.ended],
        [&set(0), &set(1), &set(2), &set(3)]
    );
    // The next holder of slot 3 has not ended. So slot 3 of another view is not in the row.
    for epoch in [2, 4] {
        let row = stored.row(epoch, named);
        let against = [&row.unheard, &row.broken, &row.overdue, &row.ended];
        assert!(against.into_iter().all(Slots::is_empty), "{row:?}");
        assert_eq!((&row.meets, &row.connected), (&set(4), &set(5)));
    }
}

impl GroupStore {
    /// Looks at all keys, and then at the leases.
    fn look_whole(&mut self) -> Result<Vec<String>, StoreError> {
        let mut odd = self.reader_mut().look(&LookAt::All)?;
        odd.extend(self.reader_mut().look(&LookAt::Members)?);
        Ok(odd)
    }
}

/// Puts `value` under `key`, looks, and returns the reports of that look.
fn told(store: &Arc<MemoryStore>, looker: &mut GroupStore, key: &str, value: &[u8]) -> String {
    store.put(key, value).unwrap();
    let odd = looker.look_whole().unwrap();
    assert!(odd.len() <= 1, "{odd:?}");
    odd.concat()
}

#[test]
fn garbage_in_any_key_counts_as_missing_and_is_named_once() {
    let store = Arc::new(MemoryStore::new());
    let mut looker = opened(&store, (0, 1), 2);
    looker.keep_lease(false).unwrap();
    assert!(looker.look_whole().unwrap().is_empty());
    let row = |slots: u32, meets: &[u32]| {
        let row = StoredRow {
            slots,
            meets: meets.iter().copied().collect(),
            ..StoredRow::default()
        };
        row_text(&row)
    };
    let record = |change: fn(&mut Record)| {
        let mut record = Record::founded([(0, 1), (1, 1)].into());
        change(&mut record);
        record_text(&record, 2)
    };
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("group/row/1.1", b"{".to_vec(), "EOF"),
        (
            "group/row/1.2",
            row(3, &[]),
            "it is of 3 slots; there are 2",
        ),
        ("group/row/1.3", row(2, &[0, 2]), "slot 2; there are 2"),
        ("group/row/2.1", row(2, &[]), "slot 2; there are 2"),
        ("group/row/1.0", row(2, &[]), "'0' is no generation"),
        ("group/row/1.4294967296", row(2, &[]), "is no generation"),
        ("group/row/11", row(2, &[]), "not SLOT.GENERATION"),
        ("group/member/1.9", b"7".to_vec(), "invalid type"),
        ("group/leaves/1.1", b"[]".to_vec(), "invalid length"),
        ("group/over/1.1", b"2".to_vec(), "not the word of a rank"),
        ("group/over/1.2", Vec::new(), "not the word of a rank"),
        (
            "group/promise/x/1.1",
            b"{}".to_vec(),
            "no number of a proposal",
        ),
        (
            "group/promise/1/1.1",
            b"{\"last\":-1}".to_vec(),
            "invalid value",
        ),
        ("group/strange/1.1", Vec::new(), "no key of a group"),
        ("group/strange", Vec::new(), "no key of a group"),
        ("group/record", record(|it| it.epoch = 0), "view 0"),
        ("group/record", Vec::new(), ""),
        ("group/record", record(|it| it.epoch = u32::MAX), ""),
        ("group/record", record(|it| it.number = u64::MAX), ""),
    ];
    for (key, value, reason) in cases {
        let odd = told(&store, &mut looker, key, &value);
        let named = odd.contains(&format!("'{key}'")) && odd.contains(reason);
        assert!(named || reason.is_empty() && odd.is_empty(), "{key}: {odd}");
        assert_eq!(told(&store, &mut looker, key, &value), "", "{key}: once");
    }
    assert_eq!(looker.kept().record, None);
    assert!(looker.kept().rows.is_empty() && looker.kept().promises.is_empty());
    assert!(looker.kept().over.is_empty());
    // A key that holds a valid value again counts.
    assert_eq!(
        told(&store, &mut looker, "group/row/1.1", &row(2, &[0])),
        ""
    );
    assert_eq!(looker.kept().rows.len(), 1);
    let whole = record(|_| ());
    assert_eq!(told(&store, &mut looker, RECORD, &whole), "");
    assert_eq!(looker.kept().record.as_ref().map(|it| it.epoch), Some(1));
    assert!(looker.kept().members.contains((0, 1)));
}

#[test]
fn a_record_of_an_earlier_view_shows_that_the_store_has_lost_its_data() {
    let store = Arc::new(MemoryStore::new());
    let mut looker = opened(&store, (0, 1), 2);
    let of = |epoch: u32| {
        let record = Record {
            epoch,
            ..Record::founded([(0, 1)].into())
        };
        record_text(&record, 2)
    };
    assert_eq!(told(&store, &mut looker, RECORD, &of(7)), "");
    let odd = told(&store, &mut looker, RECORD, &of(6));
    assert!(odd.contains("it is of view 6"), "{odd}");
    assert_eq!(
        looker.kept().record.as_ref().unwrap().epoch,
        7,
        "it stays in force"
    );
    // Then the store holds no record at all.
    store.remove(RECORD).unwrap();
    let next = looker.kept().record.clone().unwrap();
    assert_eq!(looker.replace(&next).unwrap(), Replaced::Missing);
}

#[test]
fn a_look_finds_ended_leases_beside_that_of_a_dropped_rank() {
    let store = Arc::new(MemoryStore::new());
    let mut holders: Vec<GroupStore> = (0..4).map(|slot| opened(&store, (slot, 1), 5)).collect();
    for holder in &mut holders {
        holder.keep_lease(false).unwrap();
    }
    let mut looker = opened(&store, (4, 1), 5);
    let mut record = Record::founded((0..4).map(|slot| (slot, 1)).collect());
    record.members.remove(3);
    store.put(RECORD, &record_text(&record, 5)).unwrap();
    looker.look_whole().unwrap();
    let held = |looker: &mut GroupStore| -> Vec<u32> {
        looker.reader_mut().look(&LookAt::Members).unwrap();
        looker.kept().members.iter().map(|(who, _)| who.0).collect()
    };
    assert_eq!(held(&mut looker), [0, 1, 2, 3]);
    // One lease is gone, and it is not that of the dropped rank: the next count finds it.
    holders[1].end_lease();
    assert_eq!(held(&mut looker), [0, 1, 2]);
    holders[3].end_lease();
    assert_eq!(held(&mut looker), [0, 2]);
    // Two leases go at once, and another one comes.
    holders[0].end_lease();
    holders[2].end_lease();
    holders[1].keep_lease(true).unwrap();
    assert_eq!(held(&mut looker), [1]);
    assert!(looker.kept().members.asks((1, 1)));
}

#[test]
fn rows_that_were_forgotten_are_read_again_where_needed() {
    let store = Arc::new(MemoryStore::new());
    let mut looker = opened(&store, (0, 1), 3);
    let row = |takings: u32| {
        let row = StoredRow {
            slots: 3,
            takings,
            ..StoredRow::default()
        };
        row_text(&row)
    };
    for slot in 0..3 {
        store.put(&row_key((slot, 1)), &row(slot + 1)).unwrap();
        store
            .put(&promise_key(1, (slot, 1)), b"{\"last\":7}")
            .unwrap();
    }
    let takings = |looker: &GroupStore| -> Vec<u32> {
        let rows = looker.kept().rows.values();
        rows.map(|row| row.takings).collect()
    };
    looker.reader_mut().look(&LookAt::All).unwrap();
    assert_eq!(takings(&looker), [1, 2, 3]);
    assert!(looker.reader_mut().forget_rows() && !looker.reader_mut().forget_rows());
    assert_eq!(takings(&looker), [1], "the own one stays");
    assert!(looker.kept().promises.is_empty());
    // A row that was written before the look is read by its name.
    let named = LookAt::Named([row_key((2, 1))].into());
    looker.reader_mut().look(&named).unwrap();
    assert_eq!(takings(&looker), [1, 3]);
    looker.reader_mut().look(&LookAt::All).unwrap();
    assert_eq!(takings(&looker), [1, 2, 3]);
    assert_eq!(looker.kept().promises.len(), 3);
}

#[test]
fn a_look_at_named_keys_reads_those_that_were_not_asked_for_before() {
    let store = Arc::new(MemoryStore::new());
    let mut looker = opened(&store, (0, 1), 3);
    let named = |keys: &[String]| LookAt::Named(keys.iter().cloned().collect());
    let record = Record::founded([(0, 1), (1, 1), (2, 1)].into());
    store.put(RECORD, &record_text(&record, 3)).unwrap();
    let row = |takings: u32| {
        let row = StoredRow {
            slots: 3,
            takings,
            ..StoredRow::default()
        };
        row_text(&row)
    };
    looker.reader_mut().look(&LookAt::All).unwrap();
    store.put("group/row/1.1", &row(1)).unwrap();
    store.put("group/over/2.1", OVER).unwrap();
    looker.reader_mut().look(&named(&[])).unwrap();
    assert!(looker.kept().rows.is_empty() && looker.kept().over.is_empty());
    // These keys were written before the last look, which has not asked for them.
    looker
        .reader_mut()
        .look(&named(&[row_key((1, 1)), over_key((2, 1))]))
        .unwrap();
    assert_eq!(looker.kept().rows[&(1, 1)].takings, 1);
    assert!(looker.kept().over.contains(&(2, 1)));
    // A promise that was written between the proposal and the look that shows the proposal.
    let keep = record.slots();
    let proposal = membership_rules::record::Proposal {
        keep,
        ..Default::default()
    };
    let open = record.propose(proposal).unwrap();
    store.put(RECORD, &record_text(&open, 3)).unwrap();
    store.put("group/promise/1/2.1", b"{\"last\":7}").unwrap();
    store.put("group/row/1.1", &row(2)).unwrap();
    looker
        .reader_mut()
        .look(&named(&[row_key((1, 1))]))
        .unwrap();
    assert!(looker.kept().promises.is_empty());
    let all = named(&[row_key((1, 1)), promise_key(1, (2, 1))]);
    looker.reader_mut().look(&all).unwrap();
    assert_eq!(looker.kept().promises[&(1, (2, 1))].last, Some(7));
    assert_eq!(looker.kept().rows[&(1, 1)].takings, 2);
    // A look at all keys also finds changes of keys that were not named.
    store.put("group/row/0.1", &row(3)).unwrap();
    looker.reader_mut().look(&all).unwrap();
    looker.reader_mut().look(&LookAt::All).unwrap();
    assert_eq!(looker.kept().rows[&(0, 1)].takings, 3);
}

#[test]
fn a_look_keeps_only_the_processes_of_members_that_it_can_watch() {
    let store = Arc::new(MemoryStore::new());
    let mut looker = opened(&store, (0, 1), 4);
    let this = serde_json::to_value(Process::this()).unwrap();
    let mut elsewhere = this.clone();
    elsewhere["seen_from"] = "another machine".into();
    let mut beside = this.clone();
    beside["pid"] = 1.into();
    for (slot, process) in [(1, this), (2, elsewhere), (3, beside)] {
        let member = serde_json::json!({"process": process, "asks": false});
        let member = serde_json::to_vec(&member).unwrap();
        store.put(&member_key((slot, 1)), &member).unwrap();
    }
    assert!(looker.look_whole().unwrap().is_empty());
    let near = |slot| looker.kept().members.near((slot, 1)).is_some();
    assert_eq!([1, 2, 3].map(near), [false, false, true]);
    let beside = |slot| looker.kept().members.get((slot, 1)).unwrap().beside;
    assert_eq!([1, 2, 3].map(beside), [true, false, true]);
}

#[test]
fn a_lease_is_taken_again_only_when_the_store_says_that_it_is_gone() {
    let store = Arc::new(MemoryStore::new());
    let mut own = GroupStore::new(
        Arc::clone(&store) as Arc<dyn Store>,
        (1, 2),
        2,
        Duration::from_millis(60),
        Process::this(),
    );
    own.keep_lease(true).unwrap();
    own.keep_lease(true).unwrap();
    assert_eq!(own.takings(), 1);
    let mut other = opened(&store, (0, 1), 2);
    other.look_whole().unwrap();
    assert!(other.kept().members.asks((1, 2)));
    own.keep_lease(false).unwrap();
    assert_eq!(own.takings(), 1, "what stands under it has changed");
    other.look_whole().unwrap();
    assert!(!other.kept().members.asks((1, 2)));
    // The lease was not renewed in time.
    let start = Instant::now();
    while other.kept().members.contains((1, 2)) {
        assert!(
            start.elapsed() < Duration::from_secs(100),
            "it does not run out"
        );
        other.look_whole().unwrap();
    }
    own.keep_lease(false).unwrap();
    assert_eq!(own.takings(), 2);
    own.end_lease();
    other.look_whole().unwrap();
    assert_eq!(other.kept().members.len(), 0);
}

#[test]
fn a_holder_whose_key_another_has_changed_writes_it_again() {
    let store = Arc::new(MemoryStore::new());
    let shared = Arc::clone(&store) as Arc<dyn Store>;
    // A lease is renewed after a third of this time.
    let mut own = GroupStore::new(shared, (1, 2), 2, Duration::from_secs(1), Process::this());
    own.keep_lease(false).unwrap();
    store.put("group/member/1.2", b"7").unwrap();
    let mut other = opened(&store, (0, 1), 2);
    other.look_whole().unwrap();
    assert!(!other.kept().members.contains((1, 2)));
    let start = Instant::now();
    while !other.kept().members.contains((1, 2)) {
        let waited = start.elapsed();
        assert!(waited < Duration::from_secs(100), "it is not written again");
        std::thread::sleep(Duration::from_millis(10));
        own.keep_lease(false).unwrap();
        other.look_whole().unwrap();
    }
}

#[test]
fn a_rank_takes_its_member_key_back_from_another_lease_and_keeps_it() {
    let store = Arc::new(MemoryStore::new());
    let ttl = Duration::from_secs(1);
    let mut own = GroupStore::new(
        Arc::clone(&store) as Arc<dyn Store>,
        (1, 2),
        2,
        ttl,
        Process::this(),
    );
    own.keep_lease(false).unwrap();
    let member = "group/member/1.2";
    let other = store.take_lease("other", b"", TTL).unwrap().unwrap();
    assert!(store.put_leased(member, b"7", other).unwrap());
    let start = Instant::now();
    while store.try_get(member).unwrap().as_deref() == Some(b"7") {
        assert!(start.elapsed() < Duration::from_secs(100), "not taken back");
        std::thread::sleep(Duration::from_millis(10));
        own.keep_lease(false).unwrap();
    }
    assert_eq!(own.takings(), 1, "its own lease lived all the time");
    store.end_lease("other", other).unwrap();
    assert!(store.try_get(member).unwrap().is_some());
}

#[test]
fn a_member_key_that_another_has_set_first_is_named_and_removed() {
    let store = Arc::new(MemoryStore::new());
    let mut own = opened(&store, (1, 2), 2);
    for (round, value) in [(1, &b"7"[..]), (2, b"")] {
        // The other writer has a lease in one round, and none in the other.
        let other = store.take_lease("other", b"", TTL).unwrap().unwrap();
        match round {
            1 => assert!(store.put_leased("group/member/1.2", value, other).unwrap()),
            _ => store.put("group/member/1.2", value).unwrap(),
        }
        own.keep_lease(false).unwrap();
        assert_eq!(own.takings(), round - 1, "somebody has the key");
        own.keep_lease(false).unwrap();
        assert_eq!(own.takings(), round);
        store.end_lease("other", other).unwrap();
        let odd = own.reader_mut().look(&LookAt::All).unwrap();
        let named = "'group/member/1.2' is set and is not of this rank's lease";
        assert_eq!(
            odd.iter().filter(|it| it.starts_with(named)).count(),
            1,
            "{odd:?}"
        );
        assert!(own.kept().members.contains((1, 2)));
        // The state for the next round.
        own.end_lease();
        own.reader_mut().forget_told();
    }
}

#[test]
fn what_the_store_takes_is_measured_by_a_few_calls_at_the_start() {
    let second = Duration::from_secs(1);
    let bounds = GroupConfig::default().bounds(second, second).unwrap();
    let measured = opened(&Arc::new(MemoryStore::new()), (0, 1), 2)
        .enter(&bounds)
        .unwrap();
    assert_eq!(measured.calls, 4 + LOOKS);
}

#[test]
fn garbage_in_the_bounds_is_written_again_by_a_member_or_a_newcomer() {
    let memory = Arc::new(MemoryStore::new());
    let raw = Arc::clone(&memory) as Arc<dyn Store>;
    let store: Arc<dyn Store> = Arc::new(Records::new(raw, "run").unwrap());
    let opened = |own| GroupStore::new(Arc::clone(&store), own, 9, TTL, Process::this());
    let second = Duration::from_secs(1);
    let hasty = GroupConfig::default().with_found_bound(Some(Duration::ZERO));
    let bounds = hasty.bounds(second, second).unwrap();
    let mut there = opened((0, 1));
    there.enter(&bounds).unwrap();
    let written = memory.try_get(CONFIG).unwrap();
    let mut slots = 1..;
    let mut comes = || opened((slots.next().unwrap(), 1)).enter(&bounds);
    let cut = written.as_ref().map(|text| &text[..text.len() - 1]);
    for garbage in [&b"no record"[..], b"", cut.unwrap()] {
        // No rank holds a lease.
        memory.put(CONFIG, garbage).unwrap();
        comes().unwrap();
        assert_eq!(memory.try_get(CONFIG).unwrap(), written);
        // One rank holds a lease, and does not look.
        there.keep_lease(false).unwrap();
        memory.put(CONFIG, garbage).unwrap();
        let error = comes().unwrap_err().to_string();
        let named = "invalid record 'group/config' of the group: ";
        assert!(error.starts_with(named), "{error}");
        assert!(error.contains("has written it again within"), "{error}");
        for times in [1, 0] {
            let odd = there.reader_mut().look(&LookAt::All).unwrap();
            let named = odd.iter().filter(|error| error.contains("'group/config'"));
            assert_eq!(named.count(), times, "{odd:?}");
        }
        there.mend_bounds().unwrap();
        assert_eq!(memory.try_get(CONFIG).unwrap(), written);
        comes().unwrap();
        assert_eq!(there.reader_mut().look(&LookAt::All).unwrap(), [""; 0]);
        there.reader_mut().forget_told();
        there.end_lease();
    }
}

#[test]
fn a_generation_has_one_group_and_all_have_the_same_bounds() {
    let store = Arc::new(MemoryStore::new());
    let second = Duration::from_secs(1);
    let bounds = |config: GroupConfig| config.bounds(second, second).unwrap();
    let usual = bounds(GroupConfig::default());
    let mut one = opened(&store, (1, 2), 2);
    one.enter(&usual).unwrap();
    let error = one.enter(&usual).unwrap_err().to_string();
    assert!(
        error.starts_with("generation 2 of rank 1 has had its group"),
        "{error}"
    );
    let other = GroupConfig::default().with_lease_ttl(Duration::from_secs(3));
    let error = opened(&store, (0, 1), 2).enter(&bounds(other)).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("lease_ttl 3s") && error.contains("lease_ttl 2s"),
        "{error}"
    );
}
