//! Runs the rules of [`membership_rules::anew`] in every order. The store loses everything, or is back as it was at an earlier moment.
//! Ranks die, or are cut off from the store for a while or for long. A newcomer draws its generation at any moment.
//!
//! There are three members, 0 to 2, and place 3, which is free. A rank that reaches the store looks, proposes, promises and commits as the
//! record lets it. It may drop any rank that has ended or does not reach the store, as the rules of evidence might at worst. When every
//! rank that reaches the store has said all that it has to say, a lease without a new word may be over.
//!
//! Checked properties:
//!
//! - V: two living ranks that have applied a view of one number have applied the same view.
//! - N: two living ranks that have had a proposal of one number, in one view, have had the same proposal.
//! - G: no two processes that live and have applied a view have one slot and generation.
//! - R: the record can always be there again, and a proposal in it of ranks that live can become a view. Three cases are excepted: ranks
//!   wait for a rank that is cut off; no living member of the record was in touch; or a process has ended whose name another process has
//!   drawn again.

use std::collections::{BTreeMap, BTreeSet};

use membership_rules::anew::{Anew, Place, Situation, Word, anew};
use membership_rules::members::Members;
use membership_rules::record::{Proposal, RankGeneration, Record};
use membership_rules::slots::Slots;

use crate::explore::{Broken, Codec, Model, broken};

mod left_out;

pub use left_out::AnewRule;
use left_out::LeftOut;

/// Number of processes: three founders, and two that come to place 3.
const PROCESSES: usize = 5;
const FOUNDERS: usize = 3;
/// Bits of the largest number of a view or proposal in any run.
const BITS: u32 = 5;
/// How many numbers a record that is written anew leaves out in this model: more than there are proposals.
const LEFT_OUT_HERE: u8 = 4;

/// One configuration: how often each thing may happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// Number of founders that have ended at the beginning, from 0 on.
    pub gone: usize,
    /// How often a process dies.
    pub dies: u8,
    /// How often a process is cut off from the store.
    pub cuts: u8,
    /// How many of these cuts last long.
    pub long: u8,
    /// How often a rank proposes a change.
    pub changes: u8,
    /// How often the store loses everything.
    pub loses: u8,
    /// How often the store is back as it was at an earlier moment.
    pub returns: u8,
    /// How often a newcomer draws a generation.
    pub joins: u8,
    /// Rules that the ranks do not follow.
    pub left_out: &'static [AnewRule],
}

/// A record with only the fields that this model needs. The default stands for no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Rec {
    epoch: u8,
    number: u8,
    /// Members among the founders, as bits.
    members: u8,
    /// Generation of place 3 that is a member, or was one.
    third: u8,
    admitted: u8,
    /// The proposal: whether one is open, which places it keeps, and which generation it takes in at place 3.
    open: bool,
    keep: u8,
    takes: u8,
}

impl Rec {
    fn exists(self) -> bool {
        self.epoch != 0
    }

    fn place(self) -> (u8, u8) {
        (self.epoch, self.number)
    }

