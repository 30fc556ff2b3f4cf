//! A group over an etcd that is slow, that forgets its history, that is full, or that has lost everything. No rank goes for that,
//! calls go on, no view changes, and a rank that dies meanwhile goes when it is over. Skipped where etcd is not installed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use test_support::etcd::Etcd;
use test_support::limits::until;
use test_support::proxy::Proxy;
use warpverbs::membership::GroupEventKind;
use warpverbs::team::{EtcdStore, Store};

use crate::etcd::{DEADLINE, SHORT, disturbs_nobody, over, over_url};
use crate::fleet::{Fleet, Plan, Point, Rank};

const TTL: Duration = SHORT.lease_ttl;
/// A rank that dies while etcd is ill is dropped so many times to live of a lease after that.
const MOST_LEASES: u32 = 4;

/// A newcomer that goes sooner makes its slot wait, twice as long each time.
const STAY: Duration = SHORT.lease_ttl.saturating_mul(11);

/// Most calls of etcd that the ranks which are left make within a lease in which a change fails again and again.
const MOST_CALLS: u64 = 200;

/// Returns how often each kind of trouble comes.
fn rounds() -> u32 {
    match std::env::var_os("WV_TEST_FULL") {
        Some(_) => 10,
        None => 1,
    }
}

/// Counts the time that the machine does not give to a thread that wants it.
struct Metronome {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Metronome {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (beat, mut late) = (Duration::from_millis(5), Duration::ZERO);
            while !stopped.load(Ordering::Relaxed) {
                let start = Instant::now();
                thread::sleep(beat);
                late += start.elapsed().saturating_sub(beat);
            }
            late
        });
        Self { stop, thread }
    }

    fn stop(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Rank 2 dies, and no process sees it.
pub(crate) fn dies(fleet: &mut Fleet) {
    let mut dead = fleet.remove(2);
    dead.cut.set(true);
    dead.die_at(Point::Send);
    fleet.dead.push(dead);
}

/// `ends` ends the fault of etcd: soon after the others go on without rank 2, which has died before and is still a member.
pub(crate) fn goes_behind_that(fleet: Fleet, what: &str, ends: impl FnOnce()) {
    for rank in &fleet.ranks {
        assert_eq!(rank.members(), [0, 1, 2], "{what}: {}", rank.story());
    }
    has_gone_behind_that(fleet, what, ends);
}

/// As `goes_behind_that`, of a rank that may have gone before.
pub(crate) fn has_gone_behind_that(fleet: Fleet, what: &str, ends: impl FnOnce()) {
    let (metronome, start) = (Metronome::start(), Instant::now());
    ends();
    fleet.until_members(2, &[0, 1]);
    let (took, late) = (start.elapsed(), metronome.stop());
    eprintln!(
        "{what}: the dead rank is dropped {} ms behind its end, the machine being late by {} ms",
        took.as_millis(),
        late.as_millis()
    );
    // A gap begins clocks anew, so what the machine withholds costs several times as much.
    assert!(
        took <= MOST_LEASES * TTL + 10 * late,
        "{what}: {took:?}: {}",
        fleet.rank(0).story()
    );
    fleet.until_whole(2, 2);
    fleet.end();
}

#[test]
fn calls_of_an_etcd_that_take_three_leases_cost_no_rank_its_place() {
    let Some(etcd) = Etcd::start(1) else {
        return;
    };
    let proxy = Proxy::new(etcd.address(0));
    let mut fleet = over_url(&format!("etcd://{}/group", proxy.address()), SHORT);
    let delays: &[u32] = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => &[1, 5, 10, 30],
        None => &[5, 30],
    };
    for round in 0..rounds() {
        for &tenths in delays {
            let delay = TTL * tenths / 10;
            let what = format!("round {round}: requests that take {delay:?}");
            disturbs_nobody(&fleet, &what, |meanwhile| {
                proxy.set_delay(delay);
                meanwhile(3 * TTL);
                proxy.set_delay(Duration::ZERO);
            });
        }
    }
    proxy.set_delay(3 * TTL);
    dies(&mut fleet);
    thread::sleep(2 * TTL);
    goes_behind_that(fleet, "requests that take three leases", || {
        proxy.set_delay(Duration::ZERO);
    });
}

#[test]
fn an_etcd_that_forgets_its_history_all_the_time_is_as_good_as_any() {
    let Some(etcd) = Etcd::start(1) else {
        return;
    };
    let mut fleet = over(&etcd, SHORT);
    let compacts = || {
        let start = Instant::now();
        while start.elapsed() < 3 * TTL {
            etcd.compact();
            thread::sleep(Duration::from_millis(20));
        }
    };
    for round in 0..rounds() {
        let what = format!("round {round}: history is gone");
        disturbs_nobody(&fleet, &what, |meanwhile| {
            thread::scope(|scope| {
                let compacting = scope.spawn(compacts);
                meanwhile(Duration::ZERO);
                compacting.join().unwrap();
            });
        });
    }
    let died = Instant::now();
    dies(&mut fleet);
    thread::scope(|scope| {
        scope.spawn(compacts);
        fleet.until_members(2, &[0, 1]);
    });
    let took = died.elapsed().as_millis();
    eprintln!("history is gone: the dead rank is dropped by {took} ms behind its death");
    fleet.until_whole(2, 2);
    fleet.end();
}

