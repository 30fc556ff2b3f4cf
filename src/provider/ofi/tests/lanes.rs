//! Lanes over providers of the installed library that need no device, and over softofi.
//!
//! Over shm nothing ends under load here: endpoints of one process use one mapping, and the other end of one that is closed reads what is
//! unmapped (1.17). Nor is a key refused: shm gives its initiator no answer then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use test_basics::limits::until;

use crate::provider::{AnyMemory, Completed, HostMemory, Lane, Reaper, Verb};
use crate::verbs::{Access, KeyRange};

use super::rig::*;
/// Writes and reads 2,000 times at random places, of which some count, and compares all bytes.
fn moves_bytes(provider: &str) {
    let Some(sides) = sides(provider) else {
        return;
    };
    let mut ends = connected(&sides);
    let before = sides[0].rail.refusals();
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut models = [filled(&sides[0], 1), filled(&sides[1], 2)];
    let (half, rkey) = (BYTES / 2, sides[1].registration.rkey());
    let mut counts = 0;
    for nth in 0..2000u64 {
        let bytes = random.u32(2..=20_000);
        // Reads go into the upper half of this side and writes into that of the other, from the lower halves: none of them meet.
        let place = (nth % 26) * 20_000;
        let from = random.u64(..half - u64::from(bytes));
        let verb = *random
            .choice(&[Verb::Write, Verb::WriteImmediate(7), Verb::Read])
            .unwrap();
        counts += usize::from(verb == Verb::WriteImmediate(7));
        let it = match verb {
            Verb::Read => Move {
                verb,
                local: half + place,
                remote: from,
                bytes,
            },
            _ => Move {
                verb,
                local: from,
                remote: half + place,
                bytes,
            },
        };
        ends[0].post(&sides[0], &sides[1], it, rkey);
        let [from, to, length] =
            [from, half + place, bytes.into()].map(|at| usize::try_from(at).unwrap());
        let [own, theirs] = &mut models;
        let (source, target) = match verb {
            Verb::Read => (theirs, own),
            _ => (own, theirs),
        };
        target[to..to + length].copy_from_slice(&source[from..from + length]);
        // A place is used again only when all before are done, since nothing keeps operations in order.
        if nth % 26 == 25 || ends[0].lane.room(1) == 0 {
            turn_until("all are done", &sides, &mut ends, |ends| ends[0].is_dry());
        }
    }
    turn_until("all are done and counted", &sides, &mut ends, |ends| {
        ends[0].is_dry() && ends[1].counted.len() == counts
    });
    assert_eq!(ends[0].done.len(), 2000);
    assert!(ends[0].done.values().all(Option::is_none), "seed {seed}");
    assert!(ends[1].counted.iter().all(|counter| *counter == 7));
    for (side, model) in sides.iter().zip(&models) {
        assert!(bytes_of(side) == *model, "seed {seed}");
    }
    let refusals = sides[0].rail.refusals() - before;
    println!("{provider}: {counts} counted, {refusals} posts refused for now");
}

#[test]
fn bytes_go_both_ways_and_writes_count_over_tcp() {
    moves_bytes("tcp;ofi_rxm");
}

#[test]
fn bytes_go_both_ways_and_writes_count_over_shm() {
    moves_bytes("shm");
}

/// What fills a lane under load.
const LOAD: Move = Move {
    verb: Verb::Write,
    local: 0,
    remote: 0,
    bytes: 1 << 16,
};

