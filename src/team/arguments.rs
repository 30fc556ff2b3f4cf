//! What ranks write of the arguments of their programs, so that a rank can tell arguments that differ from an absence.
//!
//! A rank writes each shape of its calls once, when the shape is new (`shapes/LAYER/RANK`), and what it makes together with the others
//! when it begins to (`wants/RANK`). In peace no rank reads any of that. A rank that misses another one in a call reads what that
//! rank has written. If its own arguments are others, it writes the difference to `differs/RANK`. Two kinds of ranks read that: one
//! that misses the writer in the same call or the next, and one that has waited for long for the others to make what it wants.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rendezvous::{Store, StoreError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::exchange::Exchange;
use super::{Team, TeamError};

/// A rank that waits for others for longer looks whether they have refused its arguments.
pub(super) const PEACE: Duration = Duration::from_secs(1);
/// Longest call of the store of a rank that has missed another one, or a quarter of its deadline: its own call waits meanwhile.
const LOOK: Duration = Duration::from_secs(1);
/// And the shortest such bound.
const LEAST: Duration = Duration::from_millis(20);
/// After a call of the store without an answer, the rank asks nothing for so many times the bound.
const SILENCE: u32 = 16;

/// Calls of a layer that a program has launched.
#[derive(Debug)]
pub(crate) struct Launches {
    /// Number of the next one.
    next: AtomicU32,
    /// Whether some were recorded into graphs: then the host does not know the number.
    in_graphs: AtomicBool,
}

impl Default for Launches {
    fn default() -> Self {
        Self {
            next: AtomicU32::new(1),
            in_graphs: AtomicBool::new(false),
        }
    }
}

impl Launches {
    /// The next call has number `call`.
    pub(crate) fn next_is(&self, call: u32) {
        self.next.store(call, Ordering::Relaxed);
    }

    /// A dispatch was launched, or recorded into a graph.
    pub(crate) fn count(&self, in_graph: bool) {
        match in_graph {
            true => self.in_graphs.store(true, Ordering::Relaxed),
            false => drop(self.next.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn next(&self) -> Option<u32> {
        let known = !self.in_graphs.load(Ordering::Relaxed);
        known.then(|| self.next.load(Ordering::Relaxed))
    }
}

/// What this rank knows of its own program.
#[derive(Debug)]
pub(super) struct Arguments {
    /// Longest call of the store.
    look: Duration,
    /// The store has not answered, and is not asked before then.
    silent_until: Mutex<Option<Instant>>,
    /// Number of what it has wanted last; 0: nothing yet.
    serial: AtomicU32,
    /// The same while it may be refused; else 0.
    open: AtomicU32,
    /// The layers that it has made, by name.
    layers: Mutex<BTreeMap<String, Weak<Launches>>>,
}

/// What the program of a rank makes together with the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wants {
    /// A new number for each.
    pub(crate) serial: u32,
    /// Name of the layer.
    pub(crate) layer: String,
    /// Names and values.
    pub(crate) arguments: Vec<(String, String)>,
    /// By layer that the rank has made: the number of the next call that it launches there, if its host knows it.
    pub(crate) calls: BTreeMap<String, u32>,
}

/// What a rank has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Differs {
    /// The layer of the call.
    pub(crate) layer: String,
    /// Number of the call in which it showed.
    pub(crate) call: u32,
    /// Rank and [`Wants::serial`] of what it refuses.
    pub(crate) refused: Vec<(u32, u32)>,
    /// Which argument.
    pub(crate) argument: String,
    /// A rank, and its value.
    pub(crate) first: (u32, String),
    /// Another rank, and its value.
    pub(crate) second: (u32, String),
}

/// A shape of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallShape {
    /// What rows of such a call say in place of it.
    pub(crate) tag: u32,
    /// What its tokens are made of.
    pub(crate) format: String,
    /// Most tokens of a rank.
    pub(crate) max_tokens: u32,
}

