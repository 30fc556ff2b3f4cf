//! Which founders go on, once some may be gone. All living founders learn the same set.
//!
//! Each rank publishes that it is here. When a rank finds all ranks here for which it still waits, it writes the set of ranks that
//! are here. The first set that is written holds for all. A rank that another rank counts as gone is in the set if it comes in
//! time. A rank that comes later finds that the others go on without it.

use std::time::{Duration, Instant};

use super::arguments::{check_wanted, withdraw};
use super::exchange::Exchange;
use crate::deadline::Looks;
use crate::team::error::TeamError;
use crate::team::limits::PEACE;
use crate::team::ranks::RankSet;

/// Time between two looks at processes that may have ended.
const LOOK: Duration = Duration::from_millis(100);

/// Returns the founders that go on, the same set at all of them. [`Team::living`](crate::team::Team::living) says more.
pub(in crate::team) fn living(
    exchange: &Exchange,
    name: &str,
    awaited: RankSet,
) -> Result<RankSet, TeamError> {
    exchange.only_founders("a count of the living")?;
    let (rank, start) = (exchange.rank(), Instant::now());
    let (here, decided) = (
        format!("living/{name}/here"),
        format!("living/{name}/decided"),
    );
    let own = format!("{here}/{rank}");
    exchange.put(&own, &())?;
    let founders = exchange.founders();
    let mut next_look = start + PEACE;
    let mut looks = Looks::by(Instant::now, start.checked_add(exchange.timeout()));
    loop {
        // Read before the look, so that a rank is left out only by a look that begins after the deadline.
        let left = looks.next().unwrap_or(Duration::ZERO);
        // The ended ranks are read before the ranks that are here. So this rank reads all that a process published before its end.
        let gone: RankSet = exchange.ended().map(|(rank, _)| rank).collect();
        if let Some(ranks) = exchange.read::<Vec<u32>>(rank, &decided, &decided)? {
            return with_own(exchange, ranks.into_iter().collect());
        }
        let names = exchange.store().list(&here)?;
        let ranks = names.iter().filter_map(|name| name.parse().ok());
        let present: RankSet = ranks.filter(|rank| founders.contains(*rank)).collect();
        let waits_for = |rank: &u32| {
            founders.contains(*rank) && !present.contains(*rank) && !gone.contains(*rank)
        };
        let missing: Vec<u32> = awaited.iter().filter(waits_for).collect();
        if missing.is_empty() || left.is_zero() {
            if !missing.is_empty() {
                let waited = start.elapsed();
                tracing::warn!(
                    "ranks {missing:?} have not come within {waited:.1?} ({name}), and are left out"
                );
            }
            let ranks: Vec<u32> = present.iter().collect();
            let text = exchange.text(&decided, &ranks)?;
            // The set of another rank that was faster holds, and the next look reads it.
            exchange.store().compare_and_set(&decided, None, &text)?;
            continue;
        }
        if Instant::now() >= next_look {
            check_wanted(exchange).inspect_err(|_| withdraw(exchange, &own))?;
            next_look = Instant::now() + LOOK;
        }
        exchange.store().wait_for_change(left.min(LOOK));
    }
}

fn with_own(exchange: &Exchange, ranks: RankSet) -> Result<RankSet, TeamError> {
    if ranks.contains(exchange.rank()) {
        Ok(ranks)
    } else {
        Err(TeamError::LeftOut {
            rank: exchange.rank(),
            others: ranks.iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use rendezvous::Process;

    use super::*;
    use crate::team::meeting::exchange::tests::{LONG, exchanges};
    use crate::team::meeting::gather::tests::late_exchange;

    fn set(ranks: &[u32]) -> RankSet {
        ranks.iter().copied().collect()
    }

    #[test]
    fn living_ranks_learn_one_set_whatever_each_waits_for() {
        let exchanges = exchanges(4, LONG);
        // Rank 3 is gone. Rank 0 has missed it, and the others learn of that from rank 0 alone.
        let awaited = [set(&[0, 1, 2]), set(&[0, 1, 2, 3]), set(&[1, 2, 3])];
        let sets: Vec<RankSet> = thread::scope(|scope| {
            let calls = exchanges.iter().zip(awaited);
            let threads: Vec<_> = calls
                .map(|(exchange, awaited)| scope.spawn(move || living(exchange, "first", awaited)))
                .collect();
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().unwrap().unwrap());
            joined.collect()
        });
        assert_eq!(sets, [set(&[0, 1, 2]); 3]);
        let error = living(&exchanges[3], "first", set(&[0, 1, 2, 3])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "rank 3 was given up: ranks 0, 1, 2 go on without it"
        );
    }

    #[test]
    fn a_rank_that_one_has_missed_and_that_comes_first_is_in_the_set() {
        let exchanges = exchanges(3, LONG);
        let [zero, one, two] = &exchanges[..] else {
            panic!("three ranks")
        };
        two.put("living/next/here/2", &()).unwrap();
        one.put("living/next/here/1", &()).unwrap();
        assert_eq!(
            living(zero, "next", set(&[0, 1])).unwrap(),
            RankSet::first(3)
        );
        for late in [one, two] {
            let all = living(late, "next", RankSet::first(3)).unwrap();
            assert_eq!(all, RankSet::first(3));
        }
    }

    #[test]
    fn a_rank_whose_process_has_ended_is_waited_for_no_more() {
        let exchanges = exchanges(3, LONG);
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let ended = Process::of(child.id());
        exchanges[0].watch(vec![(0, Process::this()), (2, ended)]);
        let counted = thread::scope(|scope| {
            let waiting = scope.spawn(|| living(&exchanges[0], "next", RankSet::first(3)));
            exchanges[1].put("living/next/here/1", &()).unwrap();
            child.kill().unwrap();
            waiting.join().unwrap().unwrap()
        });
        assert_eq!(counted, set(&[0, 1]));
        child.wait().unwrap();
    }

    #[test]
    fn a_rank_that_does_not_come_in_time_is_left_out() {
        let exchanges = exchanges(2, Duration::from_millis(50));
        let counted = living(&exchanges[0], "next", RankSet::first(2)).unwrap();
        assert_eq!(counted, set(&[0]));
        let error = living(&exchanges[1], "next", RankSet::first(2)).unwrap_err();
        assert!(
            matches!(&error, TeamError::LeftOut { rank: 1, others } if *others == [0]),
            "{error}"
        );
    }

    #[test]
    fn a_rank_that_comes_while_the_last_look_lasts_is_not_left_out() {
        let exchange = late_exchange("list", "living/next/here/3");
        for rank in [1, 2] {
            exchange
                .put(&format!("living/next/here/{rank}"), &())
                .unwrap();
        }
        let counted = living(&exchange, "next", RankSet::first(4)).unwrap();
        assert_eq!(counted, RankSet::first(4));
    }

    #[test]
    fn ranks_that_the_team_does_not_have_are_neither_awaited_nor_counted() {
        let exchange = &exchanges(1, LONG)[0];
        exchange.put("living/next/here/7", &()).unwrap();
        exchange.put("living/next/here/word", &()).unwrap();
        let counted = living(exchange, "next", RankSet::first(9)).unwrap();
        assert_eq!(counted, set(&[0]));
    }
}
