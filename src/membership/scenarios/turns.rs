//! Each turn of the thread that follows the rules ends, however slow the store is and however much is left to be done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use membership_rules::members::Members;
use membership_rules::record::Record;
use rendezvous::{MAX_BOUND, MemoryStore, Process, Store};

use super::worlds::PATIENT;
use crate::membership::GroupConfig;
use crate::membership::driver::Driver;
use crate::membership::group_store::GroupStore;
use crate::membership::shared::Shared;
use crate::membership::sim::{Asked, Counted, CutStore, founder};
use crate::membership::stored::{Member, member_key, record_text};

const TTL: Duration = Duration::from_millis(400);
const CONFIG: GroupConfig = PATIENT.with_lease_ttl(TTL);
/// More turns than any rank needs until it has nothing left to do.
const TURNS: usize = 1000;

/// The rank in slot 0 of a group. The test makes its turns.
struct Turns {
    driver: Driver,
    /// The store of `driver`, without delay, and without counting.
    store: Arc<dyn Store>,
    asked: Arc<Asked>,
    delay: Arc<std::sync::atomic::AtomicU64>,
}

impl Turns {
    fn new(ranks: u32) -> Self {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let members: Members = (0..ranks).map(|slot| (slot, 1)).collect();
        let record = record_text(&Record::founded(members), ranks);
        memory.put("group/record", &record).unwrap();
        let member = Member {
            process: Process::this(),
            asks: false,
            lost: false,
        };
        for slot in 1..ranks {
            let value = serde_json::to_vec(&member).unwrap();
            memory.put(&member_key((slot, 1)), &value).unwrap();
        }
        let counted = Counted::new(Arc::clone(&memory));
        let (asked, delay) = (counted.asked(), Arc::default());
        let slow: Arc<dyn Store> = Arc::new(CutStore {
            store: Arc::new(counted),
            away: Arc::default(),
            cut: Arc::default(),
            held: Arc::default(),
            delay: Arc::clone(&delay),
            no_promise: Arc::default(),
            bound: MAX_BOUND,
            panics: AtomicBool::new(false),
            planted: Arc::default(),
            own: (0, 1),
            unlisted: Arc::default(),
        });
        let (transport, layer) = founder(&slow, ranks);
        let bounds = CONFIG
            .bounds(transport.deadline(), transport.timeout())
            .unwrap();
        let process = transport.process();
        let group = GroupStore::new(slow, (0, 1), ranks, bounds.lease_ttl, process);
        let shared = Arc::new(Shared::new(transport, layer, bounds));
        Self {
            driver: Driver::new(shared, group, Arc::default()),
            store: memory,
            asked,
            delay,
        }
    }

    /// Makes one turn, and returns how many calls of the store it has made.
    fn turn(&mut self) -> u64 {
        let made = |asked: &Asked| asked.calls() + asked.renewals();
        let before = made(&self.asked);
        // A call that is too slow for its bound fails, and the next turn makes it again.
        drop(self.driver.turn());
        made(&self.asked) - before
    }

    fn each_call_takes(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap();
        self.delay.store(us, Ordering::Relaxed);
    }
}

#[test]
fn what_dead_ranks_have_left_is_removed_in_turns_that_end() {
    let ranks = 40;
    let mut turns = Turns::new(ranks);
    // Each rank has written a welcome record for the rank that dies.
    let told = |slot: u32| format!("welcome/{slot}.1/1.1");
    for slot in 2..ranks {
        turns.store.put(&told(slot), b"told").unwrap();
    }
    turns.store.put("group/over/1.1", b"1").unwrap();
    let left = |turns: &Turns| {
        let is_left = |slot: &u32| turns.store.try_get(&told(*slot)).unwrap().is_some();
        (2..ranks).filter(is_left).count()
    };
    // The first call that removes something uses up the part of a lease that a turn may take.
    turns.each_call_takes(TTL / 8);
    // The test writes the promises, because no rank but this one runs.
    for slot in 2..ranks {
        turns
            .store
            .put(&format!("group/promise/1/{slot}.1"), b"{\"last\":0}")
            .unwrap();
    }
    let mut most = 0;
    for _ in 0..TURNS {
        if left(&turns) == 0 {
            break;
        }
        most = most.max(turns.turn());
    }
    assert_eq!(left(&turns), 0, "removed in the end");
    // A turn needs calls for its looks, its lease, its row, a proposal and a promise. Removing takes two calls for each rank.
    assert!(most <= 12, "{most} calls in one turn");
}

#[test]
fn a_proposal_is_not_late_because_the_promise_of_this_rank_was() {
    let mut turns = Turns::new(3);
    turns.store.put("group/over/2.1", b"1").unwrap();
    let promised = |turns: &Turns| turns.driver.rank.own.promised.is_some();
    turns.each_call_takes(TTL / 8);
    for _ in 0..TURNS {
        if promised(&turns) {
            break;
        }
        turns.turn();
    }
    assert!(promised(&turns));
    turns.each_call_takes(Duration::ZERO);
    turns.turn();
    assert_eq!(turns.driver.rank.own.unanswered, (1, Duration::ZERO));
    // A slow turn is a gap, after which the clock of the proposal starts anew.
    let runs = (0..TURNS).any(|_| {
        turns.turn();
        !turns.driver.rank.own.unanswered.1.is_zero()
    });
    assert!(runs, "the clock of the proposal runs");
}