impl Team {
    /// Writes that the program of this rank makes `layer` with these arguments now.
    ///
    /// # Errors
    /// The store's.
    pub fn wants(&self, layer: &str, arguments: &[(String, String)]) -> Result<(), TeamError> {
        self.exchange.wants(layer, arguments)
    }

    /// This rank has made `layer`.
    pub(crate) fn has_made(&self, layer: &str, launches: Weak<Launches>) {
        let own = self.exchange.arguments();
        own.layers().insert(layer.to_owned(), launches);
        own.open.store(0, Ordering::Relaxed);
    }

    /// Whether this rank has made `layer`.
    pub(crate) fn has_layer(&self, layer: &str) -> bool {
        self.exchange.arguments().layers().contains_key(layer)
    }

    /// What `rank` makes, or has made last, if it can be read now.
    pub(crate) fn wants_of(&self, rank: u32) -> Option<Wants> {
        self.exchange.glance(&format!("wants/{rank}"))
    }

    /// Writes the shapes of this rank's calls of `layer`.
    pub(crate) fn tell_shapes(&self, layer: &str, shapes: &[CallShape]) {
        let key = format!("shapes/{layer}/{}", self.rank());
        self.exchange.tell(&key, &shapes);
    }

    /// The shapes of the calls of `rank` of `layer`, the layer's own left out, if they can be read now.
    pub(crate) fn shapes_of(&self, layer: &str, rank: u32) -> Option<Vec<CallShape>> {
        self.exchange.glance(&format!("shapes/{layer}/{rank}"))
    }

    /// Writes what this rank has found.
    pub(crate) fn tell_differs(&self, found: &Differs) {
        let key = format!("differs/{}", self.rank());
        self.exchange.tell(&key, found);
    }

    /// Whether the store has not answered what this rank wanted to know of the others a moment ago.
    pub(crate) fn asks_in_vain(&self) -> bool {
        self.exchange.is_silent()
    }

    /// What `rank` has found last, if it can be read now.
    pub(crate) fn differs_of(&self, rank: u32) -> Option<Differs> {
        self.exchange.glance(&format!("differs/{rank}"))
    }
}

