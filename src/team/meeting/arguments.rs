//! Records of the arguments of programs, by which a rank can tell arguments that differ from an absence.
//!
//! A rank writes each new shape of its calls once (`shapes/LAYER/RANK`). It writes what it makes together with the other ranks when
//! it begins to (`wants/RANK`). In peace no rank reads any of these records. A rank that misses another one in a call reads what
//! that rank has written. If its own arguments differ, it writes the difference to `differs/RANK`. Two kinds of ranks read that
//! record: a rank that misses the writer in the same call or the next, and a rank that has waited for long for the others to make
//! what it wants.

use super::exchange::Exchange;
use super::glance::LOOK;
use super::program::{CallShape, Differs, Wants};
use crate::team::error::TeamError;

/// Publishes that the program of this rank makes `layer` with these arguments now.
///
/// # Errors
/// The store's.
pub(in crate::team) fn wants(
    exchange: &Exchange,
    layer: &str,
    arguments: &[(String, String)],
) -> Result<(), TeamError> {
    let program = exchange.program();
    let wants = program.next(layer, arguments);
    exchange.put(&format!("wants/{}", exchange.rank()), &wants)?;
    program.has_told(wants.serial);
    Ok(())
}

/// Returns what `rank` makes, or has made last, if the record can be read now.
pub(in crate::team) fn wants_of(exchange: &Exchange, rank: u32) -> Option<Wants> {
    exchange.glance(&format!("wants/{rank}"))
}

/// Publishes the shapes of this rank's calls of `layer`.
pub(in crate::team) fn tell_shapes(exchange: &Exchange, layer: &str, shapes: &[CallShape]) {
    let key = format!("shapes/{layer}/{}", exchange.rank());
    exchange.tell(&key, &shapes);
}

/// Returns the shapes of the calls of `layer` by `rank`, without the layer's own shape, if the record can be read now.
pub(in crate::team) fn shapes_of(
    exchange: &Exchange,
    layer: &str,
    rank: u32,
) -> Option<Vec<CallShape>> {
    exchange.glance(&format!("shapes/{layer}/{rank}"))
}

/// Publishes a difference between ranks that this rank has found.
pub(in crate::team) fn tell_differs(exchange: &Exchange, found: &Differs) {
    let key = format!("differs/{}", exchange.rank());
    exchange.tell(&key, found);
}

/// Returns the difference that `rank` has found last, if the record can be read now.
pub(in crate::team) fn differs_of(exchange: &Exchange, rank: u32) -> Option<Differs> {
    exchange.glance(&format!("differs/{rank}"))
}

/// Returns an error if another rank has refused what this rank wants. Each refusal is returned once.
///
/// # Errors
/// [`TeamError::Differs`]. Errors of the store.
pub(super) fn check_wanted(exchange: &Exchange) -> Result<(), TeamError> {
    let program = exchange.program();
    let own = (exchange.rank(), program.open());
    if own.1 == 0 {
        return Ok(());
    }
    for name in exchange.store().list("differs")? {
        if name.parse() == Ok(exchange.rank()) {
            continue;
        }
        let found = exchange.glance::<Differs>(&format!("differs/{name}"));
        let Some(found) = found.filter(|found| found.refused.contains(&own)) else {
            continue;
        };
        program.close();
        return Err(TeamError::Differs {
            argument: found.argument,
            first_rank: found.first.0,
            first: found.first.1,
            second_rank: found.second.0,
            second: found.second.1,
            call: found.call,
            layer: found.layer,
        });
    }
    Ok(())
}

