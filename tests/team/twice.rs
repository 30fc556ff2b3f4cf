//! Two teams of one process on one device, and a rank that never answers.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use test_support::device::test_gpu;
use test_support::fleet::Hcas;
use test_support::ranks::{self, Meeting};
use warpverbs::team::{JoinOptions, MemoryStore, RankSet, Store, TeamError};

use crate::fleet::DrivenFleet;
use crate::modes::exchange;
use crate::rank::{Rank, setup};

#[test]
fn two_teams_of_one_process_share_a_device_and_end_apart() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let meetings = [Meeting::new(2), Meeting::new(2)];
    let other: Arc<dyn Store> = Arc::new(MemoryStore::new());
    ranks::on_threads(2, |number, store| {
        let _attendance = meetings.each_ref().map(Meeting::attend);
        let own = hcas.of(number);
        let contexts = ranks::contexts(own.iter().map(Arc::as_ref)).unwrap();
        let gpu = test_gpu();
        let config = setup.of_rank(number);
        let options = JoinOptions::new(config)
            .with_contexts(&contexts)
            .with_gpu(&gpu);
        let [one, two] = [store, Arc::clone(&other)]
            .map(|store| options.clone().with_store(store).join().unwrap());
        let one = Rank::of(one, own, &meetings[0]).unwrap();
        let two = Rank::of(two, own, &meetings[1]).unwrap();
        let qpns = |rank: &Rank<'_>| (0..2).map(|i| rank.qp(1 - number, i).qpn).collect();
        let (first, second): (Vec<u32>, Vec<u32>) = (qpns(&one), qpns(&two));
        assert!(
            first.iter().all(|qpn| !second.contains(qpn)),
            "{first:?} {second:?}"
        );
        exchange(&one, 2);
        exchange(&two, 2);
        one.sync();
        drop(one);
        exchange(&two, 2);
        two.sync();
        let team = two.team;
        let report = team.close().expect("the last holder");
        assert!(report.is_clean() && report.drained == 2, "{report}");
    });
    hcas.check();
}

#[test]
fn a_rank_that_never_answers_is_named_and_the_others_connect_meanwhile() {
    let setup = setup(4);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    // Rank 3 says its name, and nothing after that.
    let store = Arc::clone(&fleet.store);
    let silent = Rank::alone(fleet.joining(3, 1), hcas.of(3), store).unwrap();
    silent.team.hello().unwrap();
    let deadline = Duration::from_secs(2);
    let waiting = Arc::clone(&fleet.rank(0).team);
    let start = Instant::now();
    let waiter = thread::spawn(move || {
        let refused = waiting.connect_peer(3, 1, deadline).unwrap_err();
        (refused, start.elapsed())
    });
    fleet.come(2, 1);
    fleet.connect(2);
    fleet.open(2);
    let connected = start.elapsed();
    fleet.talk_all();
    let (refused, waited) = waiter.join().unwrap();
    println!(
        "three ranks were connected after {connected:?}; the fourth was given up after {waited:?}, of {deadline:?}"
    );
    let text = refused.to_string();
    assert!(matches!(refused, TeamError::Absent { .. }), "{text}");
    assert!(text.contains("rank 3"), "{text}");
    drop(silent);
    drop(fleet);
    hcas.check();
}
