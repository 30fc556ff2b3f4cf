//! The numbers by which lanes of a rail name registered memory, and what the provider wants to be given for it.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::provider::AnyMemory;

/// What an operation gives the provider for its own memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Desc(pub(super) usize);

impl Desc {
    /// Returns it as calls take it.
    pub(super) fn as_ptr(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

/// A memory that is registered.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) desc: Desc,
    pub(super) memory: AnyMemory,
}

/// The registered memory of one rail, by number. No number is given twice.
#[derive(Debug, Default)]
pub(super) struct LocalKeys(RwLock<State>);

#[derive(Debug, Default)]
pub(super) struct State {
    named: HashMap<u32, Named>,
    /// The number that was given last. 0 is none.
    given: u32,
}

impl State {
    /// Returns what the provider wants to be given for this number. None: no memory has it.
    pub(super) fn desc(&self, lkey: u32) -> Option<Desc> {
        self.named.get(&lkey).map(|named| named.desc)
    }
}

impl LocalKeys {
    /// Gives a memory a number. None: all numbers were given.
    pub(super) fn add(&self, named: Named) -> Option<u32> {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.given = state.given.checked_add(1)?;
        let lkey = state.given;
        state.named.insert(lkey, named);
        Some(lkey)
    }

    /// Takes the number of a memory away. No operation names it any more.
    pub(super) fn remove(&self, lkey: u32) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.named.remove(&lkey);
    }

    /// Returns the memory with this number.
    pub(super) fn memory(&self, lkey: u32) -> Option<AnyMemory> {
        self.read()
            .named
            .get(&lkey)
            .map(|named| named.memory.clone())
    }

    /// Returns all numbers. None is added or taken away while the caller holds this.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}
