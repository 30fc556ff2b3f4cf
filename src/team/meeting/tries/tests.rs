use std::cell::Cell;
use std::thread;

use super::*;
use crate::team::meeting::exchange::tests::{LONG, exchanges};

const RANKS: u32 = 4;
const TOPIC: &str = "layer/test";

/// Meets at one rank, which brings the word in `bring` or fails to prepare. Returns the words of all.
fn meet(
    exchange: &Exchange,
    tries: &mut Tries,
    bring: Result<u32, &str>,
) -> Result<Vec<(u32, u32)>, TeamError> {
    let failed = |words: &str| exchange.record(exchange.rank(), "memory", &words);
    let prepare = || bring.map(|word| ((), word)).map_err(failed);
    let met = super::meet(exchange, TOPIC, tries, prepare, |_, _| Ok(()));
    met.map(|((), words)| words)
}

/// Lets all ranks meet at once, and returns what each of them gets.
fn together(
    exchanges: &[Exchange],
    tries: &mut [Tries],
    bring: impl Fn(u32) -> Result<u32, &'static str> + Sync,
) -> Vec<Result<Vec<(u32, u32)>, String>> {
    thread::scope(|scope| {
        let bring = &bring;
        let threads: Vec<_> = exchanges
            .iter()
            .zip(tries)
            .map(|(exchange, tries)| {
                scope.spawn(move || {
                    let met = meet(exchange, tries, bring(exchange.rank()));
                    met.map_err(|error| error.to_string())
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    })
}

fn words(of: impl Fn(u32) -> u32) -> Vec<(u32, u32)> {
    (0..RANKS).map(|rank| (rank, of(rank))).collect()
}

#[test]
fn what_fails_at_one_rank_fails_at_all_and_the_next_try_is_made() {
    let exchanges = exchanges(RANKS, LONG);
    let mut tries = [Tries::default(); RANKS as usize];
    for round in 1..=3 {
        let failed = together(&exchanges, &mut tries, |rank| match rank {
            1 => Err("no memory"),
            rank => Ok(10 * rank),
        });
        let own = "invalid record 'memory' from rank 1: no memory";
        for (rank, met) in (0..).zip(&failed) {
            let error = met.as_ref().unwrap_err();
            if rank == 1 {
                assert_eq!(error, own)
            } else {
                assert_eq!(*error, format!("rank 1 failed: {own}"))
            }
        }
        // What was brought to a try that failed counts for no later one.
        let made = together(&exchanges, &mut tries, |rank| Ok(rank + round));
        for met in made {
            assert_eq!(met.unwrap(), words(|rank| rank + round));
        }
    }
}

#[test]
fn a_rank_that_fails_again_and_again_is_heard_once() {
    let exchanges = exchanges(RANKS, LONG);
    let mut tries = [Tries::default(); RANKS as usize];
    for _ in 0..5 {
        meet(&exchanges[1], &mut tries[1], Err("no memory")).unwrap_err();
    }
    for rank in [0, 2, 3] {
        let error = meet(&exchanges[rank], &mut tries[rank], Ok(0)).unwrap_err();
        assert!(
            matches!(error, TeamError::PeerFailed { rank: 1, .. }),
            "{error}"
        );
    }
    for met in together(&exchanges, &mut tries, Ok) {
        assert_eq!(met.unwrap(), words(|rank| rank));
    }
}

#[test]
fn a_late_rank_hears_that_it_was_missed_and_then_meets_the_others() {
    let exchanges = exchanges(RANKS, Duration::from_millis(50));
    let mut tries = [Tries::default(); RANKS as usize];
    let (here, late) = exchanges.split_at(3);
    for met in together(here, &mut tries[..3], Ok) {
        let error = met.unwrap_err();
        assert!(error.starts_with("rank 3 has not come within"), "{error}");
        assert!(error.ends_with("(layer/test)"), "{error}");
    }
    let prepared = Cell::new(false);
    let prepare = || {
        prepared.set(true);
        Ok::<_, TeamError>(((), 3))
    };
    let error = super::meet(&late[0], TOPIC, &mut tries[3], prepare, |_, _| Ok(()));
    let error = error.unwrap_err();
    assert!(
        matches!(&error, TeamError::Absent { missing, .. } if *missing == [3]),
        "{error}"
    );
    assert!(!prepared.get(), "it takes memory for a try that is over");
    let exchanges: Vec<Exchange> = exchanges
        .into_iter()
        .map(|one| one.with_timeout(LONG))
        .collect();
    for met in together(&exchanges, &mut tries, Ok) {
        assert_eq!(met.unwrap(), words(|rank| rank));
    }
}

#[test]
fn a_rank_that_lost_its_store_in_a_try_ends_it_before_the_next() {
    let exchanges = exchanges(RANKS, LONG);
    let mut tries = [Tries::default(); RANKS as usize];
    // It has written its word, and then its call ended without the store.
    tries[2].begun = 1;
    exchanges[2].put("layer/test/1/2", &7).unwrap();
    let met = thread::scope(|scope| {
        let [zero, one, two, three] = &exchanges[..] else {
            panic!("four ranks")
        };
        let (first, rest) = tries.split_at_mut(2);
        let (third, fourth) = rest.split_at_mut(1);
        let two = scope.spawn(|| meet(two, &mut third[0], Ok(8)));
        // The others begin after this: else they might meet by the old word of rank 2, which would be left out.
        let ended = zero
            .store()
            .get("layer/test/outcome", Instant::now() + LONG);
        ended.unwrap();
        let others = [(zero, &mut first[..1]), (three, fourth)].map(|(exchange, tries)| {
            scope.spawn(move || {
                loop {
                    // In some orders of the ranks, its first try has failed, and its next try is the one that all make.
                    match meet(exchange, &mut tries[0], Ok(8)) {
                        Err(TeamError::PeerFailed { rank: 2, message }) => {
                            assert_eq!(message, "it lost the store while it met the others");
                        }
                        met => break met,
                    }
                }
            })
        });
        let mut own = Tries::default();
        let one = loop {
            match meet(one, &mut own, Ok(8)) {
                Err(TeamError::PeerFailed { rank: 2, .. }) => {}
                met => break met,
            }
        };
        let mut met = vec![one, two.join().unwrap()];
        met.extend(others.map(|other| other.join().unwrap()));
        met
    });
    for met in met {
        assert_eq!(met.unwrap(), words(|_| 8));
    }
}

#[test]
fn garbage_in_the_record_of_a_meeting_counts_as_missing() {
    let exchanges = exchanges(RANKS, LONG);
    let mut tries = [Tries::default(); RANKS as usize];
    for garbage in [&b"{"[..], b"\xff\xff", b"{\"number\":-1,\"failure\":null}"] {
        exchanges[0]
            .store()
            .put("layer/test/outcome", garbage)
            .unwrap();
        for met in together(&exchanges, &mut tries, Ok) {
            assert_eq!(met.unwrap(), words(|rank| rank));
        }
    }
}

#[test]
fn what_is_known_of_tries_says_how_a_rank_begins() {
    let begin = |heard, begun, ended| Tries { heard, begun }.begin(ended);
    assert_eq!(begin(0, 0, 0), Begin::Take(1));
    assert_eq!(begin(0, 0, 7), Begin::Report(7));
    assert_eq!(begin(7, 7, 7), Begin::Take(8));
    assert_eq!(begin(7, 8, 7), Begin::End(8));
    assert_eq!(begin(7, 8, 8), Begin::Report(8));
    // A store that has lost the record.
    assert_eq!(begin(7, 7, 0), Begin::Take(8));
}
