//! Which entry of a table of an executor each object has.

use crate::device::DeviceError;
use bytemuck::Zeroable;
use std::collections::{BTreeMap, BTreeSet};

/// The number of an HCA, and the number of one of its objects.
pub(super) type Name = (usize, u32);

/// The entries of one table, by object. The lowest free entry is taken first, so that an executor looks at few entries.
#[derive(Debug)]
pub(super) struct Places<T> {
    what: &'static str,
    limit: u32,
    of: BTreeMap<Name, u32>,
    free: BTreeSet<u32>,
    entries: Vec<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    /// The entry as it was last written.
    written: T,
    /// The life that the entry is in. What an executor keeps of an earlier life does not count any more.
    life: u64,
}

impl<T: Zeroable + Copy> Places<T> {
    /// Returns a table of at most `limit` entries, all free. `what` names an entry in errors.
    pub(super) fn new(what: &'static str, limit: u32) -> Self {
        Self {
            what,
            limit,
            of: BTreeMap::new(),
            free: BTreeSet::new(),
            entries: Vec::new(),
        }
    }

    pub(super) fn get(&self, name: Name) -> Option<u32> {
        self.of.get(&name).copied()
    }

    /// Returns the entry of object `name`. If the object has none, it gets one, and the entry begins a new life.
    ///
    /// # Errors
    ///
    /// The table is full.
    pub(super) fn take(&mut self, name: Name) -> Result<u32, DeviceError> {
        if let Some(place) = self.get(name) {
            return Ok(place);
        }
        let place = match self.free.pop_first() {
            Some(place) => place,
            None => {
                let next = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
                if next >= self.limit {
                    let limit = self.limit as usize;
                    let what = self.what;
                    return Err(DeviceError::Full { what, limit });
                }
                self.entries.push(Entry {
                    written: T::zeroed(),
                    life: 0,
                });
                next
            }
        };
        self.of.insert(name, place);
        self.begin_life(place);
        Ok(place)
    }

    /// Returns the objects of an HCA that have entries, each with its entry.
    pub(super) fn of_hca(&self, hca: usize) -> Vec<(u32, u32)> {
        let all = self.of.range((hca, 0)..=(hca, u32::MAX));
        all.map(|(&(_, number), &place)| (number, place)).collect()
    }

    /// Returns all objects that have entries, each with its entry.
    pub(super) fn all(&self) -> impl Iterator<Item = (Name, u32)> {
        self.of.iter().map(|(name, place)| (*name, *place))
    }

    /// Frees the entry of object `name`.
    pub(super) fn leave(&mut self, name: Name) {
        if let Some(place) = self.of.remove(&name) {
            self.free.insert(place);
        }
    }

    /// Returns the number of entries from the first to the last that was ever taken.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns entry `place` as it was last written.
    pub(super) fn written(&self, place: u32) -> &T {
        &self.entries[place as usize].written
    }

    pub(super) fn written_mut(&mut self, place: u32) -> &mut T {
        &mut self.entries[place as usize].written
    }

    pub(super) fn life(&self, place: u32) -> u64 {
        self.entries[place as usize].life
    }

    pub(super) fn begin_life(&mut self, place: u32) {
        self.entries[place as usize].life += 1;
    }
}
