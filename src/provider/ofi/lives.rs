//! When a number that peers know may be used again: when all connections have ended that lived when the number died.

use std::collections::{BTreeSet, HashMap};

/// The connections that live, by the order in which they began, and the numbers that one of them may know.
#[derive(Debug, Default)]
pub(super) struct Lives {
    next: u64,
    alive: BTreeSet<u64>,
    /// The numbers that are dead, each with the first connection that began after its death.
    dead: HashMap<u32, u64>,
}

impl Lives {
    /// Notes that a connection begins. Returns its name.
    pub(super) fn begin(&mut self) -> u64 {
        let name = self.next;
        self.next += 1;
        self.alive.insert(name);
        name
    }

    /// Notes that a connection has ended, and forgets the numbers that no other one can know.
    pub(super) fn end(&mut self, name: u64) {
        self.alive.remove(&name);
        let oldest = self.alive.first().copied();
        self.dead
            .retain(|_, born| oldest.is_some_and(|oldest| oldest < *born));
    }

    /// Notes that a number is dead, which any connection may know that lives now.
    pub(super) fn die(&mut self, number: u32) {
        if !self.alive.is_empty() {
            self.dead.insert(number, self.next);
        }
    }

    /// Returns whether a connection that lives may know the number from an earlier life.
    pub(super) fn knows(&self, number: u32) -> bool {
        self.dead.contains_key(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_known_until_all_connections_of_its_life_have_ended() {
        let mut lives = Lives::default();
        lives.die(1);
        assert!(!lives.knows(1), "no connection has known it");
        let [first, second] = [lives.begin(), lives.begin()];
        lives.die(2);
        let third = lives.begin();
        lives.die(3);
        lives.end(second);
        assert!(lives.knows(2) && lives.knows(3));
        lives.end(first);
        assert!(!lives.knows(2) && lives.knows(3));
        lives.end(third);
        assert!(!lives.knows(3));
        lives.end(third);
    }
}
