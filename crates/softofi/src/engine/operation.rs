//! An operation, and how it is cut into parts.

use std::sync::Arc;

use fastrand::Rng;

use super::address::Address;
use super::frame::MOST_BYTES;
use crate::objects::{InUse, Registration};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

/// When an initiator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// All bytes were taken.
    Inject,
    /// All parts have reached the target, where they may still wait.
    Transmit,
    /// All parts have landed.
    Delivery,
}

/// How and whether an initiator is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) level: Level,
    /// Errors are told of in any case.
    pub(crate) wanted: bool,
}

/// A range of the initiator's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}

/// A range of the target's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FarSpan {
    pub(crate) address: u64,
    pub(crate) key: u64,
    pub(crate) bytes: usize,
}

/// What a program posts, after it was checked.
pub(crate) struct Order {
    pub(crate) kind: Kind,
    pub(crate) peer: Address,
    pub(crate) near: Vec<Span>,
    pub(crate) far: Vec<FarSpan>,
    /// Bytes that were taken at once: `near` is in here.
    pub(crate) _own: Option<Box<[u8]>>,
    pub(crate) registrations: Vec<Arc<Registration>>,
    pub(crate) context: usize,
    /// Whether the library may use the context.
    pub(crate) marks: bool,
    pub(crate) told: Told,
    pub(crate) data: Option<u32>,
}

impl Order {
    pub(crate) fn bytes(&self) -> usize {
        self.far.iter().map(|span| span.bytes).sum()
    }
}

/// What travels by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) near: usize,
    pub(crate) bytes: usize,
    pub(crate) address: u64,
    pub(crate) key: u64,
}

/// What goes wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Early,
    Lost,
    Double,
}

/// An operation under way.
pub(crate) struct Operation {
    pub(crate) order: Order,
    pub(crate) parts: Vec<Part>,
    pub(crate) fault: Fault,
    /// With the fault `Early`: the part that waits for the completion.
    pub(crate) withheld: Option<u32>,
    pub(crate) sent: usize,
    pub(crate) arrived: usize,
    pub(crate) landed: usize,
    pub(crate) is_told: bool,
    /// Its peer is gone, and nobody will tell of it.
    pub(crate) is_silent: bool,
    /// Registrations that may not be closed until it is told.
    pub(crate) in_use: Vec<InUse>,
}

impl Operation {
    pub(crate) fn new(order: Order, parts: Vec<Part>, fault: Fault) -> Self {
        let in_use = order.registrations.iter().cloned().map(InUse::new);
        Self {
            in_use: in_use.collect(),
            order,
            parts,
            fault,
            withheld: None,
            sent: 0,
            arrived: 0,
            landed: 0,
            is_told: false,
            is_silent: false,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.landed == self.parts.len()
    }

    /// Whether its initiator is to be told now.
    pub(crate) fn is_due(&self) -> bool {
        let count = match (self.order.kind, self.order.told.level) {
            (Kind::Read, _) | (Kind::Write, Level::Delivery) => self.landed,
            (Kind::Write, Level::Transmit) => self.arrived,
            (Kind::Write, Level::Inject) => self.sent,
        };
        let withheld = usize::from(self.withheld.is_some());
        !self.is_told && count + withheld == self.parts.len()
    }
}

/// Cuts an operation at the borders of its ranges and at random places.
pub(crate) fn cut(order: &Order, most: u32, dice: &mut Rng) -> Vec<Part> {
    let total = order.bytes();
    if total == 0 {
        let far = order.far.first();
        return vec![Part {
            near: 0,
            bytes: 0,
            address: far.map_or(0, |span| span.address),
            key: far.map_or(0, |span| span.key),
        }];
    }
    let mut cuts = vec![0, total];
    cuts.extend(ends(order.near.iter().map(|span| span.bytes)));
    cuts.extend(ends(order.far.iter().map(|span| span.bytes)));
    for _ in 1..dice.u32(1..=most.max(1)) {
        cuts.push(dice.usize(..=total));
    }
    cuts.sort_unstable();
    cuts.dedup();
    let mut parts = Vec::new();
    for range in cuts.windows(2) {
        let mut start = range[0];
        while start < range[1] {
            let bytes = (range[1] - start).min(MOST_BYTES);
            parts.extend(part(order, start, bytes));
            start += bytes;
        }
    }
    parts
}

fn ends(lengths: impl Iterator<Item = usize>) -> impl Iterator<Item = usize> {
    lengths.scan(0, |end, bytes| {
        *end += bytes;
        Some(*end)
    })
}

/// The part that begins `start` bytes into the operation, and crosses no border.
fn part(order: &Order, start: usize, bytes: usize) -> Option<Part> {
    let mut skip = start;
    let near = order.near.iter().find_map(|span| {
        let inside = (skip < span.bytes).then_some(span.address + skip);
        skip = skip.saturating_sub(span.bytes);
        inside
    })?;
    let mut skip = start;
    let far = order.far.iter().find_map(|span| {
        let inside = (skip < span.bytes).then(|| FarSpan {
            address: span.address.wrapping_add(skip as u64),
            ..*span
        });
        skip = skip.saturating_sub(span.bytes);
        inside
    })?;
    Some(Part {
        near,
        bytes,
        address: far.address,
        key: far.key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(near: &[usize], far: &[usize]) -> Order {
        let near = near.iter().enumerate().map(|(at, &bytes)| Span {
            address: (at + 1) << 24,
            bytes,
        });
        let far = far.iter().enumerate().map(|(at, &bytes)| FarSpan {
            address: (at as u64 + 1) << 40,
            key: at as u64,
            bytes,
        });
        Order {
            kind: Kind::Write,
            peer: Address::new(1),
            near: near.collect(),
            far: far.collect(),
            _own: None,
            registrations: Vec::new(),
            context: 0,
            marks: false,
            told: Told {
                level: Level::Delivery,
                wanted: true,
            },
            data: None,
        }
    }

    #[test]
    fn parts_cover_each_byte_once_and_stay_inside_the_ranges() {
        let seed = fastrand::u64(..);
        let mut dice = Rng::with_seed(seed);
        for _ in 0..300 {
            let near: Vec<usize> = (0..dice.usize(1..5))
                .map(|_| dice.usize(1..200_000))
                .collect();
            let total: usize = near.iter().sum();
            let first = dice.usize(0..=total);
            let order = order(&near, &[first, total - first]);
            let parts = cut(&order, 4, &mut dice);
            assert_eq!(
                parts.iter().map(|part| part.bytes).sum::<usize>(),
                total,
                "seed {seed}"
            );
            let mut done = 0;
            for part in &parts {
                assert!(part.bytes > 0 && part.bytes <= MOST_BYTES, "seed {seed}");
                let near = order.near.iter().find(|span| {
                    (span.address..=span.address + span.bytes - part.bytes).contains(&part.near)
                });
                assert!(near.is_some(), "seed {seed}: {part:?}");
                let expected = if done < first { 1 << 40 } else { 2 << 40 };
                assert_eq!(part.address & !0xff_ffff_ffff, expected, "seed {seed}");
                done += part.bytes;
            }
        }
    }

    #[test]
    fn an_operation_of_no_bytes_is_one_part() {
        let parts = cut(&order(&[], &[0]), 4, &mut Rng::with_seed(1));
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].bytes, parts[0].address), (0, 1 << 40));
    }
}