    fn record(self) -> Record {
        let founders = (0u32..).take(FOUNDERS);
        let members = |bits: u8, third: u8| -> Members {
            let of = founders.clone().filter(|slot| bits >> slot & 1 != 0);
            let of = of.map(|slot| (slot, 1));
            of.chain((third != 0).then_some((3, third.into())))
                .collect()
        };
        let mut record = Record::founded(members(self.members, self.third));
        record.epoch = self.epoch.into();
        record.number = self.number.into();
        record.admitted = members(0b111, self.admitted);
        record.open = self.open.then(|| Proposal {
            keep: (0..4)
                .filter(|slot| self.keep >> slot & 1 != 0)
                .collect::<Slots>(),
            takes: members(0, self.takes),
            ..Proposal::default()
        });
        record
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Process {
    alive: bool,
    /// The process does not reach the store; `long`: for longer than the group takes to be founded anew.
    cut: bool,
    long: bool,
    /// Generation of the process; 0 before it has drawn one.
    generation: u8,
    had: Rec,
    applied: Rec,
    /// The number of the proposal that the process has promised, or 0.
    promised: u8,
    /// The process has seen that the last record that it had is not in the store.
    lost: bool,
    touched: bool,
    /// The process's lease was gone, and the process has not looked since for what else is missing.
    doubts: bool,
    /// The process has drawn its generation before the store last lost what it held.
    old: bool,
}

/// What a process says: the newest record that it has had, if any, and whether it was in touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Said {
    is: bool,
    had: Rec,
    touched: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Store {
    record: Rec,
    /// The processes whose promise for the number of the record stands.
    promises: u8,
    /// The word of each process.
    words: [Said; PROCESSES],
    /// The newest generation of place 3 that was drawn or noted.
    drawn: u8,
    /// For each generation, 1 + the process that has its `taken` key, or 0.
    taken: [u8; 4],
}

/// A state of the model: processes and store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    processes: [Process; PROCESSES],
    store: Store,
    /// The store at an earlier moment.
    copy: Store,
    left: [u8; 7],
}

/// The model of a configuration.
#[derive(Debug)]
pub struct World(pub Config);

const DIES: usize = 0;
const CUTS: usize = 1;
const LONG: usize = 2;
const CHANGES: usize = 3;
const LOSES: usize = 4;
const RETURNS: usize = 5;
const JOINS: usize = 6;

fn slot(process: usize) -> u32 {
    u32::try_from(process.min(FOUNDERS)).expect("few processes")
}

/// Returns the mark of a process in `taken`. It is never 0, which marks no process.
fn mark(process: usize) -> u8 {
    u8::try_from(process + 1).expect("few processes")
}

impl World {
    fn follows(&self, rule: AnewRule) -> bool {
        LeftOut(self.0.left_out).follows(rule)
    }

    fn name(state: &State, process: usize) -> RankGeneration {
        (slot(process), state.processes[process].generation.into())
    }

    fn is_in(rec: Rec, state: &State, process: usize) -> bool {
        if process < FOUNDERS {
            rec.members >> process & 1 != 0
        } else {
            rec.third != 0 && rec.third == state.processes[process].generation
        }
    }

    fn is_proposed(rec: Rec, state: &State, process: usize) -> bool {
        let generation = state.processes[process].generation;
        if process < FOUNDERS {
            rec.keep >> process & 1 != 0
        } else {
            let keeps = rec.keep >> 3 & 1 != 0 && rec.third == generation;
            rec.open && generation != 0 && (keeps || rec.takes == generation)
        }
    }