/// A rank that etcd does not reach for `away` finds what has changed meanwhile, although etcd knows nothing of that any more.
#[test]
fn what_has_changed_and_is_forgotten_while_a_rank_is_away_is_found() {
    let Some(etcd) = Etcd::start(1) else {
        return;
    };
    let proxy = Arc::new(Proxy::new(etcd.address(0)));
    let urls = [
        etcd.url(0, "", "group"),
        format!("etcd://{}/group", proxy.address()),
    ];
    // Of the three ranks that found the group the last one to open its store is the one behind the proxy.
    let opened = AtomicU64::new(0);
    let open = move || -> Arc<dyn Store> {
        let behind = opened.fetch_add(1, Ordering::Relaxed) == 2;
        Arc::new(EtcdStore::open(&urls[usize::from(behind)], "run").unwrap())
    };
    let mut fleet = Fleet::start(Plan {
        slots: 4,
        store: Arc::new(open),
        ..Plan::new(3, DEADLINE, SHORT)
    });
    fleet.until_members(1, &[0, 1, 2]);
    fleet.until_whole(1, 2);
    let mut view = 1;
    for round in 0..rounds() {
        proxy.set_away(true);
        // It asks to be taken in, and waits for all three.
        fleet.join(3);
        thread::sleep(TTL);
        etcd.compact();
        proxy.set_away(false);
        let back = Instant::now();
        view += 1;
        fleet.until_members(view, &[0, 1, 2, 3]);
        let took = back.elapsed().as_millis();
        eprintln!("round {round}: the newcomer serves {took} ms behind that");
        fleet.until_whole(view, 2);
        if round + 1 < rounds() {
            thread::sleep(STAY);
        }
        let mut newcomer = fleet.remove(3);
        newcomer.stop_at(Point::Send);
        newcomer.hca.set_port(false);
        newcomer.group = None;
        fleet.dead.push(newcomer);
        view += 1;
        fleet.until_members(view, &[0, 1, 2]);
    }
    fleet.end();
}

#[test]
fn a_full_etcd_costs_no_living_rank_its_place_and_later_drops_the_dead() {
    let Some(etcd) = Etcd::start_small() else {
        return;
    };
    let mut fleet = over(&etcd, SHORT);
    for round in 0..rounds() {
        let what = format!("round {round}: no space");
        disturbs_nobody(&fleet, &what, |meanwhile| {
            etcd.fill();
            meanwhile(3 * TTL);
            etcd.make_room();
        });
    }
    etcd.fill();
    dies(&mut fleet);
    // What the others have to say of the dead one cannot be written. A rank reports that, once.
    let mut told = Vec::new();
    let refused = |what: &GroupEventKind| matches!(what, GroupEventKind::StoreLost { error } if error.contains("space exceeded"));
    until("a change is refused", || {
        let events = fleet.rank(0).group().events();
        told.extend(events.into_iter().map(|event| event.what));
        told.iter().any(refused)
    });
    let before = store_calls(&fleet);
    thread::sleep(TTL);
    let calls = store_calls(&fleet) - before;
    eprintln!("no space: {calls} calls of two ranks within a lease");
    assert!(calls <= MOST_CALLS, "{calls} calls");
    let events = fleet.rank(0).group().events();
    told.extend(events.into_iter().map(|event| event.what));
    let back = |what: &GroupEventKind| matches!(what, GroupEventKind::StoreBack { .. });
    assert_eq!(
        told.iter().filter(|what| refused(what)).count(),
        1,
        "{told:#?}"
    );
    assert!(!told.iter().any(back), "{told:#?}");
    goes_behind_that(fleet, "no space", || etcd.make_room());
}

#[test]
fn a_member_key_under_a_foreign_lease_costs_no_rank_its_place() {
    let Some(etcd) = Etcd::start(1) else {
        return;
    };
    let fleet = over(&etcd, SHORT);
    let store = fleet.store();
    let key = "group/member/1.1";
    for round in 0..rounds() {
        for ends in [false, true] {
            let what = format!("round {round}: another's lease, which ends: {ends}");
            disturbs_nobody(&fleet, &what, |meanwhile| {
                let other = store.take_lease("other", b"", TTL).unwrap().unwrap();
                assert!(store.put_leased(key, b"{", other).unwrap());
                meanwhile(Duration::ZERO);
                if ends {
                    store.end_lease("other", other).unwrap();
                }
                // It runs out, or is gone, and the key is of the rank's own lease again.
                until("the lease is gone", || {
                    store.try_get("other").unwrap().is_none()
                });
            });
            let found = store.try_get(key).unwrap().unwrap();
            assert!(found.len() > 2, "{}", String::from_utf8_lossy(&found));
        }
    }
    fleet.end();
}

fn store_calls(fleet: &Fleet) -> u64 {
    let calls = |rank: &Rank| rank.store_calls.load(Ordering::Relaxed);
    fleet.ranks.iter().map(calls).sum()
}

#[test]
fn an_etcd_that_has_lost_everything_gets_its_record_back() {
    let Some(mut etcd) = Etcd::start(1) else {
        return;
    };
    let mut fleet = over(&etcd, SHORT);
    for round in 0..rounds() {
        let what = format!("round {round}: all is lost");
        let told = disturbs_nobody(&fleet, &what, |meanwhile| {
            etcd.wipe(0);
            meanwhile(Duration::ZERO);
            etcd.start_member(0);
            assert!(etcd.serves(0));
            let store = fleet.store();
            until("the record is there again", || {
                matches!(store.try_get("group/record"), Ok(Some(_)))
            });
        });
        for events in told {
            let lost = |what: &&GroupEventKind| matches!(what, GroupEventKind::Failed { error } if error.contains("record is gone from the store"));
            assert_eq!(events.iter().filter(lost).count(), 1, "{what}: {events:#?}");
        }
    }
    // A view that follows the record which was written anew.
    dies(&mut fleet);
    fleet.until("a view without it", |rank| rank.members() == [0, 1]);
    fleet.end();
}