impl Arguments {
    /// Of a rank whose device calls wait for `deadline`.
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            look: (deadline / 4).clamp(LEAST, LOOK),
            silent_until: Mutex::default(),
            serial: AtomicU32::default(),
            open: AtomicU32::default(),
            layers: Mutex::default(),
        }
    }

    fn layers(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Weak<Launches>>> {
        // Whole after every operation.
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By layer the number of the next call.
    fn calls(&self) -> BTreeMap<String, u32> {
        let layers = self.layers();
        let known = layers.iter().filter_map(|(layer, launches)| {
            let next = launches.upgrade()?.next()?;
            Some((layer.clone(), next))
        });
        known.collect()
    }
}

impl Exchange {
    fn wants(&self, layer: &str, arguments: &[(String, String)]) -> Result<(), TeamError> {
        let own = self.arguments();
        let wants = Wants {
            serial: own.serial.load(Ordering::Relaxed).wrapping_add(1),
            layer: layer.to_owned(),
            arguments: arguments.to_vec(),
            calls: own.calls(),
        };
        self.put(&format!("wants/{}", self.rank()), &wants)?;
        own.serial.store(wants.serial, Ordering::Relaxed);
        own.open.store(wants.serial, Ordering::Relaxed);
        Ok(())
    }

    /// Whether no other rank has refused what this one wants. A refusal is heard once.
    ///
    /// # Errors
    /// [`TeamError::Differs`]; the store's.
    pub(super) fn check_wanted(&self) -> Result<(), TeamError> {
        let open = &self.arguments().open;
        let own = (self.rank(), open.load(Ordering::Relaxed));
        if own.1 == 0 {
            return Ok(());
        }
        for name in self.store().list("differs")? {
            if name.parse() == Ok(self.rank()) {
                continue;
            }
            let found = self.glance::<Differs>(&format!("differs/{name}"));
            let Some(found) = found.filter(|found| found.refused.contains(&own)) else {
                continue;
            };
            open.store(0, Ordering::Relaxed);
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

    /// Whether the store has not answered a moment ago.
    pub(super) fn is_silent(&self) -> bool {
        let until = self.arguments().silent_until.lock();
        let until = *until.unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// What `ask` makes of the store, if it answers at once. A store that has not answered is not asked for a while, so that many
    /// questions take no longer than one.
    pub(super) fn at_once<T>(
        &self,
        key: &str,
        ask: impl FnOnce(&dyn Store) -> Result<T, StoreError>,
    ) -> Option<T> {
        if self.is_silent() {
            return None;
        }
        let own = self.arguments();
        let error = match ask(&*self.store().bounded(own.look)) {
            Ok(answer) => return Some(answer),
            Err(error) => error,
        };
        tracing::debug!("the store does not answer about '{key}' now: {error}");
        if error.is_unanswered() {
            let until = own.silent_until.lock();
            *until.unwrap_or_else(PoisonError::into_inner) =
                Instant::now().checked_add(own.look * SILENCE);
        }
        None
    }

    /// The value under `key`, if it is one and the store answers at once: a rank that has missed another one does not wait for it.
    fn glance<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let text = self.at_once(key, |store| store.try_get(key))??;
        serde_json::from_slice(&text).ok()
    }

    /// Sets `key`, if the store answers at once.
    fn tell<T: Serialize>(&self, key: &str, value: &T) {
        match self.text(key, value) {
            Ok(text) => {
                self.at_once(key, |store| store.put(key, &text));
            }
            Err(error) => tracing::debug!("'{key}' cannot be written: {error}"),
        }
    }

    /// Takes back this rank's part in a meeting that no other rank has come to.
    pub(super) fn withdraw(&self, key: &str) {
        // No other rank removes this key. So this rank asks the store also where it has just been silent.
        if let Err(error) = self.store().bounded(LOOK).remove(key) {
            tracing::debug!("'{key}' cannot be removed now: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::RankSet;
    use crate::team::exchange::tests::{LONG, exchanges};
    use std::sync::Arc;
    use std::thread;

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

    /// The store does not answer once.
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

    /// Makes `wait` of rank 1 of four, while rank 0 refuses what rank 1 wants now and rank 2 what it wanted before.
    fn refused(wait: impl FnOnce(&Exchange) -> Result<(), TeamError> + Send) {
        let exchanges = exchanges(4, LONG);
        let error = thread::scope(|scope| {
            exchanges[2].tell("differs/2", &refusal(vec![(1, 1)]));
            exchanges[1].wants("layer-1", &pairs("32")).unwrap();
            exchanges[1].wants("layer-1", &pairs("16")).unwrap();
            let waiting = scope.spawn(|| wait(&exchanges[1]));
            exchanges[0].tell("differs/0", &refusal(vec![(3, 2), (1, 2)]));
            waiting.join().unwrap().unwrap_err()
        });
        assert_eq!(
            error.to_string(),
            "experts is 8 at rank 0 but 16 at rank 1: call 11 of one rank stands against what the other one makes"
        );
        // What it has begun is withdrawn: all ranks may make it later.
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
            let counted = exchange.living("first", RankSet::first(4)).map(drop);
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
            let mut layers = exchange.arguments().layers();
            layers.insert(name.to_owned(), Arc::downgrade(launches));
        }
        drop(gone);
        exchange.wants("next", &pairs("8")).unwrap();
        let told: Wants = exchange.glance("wants/0").unwrap();
        assert_eq!((told.serial, told.layer.as_str()), (1, "next"));
        assert_eq!(told.calls, BTreeMap::from([("known".to_owned(), 8)]));
        assert_eq!(exchange.glance::<Wants>("wants/1"), None);
    }
}
