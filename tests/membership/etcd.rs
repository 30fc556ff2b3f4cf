//! A group over real etcd servers: a leader that is lost during a change, an etcd that is gone for a while. Skipped where etcd is
//! not installed.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use test_support::etcd::Etcd;
use warpverbs::membership::{GroupConfig, GroupEventKind, GroupState};
use warpverbs::team::{EtcdStore, Store};

use crate::deaths::CONFIG;
use crate::etcd_ill::{dies, goes_behind_that, has_gone_behind_that};
use crate::fleet::{Fleet, LONG, Plan, Point};

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// An election must not look like a death.
const PATIENT: GroupConfig = CONFIG.with_lease_ttl(Duration::from_secs(15));

/// Three ranks, each with a connection of its own.
pub(crate) fn over(etcd: &Etcd, group: GroupConfig) -> Fleet {
    over_url(&etcd.url(0, "", "group"), group)
}

pub(crate) fn over_url(url: &str, group: GroupConfig) -> Fleet {
    let url = url.to_owned();
    let open = move || -> Arc<dyn Store> { Arc::new(EtcdStore::open(&url, "run").unwrap()) };
    let fleet = Fleet::start(Plan {
        store: Arc::new(open),
        ..Plan::new(3, DEADLINE, group)
    });
    fleet.until_members(1, &[0, 1, 2]);
    fleet.until_whole(1, 2);
    fleet
}

#[test]
fn the_leader_of_etcd_is_lost_in_the_middle_of_a_change() {
    let Some(mut etcd) = Etcd::start(3) else {
        return;
    };
    let mut fleet = over(&etcd, PATIENT);
    let leader = etcd.leader();
    let mut dead = fleet.remove(1);
    dead.die_at(Point::Send);
    let start = Instant::now();
    let changes = |fleet: &Fleet| {
        let group = fleet.rank(0).group();
        group.state() == GroupState::Changing || fleet.rank(0).members() != [0, 1, 2]
    };
    while !changes(&fleet) {
        assert!(
            start.elapsed() < LONG,
            "no change: {}",
            fleet.rank(0).story()
        );
        std::thread::yield_now();
    }
    etcd.kill(leader);
    fleet.until_members(2, &[0, 2]);
    fleet.until_whole(2, 2);
    // Two of three go on, with joins as well.
    fleet.dead.push(dead);
    fleet.join(1);
    fleet.until_members(3, &[0, 1, 2]);
    fleet.until_whole(3, 2);
    fleet.end();
}

#[test]
fn while_etcd_is_gone_calls_go_on_and_no_view_changes_and_then_it_heals() {
    let gone = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => Duration::from_secs(30),
        // All leases run out.
        None => CONFIG.lease_ttl + Duration::from_secs(1),
    };
    let Some(mut etcd) = Etcd::start(1) else {
        return;
    };
    let mut fleet = over(&etcd, CONFIG);
    etcd.kill(0);
    let since = Instant::now();
    calls_go_on(&fleet, "etcd is gone");
    let mut dead = fleet.remove(1);
    dead.die_at(Point::Send);
    std::thread::sleep(gone.saturating_sub(since.elapsed()));
    for rank in &fleet.ranks {
        assert_eq!(rank.members(), [0, 1, 2], "{}", rank.story());
    }
    etcd.start_member(0);
    assert!(etcd.serves(0));
    fleet.until_members(2, &[0, 2]);
    fleet.until_whole(2, 2);
    fleet.dead.push(dead);
    fleet.end();
}

/// Leases that an election may outlast.
pub(crate) const SHORT: GroupConfig = CONFIG.with_lease_ttl(Duration::from_secs(2));

/// Calls that each rank makes at least during a disturbance.
const CALLS: usize = 3;

