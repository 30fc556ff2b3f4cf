//! Removal of the records of generations that are over. No rank reads them any more, and without removal a store would grow with
//! every replacement.

use rendezvous::{Store, StoreError};

use super::failed;
use crate::team::holder::Holder;

/// Records that are to be removed, in single calls of the store. The rank that removes them also has to follow the other ranks, and
/// a slow store may take long for each call.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// The calls that are left; the last one is made first.
    left: Vec<Call>,
}

#[derive(Clone, Debug)]
enum Call {
    /// Lists the names below this key, and adds the calls that follow from them.
    List(String, Names),
    Remove(String),
    RemoveBelow(String),
}

/// The meaning of the names below a key.
#[derive(Clone, Copy, Debug)]
enum Names {
    /// Each name is the rank and generation that have published the record.
    Tellers,
    /// Each name is the rank and generation that have published one record for each other rank, below that name.
    TellersOfMany,
    /// Each name is two generations that have published records for each other, below that name.
    Pairs,
    /// Each name is the rank and generation that have failed.
    Failures,
    /// Each name is the number of a proposal. Proposals up to this one are over.
    Proposals(u64),
}

impl Sweep {
    /// Returns a sweep of all records that teams keep of generations.
    pub(crate) fn of_team() -> Self {
        let mut sweep = Self::default();
        for kind in ["rank", "hello"] {
            sweep.add_tellers(kind.to_owned());
        }
        // The failure of a former holder of a rank says nothing about a later one.
        sweep.add(Call::List("failed".to_owned(), Names::Failures));
        sweep.add(Call::List("recover".to_owned(), Names::Pairs));
        for kind in ["welcome", "reunite"] {
            sweep.add(Call::List(kind.to_owned(), Names::TellersOfMany));
        }
        sweep
    }

    /// Adds the records below `key` whose names are the generations that have published them.
    pub(crate) fn add_tellers(&mut self, key: String) {
        self.add(Call::List(key, Names::Tellers));
    }

    /// Adds the records below `key` of proposals up to `last`.
    pub(crate) fn add_proposals(&mut self, key: String, last: u64) {
        self.add(Call::List(key, Names::Proposals(last)));
    }

    pub(crate) fn add_key(&mut self, key: String) {
        self.add(Call::Remove(key));
    }

    pub(crate) fn add_below(&mut self, key: String) {
        self.add(Call::RemoveBelow(key));
    }

    fn add(&mut self, call: Call) {
        self.left.push(call);
    }

    /// Adds what is left of `other`, which is removed first.
    pub(crate) fn add_all(&mut self, other: Self) {
        self.left.extend(other.left);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// Makes the next call. `is_over` tells whether a generation of a rank is over. After an error the next step makes the same
    /// call again.
    pub(crate) fn step(
        &mut self,
        store: &dyn Store,
        is_over: &dyn Fn(u32, u32) -> bool,
    ) -> Result<(), StoreError> {
        let Some(call) = self.left.pop() else {
            return Ok(());
        };
        let made = self.make(&call, store, is_over);
        if made.is_err() {
            self.left.push(call);
        }
        made
    }

    fn make(
        &mut self,
        call: &Call,
        store: &dyn Store,
        is_over: &dyn Fn(u32, u32) -> bool,
    ) -> Result<(), StoreError> {
        match call {
            Call::Remove(key) => store.remove(key).map(drop),
            Call::RemoveBelow(key) => store.remove_below(key).map(drop),
            Call::List(key, names) => {
                let found = store.list(key)?;
                let next = found
                    .iter()
                    .filter_map(|name| names.next(key, name, is_over));
                self.left.extend(next);
                Ok(())
            }
        }
    }
}

impl Names {
    /// Returns the call that `name` below `key` needs; none if its record stays.
    fn next(self, key: &str, name: &str, is_over: &dyn Fn(u32, u32) -> bool) -> Option<Call> {
        let is_over = |of: Holder| is_over(of.rank, of.generation);
        let over = |name: &str| Holder::parse(name).is_some_and(is_over);
        let path = format!("{key}/{name}");
        let goes = match self {
            Self::Tellers => over(name),
            Self::TellersOfMany if over(name) => return Some(Call::RemoveBelow(path)),
            Self::TellersOfMany => return Some(Call::List(path, Self::Tellers)),
            Self::Pairs => {
                return name.split('-').any(over).then_some(Call::RemoveBelow(path));
            }
            Self::Failures => failed::named(name).is_some_and(is_over),
            Self::Proposals(last) => {
                let number = name.parse().ok().filter(|number: &u64| *number <= last);
                return number.map(|_| Call::RemoveBelow(path));
            }
        };
        goes.then_some(Call::Remove(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::MemoryStore;

    #[test]
    fn tidying_removes_keys_of_past_generations_and_keeps_all_other_keys() {
        let store = MemoryStore::new();
        let keys = [
            ("hello/1.2", true),
            ("hello/1.3", false),
            ("rank/1.2", true),
            ("welcome/0.1/1.2", true),
            ("welcome/1.2/0.1", true),
            ("welcome/0.1/1.3", false),
            ("reunite/0.1/1.2", true),
            ("reunite/1.2/0.1", true),
            ("reunite/0.1/1.3", false),
            ("reunite/1.3/0.1", false),
            ("failed/1.2-00c0ffee", true),
            ("failed/1.3-00c0ffee", false),
            ("failed/0.1-12", false),
            ("failed/2", true),
            ("failed/2-00c0ffee", true),
            ("failed/1", false),
            ("recover/0.1-1.2/1/0", true),
            ("recover/0.1-1.3/1/0", false),
            ("promise/4/0.1", true),
            ("promise/5/1.2", true),
            ("promise/6/0.1", false),
            ("promise/garbage/0.1", false),
            ("leaves/1.2", true),
            ("leaves/1.3/x", true),
        ];
        for (key, _) in keys {
            store.put(key, b"told").unwrap();
        }
        for _ in 0..2 {
            let mut sweep = Sweep::of_team();
            sweep.add_proposals("promise".to_owned(), 5);
            sweep.add_key("leaves/1.2".to_owned());
            let mut more = Sweep::default();
            more.add_below("leaves/1.3".to_owned());
            sweep.add_all(more);
            while !sweep.is_done() {
                let over = [(1, 2), (2, 1)];
                sweep
                    .step(&store, &|rank, generation| {
                        over.contains(&(rank, generation))
                    })
                    .unwrap();
            }
            for (key, goes) in keys {
                assert_eq!(store.try_get(key).unwrap().is_none(), goes, "{key}");
            }
        }
    }

    #[test]
    fn what_is_below_a_key_goes_and_nothing_else_does() {
        let store = MemoryStore::new();
        for key in ["a/1", "a/1/x", "a/2/y/z", "ab/1", "b"] {
            store.put(key, b"").unwrap();
        }
        store.remove_below("a").unwrap();
        assert_eq!(store.list("a").unwrap(), Vec::<String>::new());
        assert!(store.try_get("ab/1").unwrap().is_some());
        assert!(store.try_get("b").unwrap().is_some());
        store.remove_below("nothing").unwrap();
    }
}
