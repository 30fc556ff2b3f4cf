//! Decides which members the group expels for want of contact: only members that the larger side does not reach.
//!
//! The members are a graph. It has an edge between two members whose rows both say that they meet. The largest component stays if it has
//! two ranks or more; of several largest ones, the one with the lowest slot. A rank outside goes when its pair with every rank of that
//! component is overdue. Each row is read a few times, as words of 64 slots: linear in N²/64.

use std::collections::BTreeMap;

use crate::look::Row;
use crate::rulebook::{End, Rulebook};
use crate::slots::Slots;

/// Returns the ranks of `living` that are expelled. `rows`: the rows of members that hold a lease.
pub fn choice(book: &impl Rulebook, living: &Slots, rows: &BTreeMap<u32, Row>) -> Slots {
    // In peace no row calls a member overdue.
    if rows.values().all(|row| row.overdue.is_empty()) {
        return Slots::default();
    }
    let empty = Row::default();
    let row = |slot: u32| rows.get(&slot).unwrap_or(&empty);
    let mut left = living.clone();
    let mut best = Slots::default();
    while let Some(first) = left.first() {
        let component = component(book, first, &left, &row);
        left.take_away(&component);
        if component.len() > best.len() {
            best = component;
        }
    }
    if best.len() < book.smallest_side() {
        return Slots::default();
    }
    // A rank that a rank of the component meets stays. A rank that all ranks of the component call overdue may go.
    let mut met = Slots::default();
    let mut by_all = living.clone();
    for inside in best.iter() {
        met.add(&row(inside).meets);
        by_all.retain(&row(inside).overdue);
    }
    let goes = |outside: &u32| {
        let own = row(*outside);
        !met.contains(*outside)
            && own.meets.and(&best).is_empty()
            && (by_all.contains(*outside)
                || best
                    .without(&own.overdue)
                    .iter()
                    .all(|inside| row(inside).overdue.contains(*outside)))
    };
    book.expels(living.without(&best).iter().filter(goes).collect())
}

/// Returns the ranks of `left` that edges connect with `first`, directly or through others.
fn component<'a>(
    book: &impl Rulebook,
    first: u32,
    left: &Slots,
    row: &impl Fn(u32) -> &'a Row,
) -> Slots {
    let end = |slot: u32| End {
        slot,
        row: row(slot),
    };
    let mut left = left.clone();
    let mut all = Slots::default();
    let mut todo = vec![first];
    left.remove(first);
    while let Some(next) = todo.pop() {
        all.insert(next);
        for slot in book.near(&left, row(next)).iter() {
            if book.is_edge(end(next), end(slot)) {
                left.remove(slot);
                todo.push(slot);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn set(slots: &[u32]) -> Slots {
        slots.iter().copied().collect()
    }

    /// Returns the rows of `ranks`: a rank meets those for which `meets` holds, and has the others overdue.
    fn rows(ranks: u32, meets: impl Fn(u32, u32) -> bool) -> BTreeMap<u32, Row> {
        let row = |slot| {
            let (near, far): (Vec<u32>, Vec<u32>) = (0..ranks)
                .filter(|other| *other != slot)
                .partition(|other| meets(slot, *other));
            Row {
                meets: set(&near),
                overdue: set(&far),
                ..Row::default()
            }
        };
        (0..ranks).map(|slot| (slot, row(slot))).collect()
    }

    #[test]
    fn one_link_drops_no_rank_and_the_smaller_side_goes() {
        let goes = |ranks, meets: fn(u32, u32) -> bool| {
            choice(&(), &(0..ranks).collect(), &rows(ranks, meets))
        };
        assert_eq!(goes(3, |a, b| a + b != 1), set(&[]));
        assert_eq!(goes(3, |a, b| a != 2 && b != 2), set(&[2]));
        assert_eq!(goes(5, |a, b| (a < 2) == (b < 2)), set(&[0, 1]));
        assert_eq!(goes(4, |a, b| (a < 2) == (b < 2)), set(&[2, 3]));
        // No rank meets another: all ports are down, or the group has two ranks.
        assert_eq!(goes(4, |_, _| false), set(&[]));
        assert_eq!(goes(2, |_, _| false), set(&[]));
    }

    #[test]
    fn a_pair_that_one_end_has_just_met_is_not_overdue() {
        let mut rows = rows(3, |a, b| a != 2 && b != 2);
        rows.get_mut(&2).unwrap().meets.insert(0);
        assert!(choice(&(), &set(&[0, 1, 2]), &rows).is_empty());
        // If a rank has no row, the rows of the others decide.
        rows.remove(&2);
        assert_eq!(choice(&(), &set(&[0, 1, 2]), &rows), set(&[2]));
        // They decide only if all of them call the rank overdue.
        rows.get_mut(&1).unwrap().overdue = Slots::default();
        assert!(choice(&(), &set(&[0, 1, 2]), &rows).is_empty());
    }

    #[test]
    fn choice_of_4096_in_two_halves() {
        let side = |even: u32| (0..4096).filter(move |slot| slot % 2 == even);
        let sides: [Slots; 2] = [side(0).collect(), side(1).collect()];
        let row = |slot: u32| {
            let mut meets = sides[slot as usize % 2].clone();
            meets.remove(slot);
            let overdue = sides[(slot as usize + 1) % 2].clone();
            Row {
                meets,
                overdue,
                ..Row::default()
            }
        };
        let rows: BTreeMap<u32, Row> = (0..4096).map(|slot| (slot, row(slot))).collect();
        let all: Slots = (0..4096).collect();
        let start = Instant::now();
        let goes = choice(&(), &all, &rows);
        eprintln!("4,096 in two halves: {:.2?}", start.elapsed());
        assert_eq!(goes, sides[1]);
    }
}