    /// Emits the steps of a process that reaches the store, as the record lets it take them.
    fn acts(&self, state: &State, me: usize, emit: &mut impl FnMut(String, State)) {
        let own = state.processes[me];
        let stands = state.store.record;
        let mut looked = *state;
        // A process of place 3 may come back to a store that lacks its `taken` key. It takes the key again, or ends.
        let holder = state.store.taken[usize::from(own.generation)];
        if me >= FOUNDERS && usize::from(holder) != me + 1 && self.follows(AnewRule::Namesake) {
            match holder {
                0 => {
                    looked.store.taken[usize::from(own.generation)] = mark(me);
                    looked.store.drawn = looked.store.drawn.max(own.generation);
                    emit(format!("{me} takes its place again"), looked);
                    return;
                }
                _ if own.applied == Rec::default() => {
                    looked.processes[me].alive = false;
                    emit(format!("{me} finds its place taken and ends"), looked);
                    return;
                }
                _ => {}
            }
        }
        let mine = &mut looked.processes[me];
        if own.had.exists() && stands.place() < own.had.place() {
            if !own.lost {
                mine.lost = true;
                mine.touched = !own.long;
                emit(format!("{me} finds the record gone"), looked);
                return;
            }
            self.writes(state, me, emit);
            return;
        }
        // The store may hold the newest record that a rank has had, and another rank may name a later one.
        let newest = state
            .store
            .words
            .iter()
            .map(|word| word.had)
            .max_by_key(|rec| rec.place());
        let later = newest.filter(|newest| {
            let both = stands.exists() && newest.place() > stands.place();
            both && newest.place() > own.had.place() && own.had.exists()
        });
        if let Some(later) = later.filter(|_| self.follows(AnewRule::Newest)) {
            mine.touched = !own.long;
            mine.lost = true;
            if own.had.epoch != later.epoch {
                mine.promised = 0;
            }
            mine.had = later;
            emit(format!("{me} hears of a later record"), looked);
            return;
        }
        if stands.exists() && (own.had != stands || own.lost) {
            let third = me >= FOUNDERS;
            let names_me = third && Self::is_in(stands, state, me) && own.applied == Rec::default();
            let namesake = names_me && own.promised == 0 && self.follows(AnewRule::Namesake);
            let over =
                third && stands.admitted >= own.generation && !Self::is_in(stands, state, me);
            let dropped = !third && !Self::is_in(stands, state, me);
            if namesake || over || dropped {
                mine.alive = false;
                emit(format!("{me} is over"), looked);
                return;
            }
            (mine.had, mine.lost, mine.long, mine.doubts) = (stands, false, false, false);
            looked.store.words[me] = Default::default();
            if own.had.epoch != stands.epoch {
                mine.promised = 0;
            }
            if Self::is_in(stands, state, me) {
                mine.applied = Rec {
                    open: false,
                    keep: 0,
                    takes: 0,
                    number: 0,
                    ..stands
                };
            }
            emit(format!("{me} looks"), looked);
            return;
        }
        if !stands.exists() {
            // A newcomer that has had no record says so when it hears that a record is lost.
            let hears = state.store.words.iter().any(|word| word.had.exists());
            // The word must not replace that of another process with the same name. Only a process that held a lease before the loss can
            // stand in a proposal from before it.
            let free = (0..PROCESSES).all(|of| {
                !state.store.words[of].is || Self::name(state, of) != Self::name(state, me)
            });
            if hears && !own.had.exists() && own.old && free {
                looked.store.words[me].is = true;
                emit(format!("{me} says that it had nothing"), looked);
            }
            return;
        }
        if stands.open {
            if !Self::is_proposed(stands, state, me) {
                return;
            }
            let is_gone = state.store.promises >> me & 1 == 0 && own.doubts;
            if own.promised != stands.number || is_gone {
                mine.doubts = false;
                looked.store.promises |= 1 << me;
                mine.promised = stands.number;
                emit(format!("{me} promises"), looked);
                return;
            }
            let all = (0..PROCESSES).filter(|of| Self::is_proposed(stands, state, *of));
            // Code that counts promises cannot tell two processes of one name apart.
            let kept = (0..FOUNDERS).filter(|of| stands.keep >> of & 1 != 0);
            let mut needed: BTreeSet<u32> = kept.map(slot).collect();
            if stands.takes != 0 || stands.keep >> 3 & 1 != 0 {
                needed.insert(3);
            }
            let promised: BTreeSet<u32> = all
                .filter(|of| state.store.promises >> of & 1 != 0)
                .map(slot)
                .collect();
            if needed.is_subset(&promised) {
                let third = match (stands.takes, stands.keep >> 3 & 1) {
                    (0, 0) => 0,
                    (0, _) => stands.third,
                    (takes, _) => takes,
                };
                looked.store.record = Rec {
                    epoch: stands.epoch + 1,
                    members: stands.keep & 0b111,
                    third,
                    admitted: stands.admitted.max(stands.takes),
                    open: false,
                    keep: 0,
                    takes: 0,
                    ..stands
                };
                looked.store.promises = 0;
                emit(format!("{me} commits"), looked);
            }
            // A rank that does not answer is left out of the next proposal.
            self.proposes(state, me, emit);
            return;
        }
        self.proposes(state, me, emit);
    }