/// Removes this rank's record of a meeting to which it does not come any more.
pub(super) fn withdraw(exchange: &Exchange, key: &str) {
    // No other rank removes this key. So this rank asks the store even if the store has just been silent.
    if let Err(error) = exchange.store().bounded(LOOK).remove(key) {
        tracing::debug!("'{key}' cannot be removed now: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use rendezvous::StoreError;

    use super::*;
    use crate::team::meeting::exchange::tests::{LONG, exchanges};
    use crate::team::meeting::living::living;
    use crate::team::meeting::program::Launches;
    use crate::team::ranks::RankSet;

    fn pairs(experts: &str) -> Vec<(String, String)> {
        vec![("experts".to_owned(), experts.to_owned())]
    }

    fn refusal(refused: Vec<(u32, u32)>) -> Differs {
        Differs {
            layer: "layer-0".to_owned(),
            call: 11,
            refused,
            argument: "experts".to_owned(),
            first: (0, "8".to_owned()),
            second: (1, "16".to_owned()),
        }
    }

    /// Makes one question to the store stay without an answer.
    fn silence(exchange: &Exchange) {
        let none: Option<()> = exchange.at_once("wants/1", |_| {
            Err(StoreError::Unreachable {
                store: "the store".to_owned(),
                waited: Duration::ZERO,
                cause: "it is away".to_owned(),
            })
        });
        assert!(none.is_none());
    }

    /// Calls `wait` at rank 1 of four. Meanwhile rank 0 refuses what rank 1 wants now, and rank 2 what rank 1 wanted before.
    fn refused(wait: impl FnOnce(&Exchange) -> Result<(), TeamError> + Send) {
        let exchanges = exchanges(4, LONG);
        let error = thread::scope(|scope| {
            exchanges[2].tell("differs/2", &refusal(vec![(1, 1)]));
            wants(&exchanges[1], "layer-1", &pairs("32")).unwrap();
            wants(&exchanges[1], "layer-1", &pairs("16")).unwrap();
            let waiting = scope.spawn(|| wait(&exchanges[1]));
            exchanges[0].tell("differs/0", &refusal(vec![(3, 2), (1, 2)]));
            waiting.join().unwrap().unwrap_err()
        });
        assert_eq!(
            error.to_string(),
            "experts is 8 at rank 0 but 16 at rank 1: call 11 of one rank stands against what the other one makes"
        );
        // What rank 1 has begun is withdrawn: all ranks may make it later.
        thread::scope(|scope| {
            for exchange in &exchanges {
                scope.spawn(|| exchange.agree("moe-layer-1", &pairs("8")).unwrap());
            }
        });
    }

    #[test]
    fn a_rank_that_waits_for_a_layer_hears_which_argument_others_refuse() {
        refused(|exchange| exchange.agree("moe-layer-1", &pairs("16")));
    }

    #[test]
    fn a_rank_that_counts_the_living_hears_which_argument_others_refuse() {
        refused(|exchange| {
            let counted = living(exchange, "first", RankSet::first(4)).map(drop);
            assert_eq!(exchange.store().list("living/first/here").unwrap(), [""; 0]);
            counted
        });
    }

    #[test]
    fn many_questions_to_a_silent_store_take_no_longer_than_one() {
        let exchange = &exchanges(1, LONG)[0];
        let mut asked = 0;
        // A refusal is an answer.
        for _ in 0..2 {
            let refused = exchange.at_once("no key", |store| {
                asked += 1;
                store.try_get("no key")
            });
            assert_eq!((refused, exchange.is_silent()), (None, false));
        }
        silence(exchange);
        for _ in 0..100 {
            let none = exchange.at_once("wants/1", |store| {
                asked += 1;
                store.try_get("wants/1")
            });
            assert_eq!((none, exchange.is_silent()), (None, true));
        }
        assert_eq!(asked, 2);
    }

    #[test]
    fn a_rank_whose_call_runs_waits_for_no_store_to_hear_who_gave_up() {
        let exchanges = exchanges(2, LONG);
        assert!(exchanges[0].failure_at_once().is_ok());
        exchanges[1].fail_with("no memory");
        let heard = exchanges[0].failure_at_once().unwrap_err();
        assert_eq!(heard.to_string(), "rank 1 failed: no memory");
        silence(&exchanges[0]);
        assert!(exchanges[0].failure_at_once().is_ok());
        assert!(exchanges[0].failure().is_err());
    }

    #[test]
    fn what_a_rank_wants_says_how_far_its_calls_are_where_its_host_knows() {
        let exchange = &exchanges(1, LONG)[0];
        let [known, recorded, gone] = [(); 3].map(|()| Arc::new(Launches::default()));
        known.next_is(7);
        known.count(false);
        recorded.count(true);
        for (name, launches) in [("known", &known), ("recorded", &recorded), ("gone", &gone)] {
            exchange.program().has_made(name, Arc::downgrade(launches));
        }
        drop(gone);
        wants(exchange, "next", &pairs("8")).unwrap();
        let told: Wants = exchange.glance("wants/0").unwrap();
        assert_eq!((told.serial, told.layer.as_str()), (1, "next"));
        assert_eq!(told.calls, BTreeMap::from([("known".to_owned(), 8)]));
        assert_eq!(exchange.glance::<Wants>("wants/1"), None);
    }
}
