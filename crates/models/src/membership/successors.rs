//! Runs two processes that take one place in every order. Either takes its lease first, either dies at any moment, and the store loses a
//! lease for a while. Two members and both generations follow [`Rulebook::successor`] and [`Rulebook::is_overtaken`]. The model holds the
//! world, and what a team does with QPs and welcomes.
//!
//! - S1: in the view that takes a generation in, the QPs of every member are for it.
//! - S2: a generation that lives comes in, from every state on, unless a later one is connected.

use membership_rules::newcomers::OfSlot;
use membership_rules::rulebook::Rulebook;

use super::left_out::{LeftOut, Rule};
use crate::explore::{Broken, Codec, Edge, Model, broken};

/// Number of members of the view.
const MEMBERS: usize = 2;
/// Number of generations that take the place: 1 and 2.
const GENERATIONS: usize = 2;
const ALL: u8 = (1 << MEMBERS) - 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Member {
    /// The generation to which the member's QPs were offered last, or 0.
    begun: u8,
    /// The newest generation with which the QPs were connected.
    newest: u8,
    /// The generation that the member's row names.
    says: u8,
    /// The generations for which the member's welcome stands, as bits.
    welcomes: u8,
}

/// The states of a process.
const UNBORN: u8 = 0;
const ASKS: u8 = 1;
const WITHOUT_LEASE: u8 = 2;
const DEAD: u8 = 3;
const OVER: u8 = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Process {
    life: u8,
    /// Members with which the QPs of the process are connected, as bits.
    connected: u8,
}

/// Members, processes and the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    members: [Member; MEMBERS],
    processes: [Process; GENERATIONS],
    /// The generation that the open proposal takes in, and who has promised: members as bits, and above them the bit of the newcomer.
    open: u8,
    promised: u8,
    /// The generation that is a member, and the newest one that ever was a member.
    member: u8,
    admitted: u8,
    deaths: u8,
    losses: u8,
}

/// The model of two processes that take one place.
#[derive(Debug)]
pub struct Successors {
    book: LeftOut,
    deaths: u8,
    losses: u8,
}

impl Successors {
    /// Returns a model in which at most `deaths` of the processes die, and the store loses a lease for a while at most `losses` times.
    #[must_use]
    pub fn new(deaths: u8, losses: u8, left_out: &'static [Rule]) -> Self {
        Self {
            book: LeftOut(left_out),
            deaths,
            losses,
        }
    }

    /// Returns the generation with which `member` connects, or 0.
    fn chosen(&self, state: &State, member: &Member) -> u8 {
        if state.member != 0 {
            return 0;
        }
        let asks: Vec<u32> = (1..)
            .zip(&state.processes)
            .filter(|(generation, process)| process.life == ASKS && *generation > state.admitted)
            .map(|(generation, _)| generation.into())
            .collect();
        let some = |generation: u8| (generation != 0).then_some(u32::from(generation));
        let newest = if self.book.follows(Rule::GoesBack) {
            member.newest
        } else {
            member.begun
        };
        let of = OfSlot {
            proposed: some(state.open),
            connected: some(member.says),
            newest: newest.into(),
        };
        let chosen = self.book.successor(&asks, of).unwrap_or(0);
        u8::try_from(chosen).expect("two generations")
    }

    /// Makes a look of a member: it connects with the generation that it has chosen.
    fn look(&self, state: &mut State, at: usize) {
        let chosen = self.chosen(state, &state.members[at]);
        let member = &mut state.members[at];
        if chosen == 0 || chosen < member.newest {
            return;
        }
        if member.begun != chosen {
            // The generation that was connected has lost its QPs.
            member.begun = chosen;
            member.welcomes |= 1 << chosen;
            if member.says != chosen {
                member.says = 0;
            }
            return;
        }
        // The newcomer has written its welcome when it came.
        (member.newest, member.says) = (chosen, chosen);
    }

    /// Makes a look of a newcomer.
    fn comes(&self, state: &mut State, at: usize) {
        let generation = u8::try_from(at + 1).expect("few");
        let theirs = state.members.iter().map(|member| member.says).max();
        if self
            .book
            .is_overtaken(generation.into(), theirs.map(u32::from))
            || generation <= state.admitted && state.member != generation
        {
            state.processes[at].life = OVER;
            return;
        }
        for (bit, member) in state.members.iter().enumerate() {
            if member.welcomes & 1 << generation != 0 {
                state.processes[at].connected |= 1 << bit;
            }
        }
    }