/// While `disturb` runs, and after it, each rank goes on making calls. No rank has gone, no view has changed, and the group has
/// made at most two proposals. Returns the events of each rank meanwhile.
///
/// `disturb` gets a function, which it calls between begin and end of its disturbance. The function returns when all ranks have
/// made some calls, and not before the time has passed.
pub(crate) fn disturbs_nobody(
    fleet: &Fleet,
    what: &str,
    disturb: impl FnOnce(&dyn Fn(Duration)),
) -> Vec<Vec<GroupEventKind>> {
    let seen = Cell::new(false);
    disturb(&|time| {
        let start = Instant::now();
        calls_go_on(fleet, &format!("{what}, meanwhile"));
        std::thread::sleep(time.saturating_sub(start.elapsed()));
        seen.set(true);
    });
    assert!(seen.get(), "{what}: nobody has looked during it");
    calls_go_on(fleet, &format!("{what}, behind it"));
    // What would be concluded from it would be concluded by then.
    std::thread::sleep(3 * SHORT.lease_ttl);
    let mut proposals = 0;
    let mut told = Vec::new();
    for rank in &fleet.ranks {
        let events = rank.group().events();
        let events: Vec<GroupEventKind> = events.into_iter().map(|event| event.what).collect();
        let proposed = |what: &&GroupEventKind| matches!(what, GroupEventKind::Proposed { .. });
        proposals += events.iter().filter(proposed).count();
        let view = rank.group().view().map(|view| view.epoch);
        let state = rank.group().state();
        assert_eq!(
            (state, view),
            (GroupState::Serving, Some(1)),
            "{what}: {events:#?}"
        );
        told.push(events);
    }
    assert!(proposals <= 2, "{what}: {proposals} proposals");
    told
}

/// Waits until each rank has made some more calls.
fn calls_go_on(fleet: &Fleet, what: &str) {
    let before: Vec<usize> = fleet.ranks.iter().map(|rank| rank.calls().len()).collect();
    fleet.until(&format!("{what}: calls go on"), |rank| {
        rank.calls().len() >= before[rank.slot as usize] + CALLS
    });
}

#[test]
fn a_stopped_etcd_costs_no_living_rank_its_place_and_a_dead_one_goes() {
    let Some(etcd) = Etcd::start(1) else {
        return;
    };
    let mut fleet = over(&etcd, SHORT);
    let times: &[u64] = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => &[500, 1000, 2000, 3500, 10_000],
        None => &[3500],
    };
    for time in times.iter().map(|time| Duration::from_millis(*time)) {
        disturbs_nobody(&fleet, &format!("stopped for {time:?}"), |meanwhile| {
            etcd.stop(0);
            meanwhile(time);
            etcd.resume(0);
        });
    }
    etcd.stop(0);
    dies(&mut fleet);
    std::thread::sleep(2 * SHORT.lease_ttl);
    goes_behind_that(fleet, "a stopped etcd", || etcd.resume(0));
}

#[test]
fn a_rank_that_dies_while_etcd_has_no_leader_goes_under_the_next_leader() {
    for kill in [true, false] {
        let Some(mut etcd) = Etcd::start(3) else {
            return;
        };
        let mut fleet = over(&etcd, SHORT);
        let leader = etcd.leader();
        if kill {
            etcd.kill(leader)
        } else {
            etcd.stop(leader)
        };
        dies(&mut fleet);
        std::thread::sleep(2 * SHORT.lease_ttl);
        let what = if kill {
            "a leader that was killed"
        } else {
            "a leader that was stopped"
        };
        has_gone_behind_that(fleet, what, || match kill {
            true => {
                etcd.start_member(leader);
                assert!(etcd.serves(leader));
            }
            false => etcd.resume(leader),
        });
    }
}

#[test]
fn the_leader_is_lost_with_default_times_and_all_stay() {
    let rounds = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => 20,
        None => 1,
    };
    let Some(mut etcd) = Etcd::start(3) else {
        return;
    };
    let fleet = over(&etcd, SHORT);
    for round in 0..rounds {
        let leader = etcd.leader();
        disturbs_nobody(
            &fleet,
            &format!("round {round}: a leader that is killed"),
            |meanwhile| {
                etcd.kill(leader);
                meanwhile(Duration::ZERO);
                etcd.start_member(leader);
                assert!(etcd.serves(leader));
            },
        );
        let leader = etcd.leader();
        disturbs_nobody(
            &fleet,
            &format!("round {round}: a leader that is stopped"),
            |meanwhile| {
                etcd.stop(leader);
                meanwhile(2 * SHORT.lease_ttl);
                etcd.resume(leader);
            },
        );
    }
    fleet.end();
}
