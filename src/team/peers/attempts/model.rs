//! Two ends of a reunion in every order of their steps. Rails go and come back, answers are late, and either end fails. The ends
//! decide by [`Reunion`] itself; the model holds only the world. States are kept whole, because they are few.

use std::collections::{HashSet, VecDeque};

use super::{At, Outcome, Reunion, Theirs};
use crate::team::qps::set::{GivenUp, Heard};
use crate::team::rails::{Carriers, RailSet};

const RAILS: u32 = 3;
/// Number of calls, from any state on, after which both ends are together if nothing changes any more.
const CALLS: usize = 40;

/// A rule of reunions that a search leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spared {
    Nothing,
    /// An end that follows takes over what the attempt leaves out.
    Follow,
    /// Both ends leave out what either end names.
    Union,
    /// If no rail has answered, nothing is left out any more.
    Clear,
    /// A rail that gave no answer is left out.
    GoRound,
}

/// The record of one end in the store: attempt, readiness, and rails that it leaves out.
type Told = Option<(u64, bool, RailSet)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct End {
    reunion: Reunion,
    at: At,
    /// The attempt in which the QPs are connected with those of the other end, and the rails that they use.
    connected: Option<(u64, RailSet)>,
    told: Told,
    /// What the end has read of the other end, and not acted upon yet.
    read: Option<Told>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    ends: [End; 2],
    up: RailSet,
    /// How often the rails may still change, an end may still fail, and an answer may still be late.
    left: [u8; 3],
}

impl World {
    fn new() -> Self {
        let end = End {
            reunion: Reunion::default(),
            at: At::Nowhere,
            connected: None,
            told: None,
            read: None,
        };
        Self {
            ends: [end; 2],
            up: RailSet::first(RAILS),
            left: [2, 2, 1],
        }
    }

    /// Makes a call of `reunite_peer` at an end: the end reads, and then acts, with no step of the other end in between.
    fn call(&mut self, of: usize, spared: Spared) {
        self.ends[of].read = Some(self.ends[1 - of].told);
        self.act(of, RailSet::EMPTY, spared);
    }

    /// Makes the second part of a call, after what was read. Answers on the rails in `late` are late.
    fn act(&mut self, of: usize, late: RailSet, spared: Spared) {
        let theirs = self.ends[of].read.take().flatten();
        let newest = theirs.map_or(Theirs::default(), |(attempt, _, without)| Theirs {
            attempt,
            without,
        });
        let end = &mut self.ends[of];
        let (before, own) = (end.reunion.attempt(), end.reunion.without());
        let Some(attempt) = end.reunion.next(1, newest, end.at).unwrap() else {
            return;
        };
        if spared == Spared::Follow {
            end.reunion.without = own;
        }
        if attempt != before {
            (end.at, end.connected) = (At::UnderWay, None);
        }
        let met = theirs.filter(|theirs| theirs.0 == attempt);
        let out = met.map(|(_, _, out)| match spared {
            Spared::Union => end.reunion.without(),
            _ => end
                .reunion
                .agree(out)
                .expect("an end names one set in an attempt"),
        });
        let carriers = out.map(|out| Carriers::but(RAILS, out));
        let carry = |carriers: Carriers| RailSet::first(RAILS).without(carriers.without());
        end.connected = carriers.map(|carriers| (attempt, carry(carriers)));
        if end.reunion.is_to_tell(met.is_some()) {
            end.told = Some((attempt, met.is_some(), end.reunion.without()));
            end.reunion.has_told(met.is_some());
        }
        if let (Some((_, true, _)), Some(carriers)) = (met, carriers) {
            self.prove(of, carriers, late, spared);
        }
    }

    /// Judges the answers at an end: a rail answers if it is up and the other end has connected it in this attempt.
    fn prove(&mut self, of: usize, carriers: Carriers, late: RailSet, spared: Spared) {
        let attempt = self.ends[of].reunion.attempt();
        let other = self.ends[1 - of].connected;
        let there = other.filter(|(of, _)| *of == attempt);
        let mut heard = Heard::default();
        for rail in RailSet::first(RAILS)
            .iter()
            .filter(|of| carriers.carries(*of))
        {
            let is_there = there.is_some_and(|(_, rails)| rails.contains(rail));
            match is_there && self.up.contains(rail) {
                true if late.contains(rail) => heard.pending.insert(rail),
                true => heard.answered.insert(rail),
                false => heard.failed.insert(rail),
            }
        }
        let end = &mut self.ends[of];
        let own = end.reunion.without();
        heard.first = heard.failed.iter().next().map(|rail| GivenUp {
            qp: rail,
            syndrome: 0,
        });
        let shares = spared != Spared::GoRound;
        let outcome = end.reunion.judge(heard, !late.is_empty(), carriers, shares);
        match outcome {
            Outcome::Together => end.at = At::Together,
            Outcome::GoRound | Outcome::Unreached(_) => end.at = At::Nowhere,
            Outcome::Wait => {}
        }
        if spared == Spared::Clear && matches!(outcome, Outcome::Unreached(_)) {
            end.reunion.without = own;
        }
    }