    /// Returns whether every end of every pair says that the pair is connected.
    fn is_ready(&self, state: &State, at: usize) -> bool {
        let generation = u8::try_from(at + 1).expect("few");
        let says =
            |member: &Member| member.says == generation && self.chosen(state, member) == generation;
        state.processes[at].connected == ALL && state.members.iter().all(says)
    }
}

impl Model for Successors {
    type State = State;
    type Step = String;
    type Property = &'static str;

    const MOST_STATES: usize = 1_000_000;

    fn first(&self) -> State {
        State {
            deaths: self.deaths,
            losses: self.losses,
            ..State::default()
        }
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        for member in &mut state.members {
            for number in [&mut member.begun, &mut member.newest, &mut member.says] {
                codec.byte(number, 2);
            }
            codec.byte(&mut member.welcomes, 3);
        }
        for process in &mut state.processes {
            codec.byte(&mut process.life, 3);
            codec.byte(&mut process.connected, 2);
        }
        for number in [
            &mut state.open,
            &mut state.member,
            &mut state.admitted,
            &mut state.deaths,
            &mut state.losses,
        ] {
            codec.byte(number, 2);
        }
        codec.byte(&mut state.promised, 3);
    }

    fn steps(
        &self,
        state: &State,
        emit: &mut impl FnMut(String, State),
    ) -> Result<(), Broken<&'static str>> {
        let mut change = |what: String, change: &dyn Fn(&mut State)| {
            let mut next = *state;
            change(&mut next);
            if next != *state {
                emit(what, next);
            }
        };
        for at in 0..GENERATIONS {
            let generation = u8::try_from(at + 1).expect("few");
            let life = state.processes[at].life;
            let lives = life == ASKS || life == WITHOUT_LEASE;
            if life == UNBORN || life == WITHOUT_LEASE {
                change(format!("{generation} takes its lease"), &|next| {
                    next.processes[at].life = ASKS;
                });
            }
            if life == ASKS && state.losses > 0 && state.member != generation {
                change(format!("{generation} has its lease lost"), &|next| {
                    (next.processes[at].life, next.losses) = (WITHOUT_LEASE, state.losses - 1);
                });
            }
            if lives && state.deaths > 0 {
                change(format!("{generation} dies"), &|next| {
                    (next.processes[at].life, next.deaths) = (DEAD, state.deaths - 1);
                });
            }
            if lives && state.member != generation {
                change(format!("{generation} looks"), &|next| self.comes(next, at));
            }
            if state.open == 0 && state.member == 0 && life == ASKS && self.is_ready(state, at) {
                change(format!("{generation} is proposed"), &|next| {
                    (next.open, next.promised) = (generation, 0);
                });
            }
            if state.open == generation && lives {
                change(format!("{generation} promises"), &|next| {
                    next.promised |= 1 << MEMBERS;
                });
            }
            if state.open == generation && !lives {
                change(format!("{generation} is taken out"), &|next| next.open = 0);
            }
            if state.member == generation && life == DEAD {
                change(format!("{generation} is dropped"), &|next| next.member = 0);
            }
        }
        for at in 0..MEMBERS {
            change(format!("member {at} looks"), &|next| self.look(next, at));
            if state.open != 0 && state.promised & 1 << MEMBERS != 0 {
                change(format!("member {at} promises"), &|next| {
                    next.promised |= 1 << at;
                });
            }
        }
        if state.open != 0 && state.promised == ALL | 1 << MEMBERS {
            let of = state.open;
            let other = |member: &&Member| member.begun != of || member.newest != of;
            if let Some(member) = state.members.iter().find(other) {
                return broken("S1", format!("generation {of} comes in, {member:?}"));
            }
            change(format!("{of} comes in"), &|next| {
                (next.member, next.admitted) = (of, of);
                (next.open, next.promised) = (0, 0);
            });
        }
        Ok(())
    }

    fn at_rest(&self, state: &State) -> Result<(), Broken<&'static str>> {
        let lives = |process: &Process| matches!(process.life, ASKS | WITHOUT_LEASE);
        let serves = state.member != 0 && lives(&state.processes[state.member as usize - 1]);
        // A process that has not come yet need not come in.
        if serves || !state.processes.iter().any(lives) {
            Ok(())
        } else {
            broken("S2", format!("no generation comes in: {state:?}"))
        }
    }

    fn is_live(&self) -> bool {
        true
    }

    fn edge(&self, _: &String) -> Edge {
        Edge::Inner
    }
}
