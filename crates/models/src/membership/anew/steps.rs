//! What a process does as the record lets it, and what happens to processes and store.

use std::collections::{BTreeMap, BTreeSet};

use membership_rules::anew::{Anew, Place, Situation, Word, anew};
use membership_rules::record::RankGeneration;

use super::left_out::{AnewRule, LeftOut};
use super::state::{
    CHANGES, CUTS, DIES, FOUNDERS, JOINS, LONG, LOSES, PROCESSES, RETURNS, Rec, Said, State, Store,
    mark, slot,
};
use super::world::World;

/// How many numbers a record that is written anew leaves out in this model: more than there are proposals.
const LEFT_OUT_HERE: u8 = 4;

impl World {
    /// Emits the steps of a process that reaches the store, as the record lets it take them.
    pub(super) fn acts(&self, state: &State, me: usize, emit: &mut impl FnMut(String, State)) {
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

    pub(super) fn happens(&self, state: &State, emit: &mut impl FnMut(String, State)) {
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
}