    /// Moves the QPs of an end to Err.
    fn fail(&mut self, of: usize) {
        (self.ends[of].at, self.ends[of].connected) = (At::Nowhere, None);
    }

    fn next(&self, spared: Spared) -> Vec<Self> {
        let mut all = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self)| {
            let mut world = *self;
            change(&mut world);
            all.push(world);
        };
        for of in [0, 1] {
            match self.ends[of].read {
                None => with(&|world| world.ends[of].read = Some(world.ends[1 - of].told)),
                Some(_) => with(&|world| world.act(of, RailSet::EMPTY, spared)),
            }
            if self.left[2] > 0 && self.ends[of].read.is_some() {
                for rail in 0..RAILS {
                    with(&|world| {
                        world.left[2] -= 1;
                        world.act(of, set(&[rail]), spared);
                    });
                }
            }
            if self.left[1] > 0 {
                with(&|world| {
                    world.left[1] -= 1;
                    world.fail(of);
                });
            }
        }
        if self.left[0] > 0 {
            for up in [&[][..], &[0], &[1, 2], &[0, 1, 2]] {
                with(&|world| {
                    world.left[0] -= 1;
                    world.up = set(up);
                });
            }
        }
        all
    }

    /// Returns the attempt and the rails in which both are together.
    fn together(&self) -> Option<(u64, RailSet)> {
        let [one, other] = self.ends;
        let both = (one.at, other.at) == (At::Together, At::Together);
        one.connected
            .filter(|_| both && one.connected == other.connected)
    }

    /// Returns whether both ends use the same rails, if both have connected in the same attempt.
    fn agrees(&self) -> bool {
        match self.ends.map(|end| end.connected) {
            [Some((one, ours)), Some((other, theirs))] => one != other || ours == theirs,
            _ => true,
        }
    }

    /// Returns whether both ends come together, if nothing more happens and any rail carries; and whether they come together by all
    /// rails, if all rails carry and the QPs fail anew. `turns`: the order in which the ends act, repeated.
    fn comes_together(mut self, turns: &[usize], spared: Spared) -> bool {
        for of in [0, 1] {
            if self.ends[of].read.is_some() {
                self.act(of, RailSet::EMPTY, spared);
            }
        }
        let meet = |world: &mut Self| {
            for of in turns.iter().cycle().take(CALLS) {
                world.call(*of, spared);
            }
            world.together()
        };
        if !self.up.is_empty() && meet(&mut self).is_none() {
            return false;
        }
        let all = RailSet::first(RAILS);
        self.up = all;
        // The first meeting may still leave out rails that were found dead before.
        let met = [(); 2].map(|()| {
            (0..2).for_each(|of| self.fail(of));
            meet(&mut self)
        });
        met[0].is_some() && met[1].is_some_and(|(_, rails)| rails == all)
    }
}

fn set(rails: &[u32]) -> RailSet {
    let mut set = RailSet::EMPTY;
    rails.iter().for_each(|rail| set.insert(*rail));
    set
}

/// Returns what the search finds broken: ends that do not agree, or that do not come together.
fn broken(spared: Spared) -> Option<(&'static str, World)> {
    let mut seen = HashSet::from([World::new()]);
    let mut next = VecDeque::from([World::new()]);
    while let Some(world) = next.pop_front() {
        if !world.agrees() {
            return Some(("agree", world));
        }
        // An end that is slower than the other may never find out anything itself.
        let turns: [&[usize]; 3] = [&[0, 1], &[0, 0, 1], &[0, 1, 1]];
        if turns
            .iter()
            .any(|turns| !world.comes_together(turns, spared))
        {
            return Some(("together", world));
        }
        // While no rail carries, attempts go on for ever: later states are like these.
        if world.ends.iter().all(|end| end.reunion.attempt() < 5) {
            let new = world
                .next(spared)
                .into_iter()
                .filter(|one| seen.insert(*one));
            next.extend(new);
        }
    }
    println!("{spared:?}: {} states", seen.len());
    None
}

#[test]
fn two_ends_agree_on_their_rails_and_unite_in_every_order_of_steps() {
    let found = broken(Spared::Nothing);
    assert!(found.is_none(), "{found:#?}");
}

#[test]
fn every_rule_of_rails_is_needed() {
    for (spared, what) in [
        (Spared::Follow, "together"),
        (Spared::Union, "agree"),
        (Spared::Clear, "together"),
        (Spared::GoRound, "together"),
    ] {
        let found = broken(spared).map(|(what, _)| what);
        assert_eq!(found, Some(what), "{spared:?}");
    }
}
