//! A table of numbered objects: a slab whose numbers start at a base. A freed number is used again late.
//!
//! A number is not given out again before all other free numbers of the table have been. So a stale number (of a doorbell, a packet, a key)
//! names no object rather than a wrong one. An object that has ended leaves only an empty pointer: the table of a program that makes and
//! ends objects for hours stays small.

/// Objects by number.
#[derive(Debug)]
pub(crate) struct Table<T> {
    base: u32,
    limit: usize,
    slots: Vec<Option<Box<T>>>,
    /// The slot at which the search for a free slot begins.
    next: usize,
    live: usize,
}

impl<T> Table<T> {
    /// Returns an empty table with the numbers `base..base + limit`.
    pub(crate) fn new(base: u32, limit: usize) -> Self {
        Self {
            base,
            limit,
            slots: Vec::new(),
            next: 0,
            live: 0,
        }
    }

    /// Puts an object into the table. Returns its number, or `None` if the table is full.
    pub(crate) fn insert(&mut self, object: T) -> Option<u32> {
        if self.live == self.limit {
            return None;
        }
        let mut slot = self.next;
        loop {
            if slot == self.limit {
                slot = 0;
            }
            if slot == self.slots.len() {
                self.slots.push(None);
            }
            if self.slots[slot].is_none() {
                break;
            }
            slot += 1;
        }
        self.slots[slot] = Some(Box::new(object));
        self.next = slot + 1;
        self.live += 1;
        u32::try_from(slot).ok().map(|slot| self.base + slot)
    }

    fn slot(&self, number: u32) -> usize {
        // A number below the base wraps to a slot beyond the end.
        number.wrapping_sub(self.base) as usize
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(self.slot(number))?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let slot = self.slot(number);
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let slot = self.slot(number);
        let object = self.slots.get_mut(slot)?.take()?;
        self.live -= 1;
        Some(*object)
    }

    /// Returns the first number of the table.
    pub(crate) fn base(&self) -> u32 {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots
            .iter()
            .zip(self.base..)
            .filter_map(|(object, number)| Some((number, object.as_deref()?)))
    }

    /// Calls `found` with the numbers of the objects in the `slots` slots from `first`. Returns the slot to go on from. After the last slot
    /// it begins anew.
    pub(crate) fn slice(&self, first: usize, slots: usize, mut found: impl FnMut(u32)) -> usize {
        let first = if first < self.slots.len() { first } else { 0 };
        let numbers = (self.base..).skip(first);
        for (object, number) in self.slots[first..].iter().zip(numbers).take(slots) {
            if object.is_some() {
                found(number);
            }
        }
        first + slots
    }

    /// Returns the numbers of the objects for which `wanted` returns true.
    pub(crate) fn numbers(&self, wanted: impl Fn(&T) -> bool) -> Vec<u32> {
        self.iter()
            .filter(|(_, object)| wanted(object))
            .map(|(number, _)| number)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn slices_come_round_to_every_object() {
        let mut table = Table::new(0x40, 100);
        let numbers: Vec<u32> = (0..10).map(|n| table.insert(n).unwrap()).collect();
        table.remove(numbers[3]);
        let (mut next, mut found) = (0, vec![]);
        for _ in 0..6 {
            next = table.slice(next, 4, |number| found.push(number - 0x40));
        }
        let round = [0, 1, 2, 4, 5, 6, 7, 8, 9];
        assert_eq!(found, [round, round].concat());
        assert_eq!(Table::<()>::new(1, 4).slice(7, 4, |_| unreachable!()), 4);
    }

    #[test]
    fn a_number_comes_back_only_after_all_others() {
        let mut table = Table::new(0x40, 4);
        let first = table.insert('a').unwrap();
        assert_eq!(first, 0x40);
        table.remove(first);
        let later: Vec<u32> = (0..4).map(|_| table.insert('b').unwrap()).collect();
        assert_eq!(later, [0x41, 0x42, 0x43, 0x40]);
        assert_eq!(table.insert('c'), None);
    }

    #[test]
    fn numbers_outside_the_table_are_no_objects() {
        let mut table = Table::new(0x40, 4);
        table.insert(());
        for number in [0, 0x3f, 0x41, 0x44, u32::MAX] {
            assert!(table.get(number).is_none(), "{number:#x}");
            assert!(table.remove(number).is_none(), "{number:#x}");
        }
    }

    #[test]
    fn random_use_agrees_with_a_map() {
        let seed = 0x7ab1e;
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut table = Table::new(7, 32);
        let mut oracle = BTreeMap::new();
        for step in 0..5_000u32 {
            if rng.bool() {
                let number = table.insert(step);
                assert_eq!(
                    number.is_none(),
                    oracle.len() == 32,
                    "seed {seed:#x} step {step}"
                );
                if let Some(number) = number {
                    assert_eq!(
                        oracle.insert(number, step),
                        None,
                        "seed {seed:#x} step {step}"
                    );
                }
            } else {
                let number = rng.u32(0..48);
                assert_eq!(
                    table.remove(number),
                    oracle.remove(&number),
                    "seed {seed:#x} step {step}"
                );
            }
            assert_eq!(table.len(), oracle.len());
        }
        assert!(table.iter().map(|(n, v)| (n, *v)).eq(oracle));
    }
}
