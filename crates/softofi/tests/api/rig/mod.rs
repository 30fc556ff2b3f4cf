//! Fabrics, ends and memory of tests, over any library.

mod end;
mod fabric;
mod memory;

pub(crate) use end::{Done, End, Remote, Seen, Work};
pub(crate) use fabric::{Fabric, Kind, softofi, watch};
pub(crate) use memory::Memory;

use std::time::{Duration, Instant};

/// Looks until there is what is looked for. Panics when that takes too long.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            start.elapsed() < test_basics::limits::HANG,
            "not in time: {what}"
        );
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Random bytes, never zero, so that memory of zeros is none of them.
pub(crate) fn bytes(dice: &mut fastrand::Rng, count: usize) -> Vec<u8> {
    (0..count).map(|_| dice.u8(1..)).collect()
}

/// Two ends that know each other, with memory on both sides, as most tests have them.
pub(crate) struct Pair<'a> {
    pub(crate) here: End<'a>,
    pub(crate) there: End<'a>,
    pub(crate) near: Memory<'a>,
    pub(crate) far: Memory<'a>,
    /// Of the other end, here.
    pub(crate) peer: u64,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(fabric: &'a Fabric, bytes: usize) -> Self {
        Self::of(End::new(fabric), End::new(fabric), bytes)
    }

    pub(crate) fn of(here: End<'a>, there: End<'a>, bytes: usize) -> Self {
        let fabric = here.fabric();
        Self {
            peer: here.meet(&there),
            near: Memory::new(fabric, bytes),
            far: Memory::new(fabric, bytes),
            here,
            there,
        }
    }

    /// All of the memory here to the memory there.
    pub(crate) fn work(&self, bytes: usize) -> Work<'_> {
        Work {
            memory: &self.near,
            offset: 0,
            bytes,
            peer: self.peer,
            remote: self.far.remote(0),
            data: None,
        }
    }

    pub(crate) fn seen(&self) -> Seen<'_, 'a> {
        Seen::new(&[&self.here, &self.there])
    }
}

/// Whether a rule was reported with these words, by whichever test.
pub(crate) fn was_reported(rule: softofi::Rule, words: &str) -> bool {
    let start = format!("{}:", rule.name());
    let rules = watch().rules();
    rules
        .iter()
        .any(|line| line.starts_with(&start) && line.contains(words))
}
