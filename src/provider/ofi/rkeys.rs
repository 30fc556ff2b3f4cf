//! The numbers by which peers name memory of a domain: chosen by this engine, which gives none twice, or by the provider.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::OfiError;
use super::lives::Lives;

/// All numbers of one domain.
#[derive(Debug)]
pub(super) struct RemoteKeys {
    /// Name of the domain.
    domain: String,
    /// True if the provider chooses.
    chooses: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number that was given last. 0 is none.
    given: u32,
    lives: Lives,
}

/// A connection, to which numbers are known. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Knower {
    keys: Arc<RemoteKeys>,
    name: u64,
}

impl RemoteKeys {
    pub(super) fn new(domain: &str, chooses: bool) -> Self {
        Self {
            domain: domain.to_owned(),
            chooses,
            state: Mutex::default(),
        }
    }

    /// Returns the number to ask the provider for. It takes no notice of it if it chooses itself.
    pub(super) fn next(&self) -> Result<u64, OfiError> {
        if self.chooses {
            return Ok(0);
        }
        let mut state = self.state();
        let used_up = || OfiError::KeysUsedUp {
            domain: self.domain.clone(),
        };
        state.given = state.given.checked_add(1).ok_or_else(used_up)?;
        Ok(state.given.into())
    }

    /// Returns the number of a key that was made. None: a peer may know it of earlier memory.
    pub(super) fn take(&self, key: u64) -> Result<Option<u32>, OfiError> {
        let number = u32::try_from(key).map_err(|_| OfiError::WideKey {
            domain: self.domain.clone(),
            key,
        })?;
        let is_known = self.chooses && self.state().lives.knows(number);
        Ok((!is_known).then_some(number))
    }

    /// Returns whether a peer may know the number of earlier memory.
    pub(super) fn knows(&self, number: u32) -> bool {
        self.state().lives.knows(number)
    }

    /// Notes that a key is dead.
    pub(super) fn die(&self, number: u32) {
        if self.chooses {
            self.state().lives.die(number);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Knower {
    /// Begins a connection, which may know all numbers of its time.
    pub(super) fn new(keys: &Arc<RemoteKeys>) -> Self {
        Self {
            name: keys.state().lives.begin(),
            keys: Arc::clone(keys),
        }
    }
}

impl Drop for Knower {
    fn drop(&mut self) {
        self.keys.state().lives.end(self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_numbers_are_never_given_twice_and_end() {
        let keys = RemoteKeys::new("d", false);
        assert_eq!([keys.next(), keys.next()], [Ok(1), Ok(2)]);
        keys.die(1);
        assert_eq!(keys.next(), Ok(3));
        keys.state().given = u32::MAX - 1;
        assert_eq!(keys.next(), Ok(u32::MAX.into()));
        for _ in 0..2 {
            let refused = keys.next().unwrap_err().to_string();
            assert!(refused.contains("all 4294967295 keys of d"), "{refused}");
        }
    }

    #[test]
    fn a_number_of_the_provider_is_not_taken_while_a_connection_knows_it() {
        let keys = Arc::new(RemoteKeys::new("d", true));
        assert_eq!((keys.next(), keys.next()), (Ok(0), Ok(0)));
        let knower = Knower::new(&keys);
        assert_eq!(keys.take(7), Ok(Some(7)));
        keys.die(7);
        assert_eq!((keys.take(7), keys.take(8)), (Ok(None), Ok(Some(8))));
        drop(knower);
        assert_eq!(keys.take(7), Ok(Some(7)));
    }

    #[test]
    fn a_number_above_32_bits_is_refused_with_the_limit() {
        for chooses in [false, true] {
            let keys = RemoteKeys::new("d", chooses);
            let refused = keys.take(1 << 32).unwrap_err().to_string();
            let text = "d has made key 0x100000000; keys must be at most 0xffffffff";
            assert_eq!(refused, text);
            assert_eq!(keys.take(u32::MAX.into()), Ok(Some(u32::MAX)));
        }
    }
}