/// Fills the lane, ends it, and sees that all WQEs are accounted for once; then the next life of the pair works.
fn ends_under_load(provider: &str) {
    let Some(sides) = sides(provider) else {
        return;
    };
    let mut ends = connected(&sides);
    let rkey = sides[1].registration.rkey();
    for life in 0..5 {
        filled(&sides[0], life);
        while ends[0].lane.room(1) > 0 {
            ends[0].post(&sides[0], &sides[1], LOAD, rkey);
        }
        assert_eq!(ends[0].lane.in_flight(), DEPTH);
        (0..life * 10).for_each(|_| ends[1].turn(&sides[1]));
        assert!(ends[0].lane.holds(0) && !ends[0].lane.flush(Some(0)));
        assert!(ends[0].lane.flush(None));
        turn_until("all are flushed", &sides, &mut ends, |ends| {
            ends[0].is_dry()
        });
        let flushed = ends[0]
            .done
            .values()
            .flatten()
            .filter(|cause| cause.is_flush())
            .count();
        println!("{provider}, life {life}: {flushed} flushed");
        assert_eq!(ends[0].done.len(), ends[0].next as usize);
        // The other end closes its own, and both begin again.
        assert!(ends[1].lane.flush(None));
        let pairs = ends.map(|end| {
            drop(end.lane);
            assert!(end.pair.has_failed());
            end.pair.renew().unwrap()
        });
        ends = met(pairs, &sides);
        let slice = ends[0].post(&sides[0], &sides[1], LOAD, rkey);
        turn_until("the next life works", &sides, &mut ends, |ends| {
            ends[0].is_dry()
        });
        assert_eq!(ends[0].done.get(&slice), Some(&None));
        assert!(bytes_of(&sides[1])[..1 << 16] == bytes_of(&sides[0])[..1 << 16]);
    }
    for End { pair, lane, .. } in ends {
        drop(lane);
        pair.reset().unwrap();
    }
}

#[test]
fn a_lane_that_ends_under_load_accounts_for_all_over_tcp() {
    ends_under_load("tcp;ofi_rxm");
}

/// Writes by a key that the peer does not have, and by one that is ended. None is done, and nothing lands.
fn refuses_keys(provider: &str) {
    let Some(sides) = sides(provider) else {
        return;
    };
    let range = KeyRange {
        lkey: sides[1].registration.lkey(),
        address: sides[1].memory.address() + 4096,
        bytes: 4096,
        named: 1 << 62,
    };
    let mut key = sides[1].rail.key(&range, Access::ALL).unwrap();
    let place = if sides[1].rail.facts().by_address() {
        4096
    } else {
        0
    };
    let of_grant = Move {
        verb: Verb::Write,
        local: 0,
        remote: place,
        bytes: 4096,
    };
    let own = filled(&sides[0], 9);
    let mut ends = connected(&sides);
    let slice = ends[0].post(&sides[0], &sides[1], of_grant, key.rkey());
    turn_until("the grant is written", &sides, &mut ends, |ends| {
        ends[0].is_dry()
    });
    assert_eq!(ends[0].done.get(&slice), Some(&None));
    assert!(bytes_of(&sides[1])[4096..8192] == own[..4096]);
    key.destroy().unwrap();
    key.destroy().unwrap();
    let theirs = filled(&sides[1], 10);
    for rkey in [key.rkey(), 0xffff_ffff] {
        let slice = ends[0].post(&sides[0], &sides[1], of_grant, rkey);
        turn_until("the write is refused", &sides, &mut ends, |ends| {
            ends[0].done.contains_key(&slice)
        });
        let cause = ends[0].done[&slice].expect("a write by a key that is ended");
        println!("{provider}: key {rkey:#x}: {cause}");
        assert!(bytes_of(&sides[1]) == theirs);
        assert!(ends.each_mut().map(|end| end.lane.flush(None)) == [true; 2]);
        turn_until("both are dry", &sides, &mut ends, |ends| {
            ends.iter().all(End::is_dry)
        });
        let pairs = ends.map(|end| {
            drop(end.lane);
            end.pair.renew().unwrap()
        });
        ends = met(pairs, &sides);
    }
    let refused = sides[1]
        .rail
        .key(&KeyRange { lkey: 77, ..range }, Access::ALL);
    let text = refused.unwrap_err().to_string();
    assert!(
        text.starts_with("memory 0x4d is not registered on"),
        "{text}"
    );
    let long = KeyRange {
        bytes: BYTES,
        ..range
    };
    assert!(sides[1].rail.key(&long, Access::ALL).is_err());
}

#[test]
fn a_key_that_is_ended_or_unknown_writes_nothing_over_tcp() {
    refuses_keys("tcp;ofi_rxm");
}