    /// Emits each possible proposal. It leaves out ranks that do not reach the store. A newcomer that asks comes in if all others have
    /// gone, or with them.
    fn proposes(&self, state: &State, me: usize, emit: &mut impl FnMut(String, State)) {
        let stands = state.store.record;
        if state.left[CHANGES] == 0 {
            return;
        }
        let reaches = |of: usize| state.processes[of].alive && !state.processes[of].cut;
        let gone_long = |of: usize| !state.processes[of].alive || state.processes[of].long;
        let member = Self::is_in(stands, state, me);
        let mut keep = 0;
        for of in (0..FOUNDERS).filter(|of| stands.members >> of & 1 != 0) {
            keep |= u8::from(reaches(of)) << of;
        }
        let third = (FOUNDERS..PROCESSES).find(|of| Self::is_in(stands, state, *of));
        if third.is_some_and(reaches) {
            keep |= 1 << 3;
        }
        let old = stands.members | u8::from(stands.third != 0) << 3;
        let asks = (FOUNDERS..PROCESSES).find(|of| {
            reaches(*of) && stands.third == 0 && state.processes[*of].generation > stands.admitted
        });
        let mut wishes = Vec::new();
        if member {
            let keep = if stands.open {
                keep & stands.keep
            } else {
                keep
            };
            let comes = |of: usize| state.processes[of].generation == stands.takes && reaches(of);
            let silent = stands.takes != 0 && !(FOUNDERS..PROCESSES).any(comes);
            let smaller = stands.open && (keep != stands.keep || silent);
            if smaller || !stands.open && keep != old {
                wishes.push((keep, 0));
            }
            if let Some(asks) = asks.filter(|_| keep == old && !stands.open) {
                wishes.push((keep, state.processes[asks].generation));
            }
        } else if asks == Some(me) && !stands.open {
            let all = (0..FOUNDERS).filter(|of| stands.members >> of & 1 != 0);
            if all.chain(third).all(gone_long) {
                wishes.push((0, state.processes[me].generation));
            }
        }
        for (keep, takes) in wishes {
            let mut next = *state;
            next.left[CHANGES] -= 1;
            next.store.record = Rec {
                number: stands.number + 1,
                open: true,
                keep,
                takes,
                ..stands
            };
            next.store.promises = 0;
            // The rank may not learn whether its write was done.
            emit(
                format!("{me} proposes {keep:b} and {takes}, without an answer"),
                next,
            );
        }
    }

    /// Emits the steps of a process that has a record which the store has lost.
    fn writes(&self, state: &State, me: usize, emit: &mut impl FnMut(String, State)) {
        let own = state.processes[me];
        let mut next = *state;
        let said = Said {
            is: true,
            had: own.had,
            touched: own.touched,
        };
        if state.store.words[me] != said {
            for of in 0..PROCESSES {
                if Self::name(state, of) == Self::name(state, me) {
                    next.store.words[of] = Said::default();
                }
            }
            next.store.words[me] = said;
            if self.follows(AnewRule::Generations) {
                let knows = own.had.admitted.max(own.had.takes);
                next.store.drawn = next.store.drawn.max(knows);
                if me >= FOUNDERS {
                    next.store.drawn = next.store.drawn.max(own.generation);
                }
            }
            emit(format!("{me} says what it had"), next);
            return;
        }
        let all = || (0..PROCESSES).filter(|of| state.processes[*of].generation != 0);
        let mut words: BTreeMap<RankGeneration, Word> = BTreeMap::new();
        for of in all() {
            let Said { is, had, touched } = state.store.words[of];
            if is {
                let place = Place {
                    epoch: had.epoch.into(),
                    number: had.number.into(),
                };
                words.insert(Self::name(state, of), Word { place, touched });
            }
        }
        let dead = all().filter(|of| !state.processes[*of].alive);
        let mut ended: BTreeSet<RankGeneration> = dead.map(|of| Self::name(state, of)).collect();
        // A process of the same name that lives is taken for the one that has ended.
        for of in all().filter(|of| state.processes[*of].alive) {
            ended.remove(&Self::name(state, of));
        }
        // Each rank that reaches the store has taken a turn within a lease, and has said what it had.
        let has_said = |of: usize| {
            let it = state.processes[of];
            let word = state.store.words[of];
            let silent = !it.alive || it.cut || !it.had.exists() && !it.old;
            silent || word.is && (word.had, word.touched) == (it.had, it.touched)
        };
        let hushed = (0..PROCESSES).all(has_said);
        let stands = state.store.record;
        let situation = Situation {
            own: Self::name(state, me),
            record: &own.had.record(),
            stands: Place {
                epoch: stands.epoch.into(),
                number: stands.number.into(),
            },
            words: &words,
            ended: &ended,
            hushed,
        };
        let verdict = anew(&LeftOut(self.0.left_out), &situation);
        if let Anew::Later(who) = verdict {
            let of = all().filter(|of| Self::name(state, *of) == who);
            let newest = of
                .map(|of| state.store.words[of].had)
                .max_by_key(|rec| rec.place());
            if let Some(newest) = newest {
                let mine = &mut next.processes[me];
                if mine.had.epoch != newest.epoch {
                    mine.promised = 0;
                }
                mine.had = newest;
                emit(format!("{me} takes over what it heard of"), next);
            }
            return;
        }
        if let Anew::Write(new) = verdict {
            // Only the order of numbers counts.
            let newest = own.had.number.max(stands.number);
            let number = if new.number == u64::from(own.had.number) {
                own.had.number
            } else {
                newest + LEFT_OUT_HERE
            };
            next.store.record = Rec { number, ..own.had };
            next.store.promises = 0;
            emit(format!("{me} writes the record anew"), next);
        }
    }

