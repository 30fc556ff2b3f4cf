//! Founders that meet in every order of their steps. Preparations fail, waits end, and stores are lost in the middle of a call. The
//! founders begin by [`Tries::begin`] itself; the model holds the record and the words. States are kept whole, because they are
//! few.

use std::collections::{HashSet, VecDeque};

use super::{Begin, Tries};

const RANKS: usize = 3;

/// A rule of meetings that a search leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spared {
    Nothing,
    /// The record is set by compare-and-set.
    Compare,
    /// A founder sets nothing where it has read that the try has ended.
    Final,
    /// A founder that hears of a failure takes part in the next try.
    Heard,
    /// A try in which a founder has lost its store is ended before it takes part again.
    Ended,
    /// If another founder has set the record to made, a founder whose wait ends has met, too.
    Met,
}

/// The record: the newest try that has ended, and whether it was made. None: no try has ended.
type Record = Option<(u32, bool)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Idle,
    /// The founder has prepared for this try, and has read this of the record.
    Waits(u32, Record),
    /// The founder sets the record if it still is what the founder has read: to made with the words that it has read, or to failed.
    Sets(u32, Record, Option<[u8; RANKS]>),
    /// The try was made, with these words of all.
    Made(u32, [u8; RANKS]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Founder {
    tries: Tries,
    at: At,
    /// How often the founder has prepared. It brings another thing each time.
    prepared: u8,
    /// The newest try that the founder has reported as failed; 0: none.
    reported: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    founders: [Founder; RANKS],
    record: Record,
    /// The word of each founder: its try and its thing.
    words: [Option<(u32, u8)>; RANKS],
    /// How many preparations may still fail, waits may still end, and stores may still be lost.
    left: [u8; 3],
}

impl World {
    fn new() -> Self {
        let founder = Founder {
            tries: Tries::default(),
            at: At::Idle,
            prepared: 0,
            reported: 0,
        };
        Self {
            founders: [founder; RANKS],
            record: None,
            words: [None; RANKS],
            left: [1, 1, 1],
        }
    }

    /// Sets the record if it is `read`. Returns the record if it is of this try or a later one.
    fn set(&mut self, number: u32, read: Record, made: bool, spared: Spared) -> Record {
        let has_ended = read.is_some_and(|(ended, _)| ended >= number) && spared != Spared::Final;
        if !has_ended && self.record == read || spared == Spared::Compare {
            self.record = Some((number, made));
        }
        self.record.filter(|(ended, _)| *ended >= number)
    }

    fn things(&self) -> [u8; RANKS] {
        self.words.map(|word| word.map_or(0, |word| word.1))
    }

    /// Lets a founder that has read these words hear how its try has ended.
    fn hears(&mut self, of: usize, ended: u32, made: bool, number: u32, words: [u8; RANKS]) {
        let founder = &mut self.founders[of];
        founder.tries.heard = ended;
        founder.at = At::Idle;
        if made && ended == number {
            founder.at = At::Made(number, words);
        } else {
            founder.reported = founder.reported.max(number);
            self.words[of] = None;
        }
    }

    /// Returns every state that one step of this founder leads to.
    fn steps(&self, of: usize, spared: Spared) -> Vec<Self> {
        let mut next = Vec::new();
        let founder = self.founders[of];
        match founder.at {
            At::Idle => next.extend(self.begins(of, spared)),
            At::Waits(number, read) => {
                let there = self
                    .words
                    .iter()
                    .all(|word| word.is_some_and(|word| word.0 == number));
                if there {
                    let mut world = *self;
                    world.founders[of].at = At::Sets(number, read, Some(self.things()));
                    next.push(world);
                }
                match self.record {
                    Some((ended, made)) if ended >= number && (!made || there) => {
                        let mut world = *self;
                        world.hears(of, ended, made, number, self.things());
                        next.push(world);
                    }
                    _ => {}
                }
                if self.record != read {
                    let mut world = *self;
                    world.founders[of].at = At::Waits(number, self.record);
                    next.push(world);
                }
                if self.left[1] > 0 {
                    let mut world = *self;
                    world.left[1] -= 1;
                    world.founders[of].at = At::Sets(number, read, None);
                    next.push(world);
                }
                next.extend(self.loses_its_store(of));
            }
            At::Sets(number, read, words) => {
                let (mut world, made) = (*self, words.is_some());
                let has_read = words.unwrap_or_else(|| self.things());
                match world.set(number, read, made, spared) {
                    Some((_, true)) if !made && spared == Spared::Met => {
                        world.hears(of, number, false, number, has_read);
                    }
                    Some((ended, made)) => world.hears(of, ended, made, number, has_read),
                    None => world.founders[of].at = At::Sets(number, self.record, words),
                }
                next.push(world);
                next.extend(self.loses_its_store(of));
            }
            At::Made(..) => {}
        }
        next
    }

    fn loses_its_store(&self, of: usize) -> Option<Self> {
        let mut world = *self;
        world.left[2] = self.left[2].checked_sub(1)?;
        world.founders[of].at = At::Idle;
        Some(world)
    }

    fn begins(&self, of: usize, spared: Spared) -> Vec<Self> {
        let founder = self.founders[of];
        let ended = self.record.map_or(0, |record| record.0);
        let mut tries = founder.tries;
        if spared == Spared::Ended {
            tries.begun = 0;
        }
        let mut world = *self;
        let number = match tries.begin(ended) {
            Begin::Report(number) => {
                if spared != Spared::Heard {
                    world.founders[of].tries.heard = number;
                }
                // If the try was made with what this founder let go when it lost its store, the founder reports that it is left
                // out.
                world.founders[of].reported = match self.record {
                    Some((_, true)) => u32::MAX,
                    _ => number,
                };
                return vec![world];
            }
            Begin::End(number) => {
                match world.set(number, self.record, false, spared) {
                    Some((ended, false)) => {
                        world.founders[of].tries.heard = ended;
                        world.words[of] = None;
                        return vec![world];
                    }
                    // The founder reports that it is left out.
                    Some(_) => world.founders[of].reported = u32::MAX,
                    None => {}
                }
                return vec![world];
            }
            Begin::Take(number) => number,
        };
        world.founders[of].tries.begun = number;
        world.founders[of].prepared += 1;
        world.founders[of].at = At::Waits(number, self.record);
        world.words[of] = Some((number, world.founders[of].prepared));
        let mut next = vec![world];
        if self.left[0] > 0 {
            let mut world = *self;
            world.left[0] -= 1;
            world.founders[of].at = At::Sets(number, self.record, None);
            next.push(world);
        }
        next
    }

    /// Checks what must hold in each state.
    fn check(&self) -> Result<(), &'static str> {
        for founder in &self.founders {
            let At::Made(number, words) = founder.at else {
                continue;
            };
            if self.record != Some((number, true)) {
                return Err("a try is made, and the record does not say so");
            }
            for (other, word) in self.founders.iter().zip(words) {
                if other.reported == number {
                    return Err("a try is made at one founder, and has failed at another");
                }
                let holds = matches!(other.at, At::Waits(of, _) | At::Sets(of, ..) | At::Made(of, _) if of == number);
                if holds && other.prepared != word {
                    return Err("a founder reads what another one has let go");
                }
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let is_made = |founder: &Founder| matches!(founder.at, At::Made(..));
        self.founders.iter().all(is_made)
    }

    /// Returns whether a founder has reported that it is left out: the team is over.
    fn is_given_up(&self) -> bool {
        self.founders
            .iter()
            .any(|founder| founder.reported == u32::MAX)
    }
}

/// Visits all states. Returns their number, or the property that is broken. From each state some order of steps must lead all
/// founders to what they make.
fn search(spared: Spared) -> Result<usize, &'static str> {
    let mut all = vec![World::new()];
    let mut known: std::collections::HashMap<World, usize> = [(all[0], 0)].into();
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let mut next = VecDeque::from([0]);
    while let Some(at) = next.pop_front() {
        let world = all[at];
        world.check()?;
        if world.is_given_up() {
            continue;
        }
        for of in 0..RANKS {
            for step in world.steps(of, spared) {
                // A founder whose calls fail again and again without a reason would make endlessly many states.
                let place = *known.entry(step).or_insert_with(|| {
                    all.push(step);
                    before.push(Vec::new());
                    next.push_back(all.len() - 1);
                    all.len() - 1
                });
                before[place].push(at);
                if all.len() > 3_000_000 {
                    return Err("the states have no end");
                }
            }
        }
    }
    // From the good states back to those that lead to them.
    let good = |world: &World| world.is_done() || world.is_given_up();
    let mut reached: HashSet<usize> = (0..all.len()).filter(|at| good(&all[*at])).collect();
    let mut from: Vec<usize> = reached.iter().copied().collect();
    while let Some(at) = from.pop() {
        for earlier in &before[at] {
            if reached.insert(*earlier) {
                from.push(*earlier);
            }
        }
    }
    if reached.len() == all.len() {
        Ok(all.len())
    } else {
        Err("from a state no order of steps leads to what they make")
    }
}

#[test]
fn founders_meet_after_failures_in_every_order_and_never_in_two_ways() {
    let states = search(Spared::Nothing).unwrap();
    eprintln!("{states} states");
    assert!(states > 1000, "{states}");
}

#[test]
fn every_rule_of_meetings_is_needed() {
    for spared in [
        Spared::Compare,
        Spared::Final,
        Spared::Heard,
        Spared::Ended,
        Spared::Met,
    ] {
        let broken = search(spared).expect_err(&format!("{spared:?} is not missed"));
        eprintln!("{spared:?}: {broken}");
    }
}
