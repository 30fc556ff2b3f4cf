//! Garbage in the keys by which ranks connect: it counts as missing and is reported once, by name. The rank whose key it is
//! writes it again, and no rank goes for it.

use std::time::Duration;

use test_support::limits::until;
use warpverbs::membership::GroupEventKind;

use crate::deaths::CONFIG;
use crate::fleet::{Fleet, Plan, Point};
use crate::store::Spoils;

const DEADLINE: Duration = Duration::from_secs(20);

fn fleet() -> (Fleet, Spoils) {
    let plan = Plan::new(3, DEADLINE, CONFIG);
    let spoils = plan.spoils.clone();
    let fleet = Fleet::start(plan);
    fleet.until_whole(1, 2);
    (fleet, spoils)
}

/// The reports of garbage by all ranks since the last call.
fn told(fleet: &Fleet) -> Vec<(u32, String)> {
    let of_rank = |rank: &crate::fleet::Rank| {
        let events = rank.group().events();
        let garbage = events.into_iter().filter_map(|event| match event.what {
            GroupEventKind::Failed { error } if error.contains("counts as missing") => Some(error),
            _ => None,
        });
        let slot = rank.slot;
        garbage.map(move |error| (slot, error)).collect::<Vec<_>>()
    };
    fleet.ranks.iter().flat_map(of_rank).collect()
}

/// Some rank reported each of `keys`, and none reported one twice.
fn are_told_once(fleet: &Fleet, keys: &[String]) {
    are_told(&told(fleet), keys, true);
}

/// No rank has reported one of `keys` twice. If `some`, one has reported it.
fn are_told(told: &[(u32, String)], keys: &[String], some: bool) {
    for key in keys {
        let named = format!("'{key}'");
        let by: Vec<u32> = told
            .iter()
            .filter(|(_, error)| error.contains(&named))
            .map(|(slot, _)| *slot)
            .collect();
        let mut once = by.clone();
        once.dedup();
        assert!(!(some && by.is_empty()) && by == once, "{key}: {told:#?}");
    }
}

/// Rank 1 dies, `spoil` does what it does, and generation `generation` of rank 1 serves with the others.
fn comes_again(fleet: &mut Fleet, generation: u32, spoil: impl FnOnce(&Fleet)) {
    comes_behind(fleet, generation, spoil, |_| ());
}

/// As `comes_again`, where `meanwhile` is done once it has begun to come.
fn comes_behind(
    fleet: &mut Fleet,
    generation: u32,
    spoil: impl FnOnce(&Fleet),
    meanwhile: impl FnOnce(&Fleet),
) {
    let mut dead = fleet.remove(1);
    dead.die_at(Point::Send);
    fleet.dead.push(dead);
    let view = 2 * generation - 2;
    fleet.until_members(view, &[0, 2]);
    spoil(fleet);
    fleet.join(1);
    meanwhile(fleet);
    fleet.until_members(view + 1, &[0, 1, 2]);
    fleet.until_whole(view + 1, 2);
}

#[test]
fn garbage_in_records_between_newcomer_and_member_keeps_no_rank_out() {
    let (mut fleet, spoils) = fleet();
    let huge = vec![b'['; 1 << 19];
    let cases: [(&str, &[u8]); 3] = [
        ("hello/1.2", b"{"),
        ("welcome/1.3/0.1", b"\xff\xfe"),
        ("welcome/0.1/1.4", &huge),
    ];
    for (generation, (key, value)) in (2..).zip(cases) {
        let mut all = Vec::new();
        // Its writer mends it as soon as another rank has reported it, and not before.
        let reported = |fleet: &Fleet| {
            until("a rank reports the garbage", || {
                all.extend(told(fleet));
                all.iter().any(|(_, error)| error.contains(key))
            });
            spoils.end(key);
        };
        comes_behind(
            &mut fleet,
            generation,
            |_| spoils.hold(key, value),
            reported,
        );
        all.extend(told(&fleet));
        are_told(&all, &[key.to_owned()], true);
    }
    fleet.end();
}

#[test]
fn garbage_in_the_bounds_of_a_group_keeps_no_newcomer_out() {
    let (mut fleet, _) = fleet();
    let store = fleet.store();
    let key = "group/config";
    let bounds = store.try_get(key).unwrap().unwrap();
    let huge = vec![b'['; 1 << 19];
    let cases: [&[u8]; 4] = [b"", &bounds[..bounds.len() - 1], b"\xff\xfe", &huge];
    for (generation, garbage) in (2..).zip(cases) {
        comes_again(&mut fleet, generation, |_| store.put(key, garbage).unwrap());
        let stands = store.try_get(key).unwrap().unwrap();
        assert!(stands == bounds, "{}", String::from_utf8_lossy(&stands));
        are_told_once(&fleet, &[key.to_owned()]);
    }
    fleet.end();
}

#[test]
fn garbage_in_old_records_keeps_no_rank_out_and_ends_no_call() {
    let (mut fleet, _) = fleet();
    let store = fleet.store();
    let spoil = |keys: &[&str]| {
        for key in keys {
            store.put(key, b"{\"version\":6,").unwrap();
        }
    };
    // Before: they are read whenever a call takes long.
    spoil(&[
        "failed/0.1-0badc0de",
        "failed/2",
        "failed/4095.1-0",
        "failed/x",
    ]);
    let before = fleet.rank(0).calls().len();
    fleet.until("calls go on", |rank| rank.calls().len() > before + 20);
    comes_again(&mut fleet, 2, |_| {
        spoil(&["hello/0.1", "generation/1/1", "config/0", "moe-layer/2"]);
    });
    are_told_once(&fleet, &["hello/0.1".to_owned()]);
    let hello = store.try_get("hello/0.1").unwrap().unwrap();
    let whole = serde_json::from_slice::<serde_json::Value>(&hello).is_ok();
    assert!(whole, "it is written again");
    // Whatever other members have published, one of them that can be read is enough; none is not.
    fleet.end();
}

#[test]
fn garbage_in_records_of_a_parted_pair_keeps_the_pair_apart_no_longer() {
    let (fleet, spoils) = fleet();
    let huge = vec![b'['; 1 << 19];
    // The first word of an end, and the one that says that it is ready.
    let cases: [(u32, u32, &[u8]); 4] = [
        (0, 0, b""),
        (0, 1, b"\xff"),
        (1, 0, &huge),
        (1, 1, b"{\"version\":6"),
    ];
    let mut epoch = 1;
    for (from, skip, value) in cases {
        let key = format!("reunite/{from}.1/{}.1", 1 - from);
        spoils.add(key.clone(), skip, value);
        // An end whose first word says that it is ready says one thing in a reunion.
        while !spoils.are_done() {
            fleet
                .rank(0)
                .group()
                .suspect(1, "so says the test")
                .unwrap();
            fleet.until(&format!("{key} {skip}: parted and united"), |rank| {
                let view = rank.group().view().unwrap();
                view.epoch >= epoch + 2 && view.parted.is_empty()
            });
            epoch = fleet.rank(0).group().view().unwrap().epoch;
            fleet.until_members(epoch, &[0, 1, 2]);
            fleet.until_whole(epoch, 2);
        }
        // The rank may have written its next word before the other end has looked.
        are_told(&told(&fleet), &[key], false);
    }
    fleet.end();
}