/// The other end closes its endpoint under load: what this end still has fails, or is flushed when it ends too.
fn peer_ends(provider: &str) {
    let Some(sides) = sides(provider) else {
        return;
    };
    let mut ends = connected(&sides);
    let rkey = sides[1].registration.rkey();
    while ends[0].lane.room(1) > 0 {
        ends[0].post(&sides[0], &sides[1], LOAD, rkey);
    }
    ends[1].turn(&sides[1]);
    assert!(ends[1].lane.flush(None));
    let theirs = filled(&sides[1], 3);
    let started = std::time::Instant::now();
    turn_until(
        "operations fail, or nothing comes",
        &sides,
        &mut ends,
        |ends| ends[0].is_dry() || started.elapsed() > Duration::from_millis(300),
    );
    assert!(
        bytes_of(&sides[1]) == theirs,
        "bytes land at an endpoint that is closed"
    );
    let causes: Vec<String> = ends[0]
        .done
        .values()
        .flatten()
        .map(|cause| cause.to_string())
        .collect();
    println!("{provider}: {} failed: {:?}", causes.len(), causes.first());
    ends[0].lane.flush(None);
    turn_until("all are accounted for", &sides, &mut ends, |ends| {
        ends[0].is_dry()
    });
    assert_eq!(ends[0].done.len(), DEPTH as usize);
    assert!(bytes_of(&sides[1]) == theirs);
}

#[test]
fn nothing_lands_at_an_endpoint_that_is_closed_over_tcp() {
    peer_ends("tcp;ofi_rxm");
}

/// Returns runs of softofi: both kinds, each with a few seeds.
fn soft_runs() -> impl Iterator<Item = String> {
    let seeds = if std::env::var_os("WV_TEST_FULL").is_some() {
        100
    } else {
        3
    };
    let first = fastrand::u32(..);
    let of = move |profile: &'static str| {
        (0..seeds).map(move |nth| format!("{profile},seed={}", first.wrapping_add(nth)))
    };
    SOFT_PROFILES.into_iter().flat_map(of)
}

/// Sees that no rule of the manual was broken since the last look.
fn no_rule_is_broken(run: &str) {
    assert_eq!(broken_rules(run), [""; 0], "{run}");
}

#[test]
fn bytes_go_both_ways_and_writes_count_over_softofi() {
    for run in soft_runs() {
        moves_bytes(&run);
        no_rule_is_broken(&run);
    }
}

#[test]
fn a_lane_that_ends_under_load_accounts_for_all_over_softofi() {
    for run in soft_runs() {
        ends_under_load(&run);
        no_rule_is_broken(&run);
    }
}

#[test]
fn a_key_that_is_ended_or_unknown_writes_nothing_over_softofi() {
    for run in soft_runs() {
        refuses_keys(&run);
        no_rule_is_broken(&run);
    }
}

#[test]
fn nothing_lands_at_an_endpoint_that_is_closed_over_softofi() {
    for run in soft_runs() {
        for dead in ["error", "silent", "mixed"] {
            peer_ends(&format!("{run},dead={dead}"));
        }
        no_rule_is_broken(&run);
    }
}

/// Writes that are done, and whose data has not come to the other end when it closes: both ends know what they have had.
#[test]
fn ends_tell_what_has_counted_although_a_close_drops_some_of_it() {
    const COUNTS: u64 = 40;
    for run in soft_runs() {
        let run = format!("{run},data_us=400000");
        let sides = sides(&run).unwrap();
        let mut ends = connected(&sides);
        let rkey = sides[1].registration.rkey();
        for nth in 0..COUNTS {
            let it = Move {
                verb: Verb::WriteImmediate(u32::from(nth % 4 == 0)),
                local: 0,
                remote: 64 * nth,
                bytes: 64,
            };
            ends[0].post(&sides[0], &sides[1], it, rkey);
        }
        turn_until("all are done", &sides, &mut ends, |ends| ends[0].is_dry());
        for end in &mut ends {
            assert!(end.lane.flush(None));
            assert_eq!(end.pair.counts().unwrap(), None, "a worker has the lane");
        }
        turn_until("no count comes any more", &sides, &mut ends, |ends| {
            ends.iter().all(|end| end.lane.receives() == 0)
        });
        let counted = ends[1].counted.clone();
        let [own, theirs] = ends.map(|end| {
            drop(end.lane);
            end.pair.counts().unwrap().expect("the lane is dropped")
        });
        let done = [0, 1].map(|counter| own.done.at(counter));
        assert_eq!(done, [30, 10], "{run}");
        let seen = [0, 1].map(|counter| theirs.seen.at(counter));
        let came = [0, 1].map(|counter| counted.iter().filter(|it| **it == counter).count());
        assert_eq!(seen.map(usize::try_from), came.map(Ok), "{run}");
        assert!(seen.iter().sum::<u64>() < COUNTS, "{run}: all of it came");
        assert_eq!((own.seen.all(), theirs.done.all()), (vec![], vec![]));
        no_rule_is_broken(&run);
    }
}

