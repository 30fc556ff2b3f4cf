//! Records of generations that are over: nobody reads them any more, and without removing them a store would grow with every
//! replacement.

use rendezvous::{Store, StoreError};

use super::{Team, hello};

impl Team {
    /// Removes what generations that are over, by rank and number, have told, and what others have told them. May be called
    /// by any rank, by several at once, and again after an error.
    pub(crate) fn forget(&self, is_over: &dyn Fn(u32, u32) -> bool) -> Result<(), StoreError> {
        forget(self.exchange.store().as_ref(), is_over)
    }
}

fn forget(store: &dyn Store, is_over: &dyn Fn(u32, u32) -> bool) -> Result<(), StoreError> {
    let over =
        |name: &str| hello::rank_generation(name).is_some_and(|(rank, of)| is_over(rank, of));
    for kind in ["welcome", "reunite"] {
        for from in store.list(kind)? {
            let all = over(&from);
            let key = format!("{kind}/{from}");
            for to in store.list(&key)? {
                if all || over(&to) {
                    store.remove(&format!("{key}/{to}"))?;
                }
            }
        }
    }
    for pair in store.list("recover")? {
        if pair.split('-').any(over) {
            store.remove_below(&format!("recover/{pair}"))?;
        }
    }
    // `failed/R.G-id`: a later holder of the slot has not failed.
    for name in store.list("failed")? {
        if name.split('-').next().is_some_and(over) {
            store.remove(&format!("failed/{name}"))?;
        }
    }
    for kind in ["rank", "hello"] {
        for name in store.list(kind)? {
            if over(&name) {
                store.remove(&format!("{kind}/{name}"))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::MemoryStore;

    #[test]
    fn what_generations_that_are_over_told_and_were_told_goes_and_the_rest_stays() {
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
            ("failed/1", false),
            ("recover/0.1-1.2/1/reset/0", true),
            ("recover/0.1-1.3/1/reset/0", false),
        ];
        for (key, _) in keys {
            store.put(key, b"told").unwrap();
        }
        for _ in 0..2 {
            forget(&store, &|rank, generation| (rank, generation) == (1, 2)).unwrap();
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