    fn happens(&self, state: &State, emit: &mut impl FnMut(String, State)) {
        let spend = |what: usize| {
            let mut next = *state;
            let left = next.left[what].checked_sub(1)?;
            next.left[what] = left;
            Some(next)
        };
        for (of, process) in state.processes.iter().enumerate().filter(|it| it.1.alive) {
            if let Some(mut next) = spend(DIES) {
                next.processes[of].alive = false;
                emit(format!("{of} dies"), next);
            }
            if !process.cut
                && let Some(mut next) = spend(CUTS)
            {
                next.processes[of].cut = true;
                emit(format!("{of} is cut off from the store"), next);
            }
            if process.cut {
                let mut next = *state;
                next.processes[of].cut = false;
                emit(format!("{of} reaches the store again"), next);
                if !process.long
                    && let Some(mut next) = spend(LONG)
                {
                    next.processes[of].long = true;
                    emit(format!("{of} was cut off for long"), next);
                }
            }
        }
        if state.store != Store::default()
            && let Some(mut next) = spend(LOSES)
        {
            next.store = Store::default();
            for process in &mut next.processes {
                process.old = process.alive;
            }
            emit("the store loses all".to_owned(), next);
        }
        if state.copy == Store::default() && self.0.returns > 0 && state.store.record.exists() {
            let mut next = *state;
            next.copy = next.store;
            emit("the store is copied".to_owned(), next);
        }
        if state.copy != Store::default()
            && let Some(mut next) = spend(RETURNS)
        {
            next.store = next.copy;
            for process in &mut next.processes {
                process.doubts = process.alive;
            }
            emit("the store is back as it was".to_owned(), next);
        }
        let free = (FOUNDERS..PROCESSES).find(|of| state.processes[*of].generation == 0);
        let place = usize::from(state.store.drawn) + 1;
        let free = free.filter(|_| state.store.taken.get(place) == Some(&0));
        if let Some(of) = free
            && let Some(mut next) = spend(JOINS)
        {
            next.store.drawn += 1;
            next.processes[of].alive = true;
            next.processes[of].generation = next.store.drawn;
            next.store.taken[usize::from(next.store.drawn)] = mark(of);
            emit(format!("{of} draws a generation"), next);
        }
    }

    fn check(&self, state: &State) -> Result<(), Broken<&'static str>> {
        let living = || (0..PROCESSES).filter(|of| state.processes[*of].alive);
        for (a, b) in living().flat_map(|a| living().map(move |b| (a, b))) {
            let [one, other] = [a, b].map(|of| state.processes[of]);
            if one.applied.epoch == other.applied.epoch && one.applied != other.applied {
                return broken(
                    "V",
                    format!("{a} and {b}: {:?} and {:?}", one.applied, other.applied),
                );
            }
            let both = one.had.exists() && one.had.place() == other.had.place();
            if both && one.had != other.had {
                return broken(
                    "N",
                    format!("{a} and {b}: {:?} and {:?}", one.had, other.had),
                );
            }
            let served = one.applied.exists() && other.applied.exists();
            if a != b && served && Self::name(state, a) == Self::name(state, b) {
                return broken(
                    "G",
                    format!("{a} and {b} are both {:?}", Self::name(state, a)),
                );
            }
        }
        Ok(())
    }
}