/// Retires what has completed on the first ends of these lanes, which have one worker. Returns how many WQEs are done.
fn retire_all(side: &Side, pairs: &mut [[End; 2]; 2]) -> u32 {
    let (mut found, mut done) = (Vec::new(), 0);
    side.reap(&mut found);
    for [end, _] in &mut *pairs {
        if end.lane.has_turn() {
            found.extend(end.lane.advance());
        }
    }
    for completion in &found {
        let mut ends = pairs.iter_mut().map(|[end, _]| end);
        let end = ends.find(|end| end.lane.number() == completion.lane);
        let end = end.expect("a lane of this worker");
        end.lane.retire(completion, |_, cause| {
            assert_eq!(cause, None);
            done += 1;
        });
    }
    done
}

/// Two lanes of one worker end in one turn. What was taken out of the queue for the first is counted although the second ends too.
#[test]
fn a_lane_waits_for_its_counts_while_another_ends() {
    const COUNTS: u32 = 20;
    let run = "softofi:profile=efa-direct,again=0,data_us=0";
    let sides = sides(run).unwrap();
    let mut pairs = [connected(&sides), connected(&sides)];
    let rkey = sides[1].registration.rkey();
    for [end, _] in &mut pairs {
        for nth in 0..COUNTS {
            let it = Move {
                verb: Verb::WriteImmediate(nth),
                local: 0,
                remote: 64 * u64::from(nth),
                bytes: 64,
            };
            end.post(&sides[0], &sides[1], it, rkey);
        }
    }
    let mut done = 0;
    until("all are done", || {
        done += retire_all(&sides[0], &mut pairs);
        done == 2 * COUNTS
    });
    for [_, end] in &mut pairs {
        assert!(end.lane.flush(None));
    }
    for [_, end] in &pairs {
        assert_ne!(end.lane.receives(), 0, "its worker has taken nothing yet");
    }
    let mut counted: BTreeMap<u32, u32> = BTreeMap::new();
    until("no count of them comes any more", || {
        let mut found = Vec::new();
        sides[1].reap(&mut found);
        for completion in found {
            if let Completed::Receive(Some(_)) = completion.what {
                *counted.entry(completion.lane).or_default() += 1;
            }
        }
        pairs.iter().all(|[_, end]| end.lane.receives() == 0)
    });
    let ends = pairs.iter().map(|[_, end]| end);
    let expected: BTreeMap<u32, u32> = ends.map(|end| (end.lane.number(), COUNTS)).collect();
    assert_eq!(counted, expected);
    no_rule_is_broken(run);
}

#[test]
fn a_key_that_comes_back_is_not_given_while_a_peer_may_know_it() {
    for run in soft_runs() {
        let sides = sides(&run).unwrap();
        let ends = connected(&sides);
        let memory = Arc::new(HostMemory::new(8192).unwrap());
        let memory = AnyMemory::from(&memory);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..200 {
            let mut registration = sides[0].rail.register(&memory).unwrap();
            assert!(
                seen.insert(registration.rkey()),
                "{run}: {:#x}",
                registration.rkey()
            );
            registration.deregister().unwrap();
        }
        // Without a connection that has known them the numbers may come again.
        drop(ends);
        let again = sides[0].rail.register(&memory).unwrap();
        println!("{run}: {:#x} after {} keys", again.rkey(), seen.len());
        no_rule_is_broken(&run);
    }
}

#[test]
fn an_idle_worker_sleeps_and_wakes_for_a_peer() {
    let Some(sides) = sides("tcp;ofi_rxm") else {
        return;
    };
    let ends = connected(&sides);
    let [side, peer] = &sides;
    // What connecting has left is taken first.
    let mut found = Vec::new();
    until("the worker sleeps its time", || {
        side.reap(&mut found);
        let begun = std::time::Instant::now();
        let most = Duration::from_millis(200);
        side.reaper
            .lock()
            .unwrap()
            .sleep(&side.wake, Some(most))
            .unwrap();
        begun.elapsed() >= most
    });
    drop(ends);
    drop(found);
    assert_eq!(peer.rail.name(), side.rail.name());
}
