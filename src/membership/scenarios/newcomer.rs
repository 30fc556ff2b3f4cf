//! A newcomer that dies inside the proposal which takes it in.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{LONG, PATIENT, lock, memory};
use crate::membership::rules::record::Record;
use crate::membership::sim::World;
use crate::membership::stored::parse_record;
use crate::membership::{GroupEvent, GroupEventKind};

impl World {
    /// Waits for a record of which `there` says so, and returns it.
    fn until_record(&self, what: &str, there: impl Fn(&Record) -> bool) -> Record {
        let start = Instant::now();
        loop {
            let text = self.store.try_get("group/record").unwrap().unwrap();
            let record = parse_record(&text, 4).unwrap();
            if there(&record) {
                return record;
            }
            assert!(start.elapsed() < LONG, "{what}: {record:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn takes(record: &Record) -> bool {
    let open = record.open.as_ref();
    open.is_some_and(|open| !open.takes.is_empty())
}

#[test]
fn a_newcomer_that_dies_before_its_promise_is_taken_out_and_holds_no_call() {
    let mut world = memory(4, 3);
    world.until_whole(3, "begin");
    world.silent.insert((3, 1));
    world.join(3).unwrap();
    let open = world.until_record("it is proposed", takes);
    // Members promise behind it, so their calls go on while it keeps silent.
    let newcomer = world.ranks.remove(&3).unwrap();
    world.until_called(20, "while it keeps silent");
    for rank in world.ranks.values() {
        let views = lock(&rank.layer.views);
        assert!(!views.iter().any(|view| view.2.contains(3)));
    }
    world.ranks.insert(3, newcomer);
    drop(world.kill(3));
    let smaller = |record: &Record| record.number > open.number && !takes(record);
    world.until_record("it is taken out", smaller);
    world.until_whole(3, "without it");
    world.join(3).unwrap();
    world.until_whole(3, "with its next generation");
    world.check("a newcomer without a promise");
}

#[test]
fn a_newcomer_that_dies_behind_its_promise_is_taken_out_before_the_view() {
    let mut world = memory(4, 3);
    world.until_whole(3, "begin");
    // All others have promised, and the view waits for this one.
    let late = std::sync::Arc::clone(&world.ranks[&1].no_promise);
    late.store(true, Ordering::Relaxed);
    world.join(3).unwrap();
    let open = world.until_record("it is proposed", takes);
    let promises = format!("group/promise/{}", open.number);
    let start = Instant::now();
    let all = ["0.1", "2.1", "3.1"];
    while world.store.list(&promises).unwrap() != all {
        assert!(start.elapsed() < LONG, "the promises are not there");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(world.kill(3));
    let smaller = |record: &Record| record.number > open.number && !takes(record);
    let record = world.until_record("it is taken out", smaller);
    assert_eq!(record.epoch, open.epoch, "no view has had it");
    late.store(false, Ordering::Relaxed);
    world.until_whole(3, "without it");
    world.join(3).unwrap();
    world.until_whole(3, "with its next generation");
    world.check("a newcomer with a promise");
}

#[test]
fn a_newcomer_that_never_answers_is_named_and_others_connect_before_that() {
    let mut world = memory(4, 2);
    world.until_whole(3, "begin");
    let start = Instant::now();
    // It asks to come in, and makes no QP.
    lock(&world.wire.refuse).extend((0..3).map(|peer| ((3, peer), u32::MAX)));
    world.join(3).unwrap();
    let mute = world.ranks.remove(&3).unwrap();
    world.join(2).unwrap();
    world.until_whole(3, "with the other newcomer");
    let mut events = Vec::new();
    let is_named = |event: &GroupEvent| matches!(event.what, GroupEventKind::NotConnected { .. });
    while !events.iter().any(is_named) {
        assert!(start.elapsed() < LONG, "no rank is named");
        std::thread::sleep(Duration::from_millis(1));
        events.extend(world.ranks[&0].group().events());
    }
    let has_both = |event: &GroupEvent| match &event.what {
        GroupEventKind::Viewed(view) => view.members.contains_key(2),
        _ => false,
    };
    let [taken_in, named] = [&has_both as &dyn Fn(&GroupEvent) -> bool, &is_named]
        .map(|is| events.iter().position(is).unwrap());
    println!(
        "the other rank is taken in after {:?}; after {:?}: {:?}",
        events[taken_in].at - start,
        events[named].at - start,
        events[named].what
    );
    assert!(taken_in < named, "{events:#?}");
    let bound = PATIENT.promise_bound.unwrap();
    let GroupEventKind::NotConnected {
        rank: 3,
        generation: 1,
        error,
    } = &events[named].what
    else {
        panic!("{:?}", events[named].what);
    };
    assert!(
        error.contains(&format!("not answered for {bound:?}")),
        "{error}"
    );
    for rank in world.ranks.values() {
        let views = lock(&rank.layer.views);
        assert!(views.iter().all(|view| !view.2.contains(3)));
    }
    world.ranks.insert(3, mute);
    lock(&world.wire.refuse).clear();
    world.until_whole(3, "with the one that has answered at last");
    world.check("a newcomer that never answers");
}