impl Model for World {
    type State = State;
    type Step = String;
    type Property = &'static str;

    const MOST_STATES: usize = 6_000_000;

    fn first(&self) -> State {
        let record = Rec {
            epoch: 1,
            number: 1,
            members: 0b111,
            ..Rec::default()
        };
        let founder = Process {
            alive: true,
            generation: 1,
            had: record,
            applied: Rec {
                number: 0,
                ..record
            },
            ..Process::default()
        };
        let mut processes = [Process::default(); PROCESSES];
        processes[..FOUNDERS].fill(founder);
        for gone in &mut processes[..self.0.gone] {
            gone.alive = false;
        }
        let Config {
            dies,
            cuts,
            long,
            changes,
            loses,
            returns,
            joins,
            ..
        } = self.0;
        State {
            processes,
            store: Store {
                record,
                ..Store::default()
            },
            copy: Store::default(),
            left: [dies, cuts, long, changes, loses, returns, joins],
        }
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        for process in &mut state.processes {
            for flag in [
                &mut process.alive,
                &mut process.cut,
                &mut process.long,
                &mut process.lost,
                &mut process.touched,
                &mut process.old,
                &mut process.doubts,
            ] {
                codec.flag(flag);
            }
            codec.byte(&mut process.generation, 2);
            codec.byte(&mut process.promised, BITS);
            code(&mut process.had, codec);
            code(&mut process.applied, codec);
        }
        for store in [&mut state.store, &mut state.copy] {
            code(&mut store.record, codec);
            codec.byte(&mut store.promises, 5);
            codec.byte(&mut store.drawn, 2);
            for taken in &mut store.taken {
                codec.byte(taken, 3);
            }
            for Said { is, had, touched } in &mut store.words {
                codec.flag(is);
                code(had, codec);
                codec.flag(touched);
            }
        }
        state.left.iter_mut().for_each(|left| codec.byte(left, 3));
    }

    fn steps(
        &self,
        state: &State,
        emit: &mut impl FnMut(String, State),
    ) -> Result<(), Broken<&'static str>> {
        self.check(state)?;
        for (me, process) in state.processes.iter().enumerate() {
            if process.alive && !process.cut {
                self.acts(state, me, emit);
            }
        }
        self.happens(state, emit);
        Ok(())
    }

    /// Checks that the record is there, or that the ranks can say why it is not.
    fn at_rest(&self, state: &State) -> Result<(), Broken<&'static str>> {
        let living = || {
            state
                .processes
                .iter()
                .filter(|it| it.alive && it.had.exists())
        };
        let there = living().all(|it| !it.lost && it.had.place() <= state.store.record.place());
        // Newcomers that had the record do not write it, because its members may have gone on without them.
        let in_touch = (0..PROCESSES).any(|of| {
            let it = state.processes[of];
            it.alive && it.lost && it.touched && Self::is_in(it.had, state, of)
        });
        let untouched = living().any(|it| it.lost) && !in_touch;
        let waits = living().any(|it| it.cut);
        // If one of two processes of a name has ended, no process can tell what it has had.
        let one = (FOUNDERS..PROCESSES).map(|of| state.processes[of].generation);
        let names: BTreeSet<u8> = one.clone().filter(|name| *name != 0).collect();
        let renamed = names.len() < one.filter(|name| *name != 0).count();
        let open = state.store.record.open
            && (0..PROCESSES).all(|of| {
                let it = state.processes[of];
                it.alive && !it.cut || !Self::is_proposed(state.store.record, state, of)
            });
        if there && !open || untouched || waits || renamed {
            Ok(())
        } else {
            broken(
                "R",
                "the record, or a proposal in it, stays as it is".to_owned(),
            )
        }
    }

    fn is_live(&self) -> bool {
        true
    }
}

fn code(record: &mut Rec, codec: &mut impl Codec) {
    codec.byte(&mut record.epoch, BITS);
    codec.byte(&mut record.number, BITS);
    codec.byte(&mut record.members, 3);
    codec.byte(&mut record.third, 2);
    codec.byte(&mut record.admitted, 2);
    codec.flag(&mut record.open);
    codec.byte(&mut record.keep, 4);
    codec.byte(&mut record.takes, 2);
}
