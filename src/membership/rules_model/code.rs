//! The model for the explorer: its steps, and its states as bits.

use std::collections::{BTreeMap, BTreeSet};

use models::explore::{self, Codec};

use super::{Goodbye, GroupRecord, Limit, Local, Model, Promise, Rank, State, StepKey, Violation};

impl explore::Model for Model {
    type State = State;
    type Step = String;
    type Property = &'static str;

    const MOST_STATES: usize = 20_000_000;

    fn first(&self) -> State {
        self.start()
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        let slots = self.0.ranks;
        Coder { slots, codec }.state(state);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(String, State)) -> Result<(), Violation> {
        for (name, next) in self.successors(state)? {
            emit(name, next);
        }
        Ok(())
    }

    fn at_rest(&self, state: &State) -> Result<(), Violation> {
        self.stuck(state)
    }
}

/// Writes or reads; what stood in a value that is read does not matter.
struct Coder<'a, C> {
    slots: u32,
    codec: &'a mut C,
}

impl<C: Codec> Coder<'_, C> {
    fn state(&mut self, state: &mut State) {
        for rank in &mut state.ranks {
            self.rank(rank);
        }
        self.record(&mut state.record);
        self.map(&mut state.promises, Promise { last: None }, Self::promise);
        for a in 0..self.slots {
            for b in 0..self.slots {
                self.member(&mut state.suspected, (a, b));
            }
        }
        self.map(
            &mut state.said,
            Goodbye { epoch: 0, last: 0 },
            |on, said| {
                on.number(&mut said.epoch);
                on.number(&mut said.last);
            },
        );
        self.list(&mut state.history, &BTreeSet::new(), Self::set);
        for left in [
            &mut state.leavers,
            &mut state.deaths,
            &mut state.suspicions,
            &mut state.aborts,
        ] {
            self.number(left);
        }
    }

    fn rank(&mut self, rank: &mut Rank) {
        for flag in [&mut rank.alive, &mut rank.leaving, &mut rank.left] {
            self.codec.flag(flag);
        }
        self.local(&mut rank.local);
        let blank = || (StepKey::Close, GroupRecord::founded(BTreeMap::new()));
        self.option(&mut rank.pending, blank, |on, (step, record)| {
            on.step(step);
            on.record(record);
        });
        for number in [&mut rank.early, &mut rank.next, &mut rank.started] {
            self.number(number);
        }
        self.codec.byte(&mut rank.stage, 4);
        self.list(&mut rank.views, &(0, 0), Self::pair);
        for epoch in &mut rank.ran {
            self.number(epoch);
        }
        self.option(&mut rank.refused, || Limit::Open, Self::limit);
    }

    fn local(&mut self, local: &mut Local) {
        for number in [
            &mut local.slot,
            &mut local.generation,
            &mut local.viewed,
            &mut local.applied,
        ] {
            self.number(number);
        }
        self.limit(&mut local.limit);
        let blank = || (0, Promise { last: None });
        self.option(&mut local.promised, blank, |on, (proposal, promise)| {
            on.long(proposal);
            on.promise(promise);
        });
        self.set(&mut local.fenced);
    }

    fn limit(&mut self, limit: &mut Limit) {
        let (mut kind, mut last) = match limit {
            Limit::Closed => (0, 0),
            Limit::UpTo(last) => (1, *last),
            Limit::Open => (2, 0),
        };
        self.codec.byte(&mut kind, 2);
        if kind == 1 {
            self.number(&mut last);
        }
        *limit = [Limit::Closed, Limit::UpTo(last), Limit::Open][usize::from(kind)];
    }

    fn promise(&mut self, promise: &mut Promise) {
        self.option(&mut promise.last, || 0, Self::number);
    }

    fn step(&mut self, step: &mut StepKey) {
        let mut kind = match step {
            StepKey::Store(_) => 0,
            StepKey::Close => 1,
            StepKey::Limit(_) => 2,
            StepKey::Fence(_) => 3,
            StepKey::Promise(_) => 4,
            StepKey::View => 5,
            StepKey::Open => 6,
            StepKey::Leave => 7,
            StepKey::Goodbye => 8,
        };
        let before = kind;
        self.codec.byte(&mut kind, 4);
        if kind != before {
            *step = match kind {
                0 => StepKey::Store(GroupRecord::founded(BTreeMap::new())),
                1 => StepKey::Close,
                2 => StepKey::Limit(0),
                3 => StepKey::Fence(BTreeSet::new()),
                4 => StepKey::Promise(Promise { last: None }),
                5 => StepKey::View,
                6 => StepKey::Open,
                7 => StepKey::Leave,
                _ => StepKey::Goodbye,
            };
        }
        match step {
            StepKey::Store(record) => self.record(record),
            StepKey::Limit(last) => self.number(last),
            StepKey::Fence(slots) => self.set(slots),
            StepKey::Promise(promise) => self.promise(promise),
            _ => {}
        }
    }

    fn record(&mut self, record: &mut GroupRecord) {
        self.number(&mut record.epoch);
        self.map(&mut record.members, 0, Self::number);
        self.number(&mut record.first);
        self.map(&mut record.admitted, 0, Self::number);
        self.long(&mut record.proposal);
        self.option(&mut record.proposed, BTreeMap::new, |on, members| {
            on.map(members, 0, Self::number);
        });
        self.map(&mut record.left, (0, 0), Self::pair);
    }

    // ---- what all of it is made of ----

    fn pair(&mut self, (one, other): &mut (u32, u32)) {
        self.number(one);
        self.number(other);
    }

    /// Nearly all are small.
    fn number(&mut self, number: &mut u32) {
        const LONG: u8 = 15;
        let short = u8::try_from(*number).ok().filter(|short| *short < LONG);
        let mut short = short.unwrap_or(LONG);
        self.codec.byte(&mut short, 4);
        if short != LONG {
            *number = short.into();
            return;
        }
        let mut bytes = number.to_le_bytes();
        for byte in &mut bytes {
            self.codec.byte(byte, 8);
        }
        *number = u32::from_le_bytes(bytes);
    }

    fn long(&mut self, number: &mut u64) {
        let mut short = u32::try_from(*number).expect("few proposals");
        self.number(&mut short);
        *number = short.into();
    }

    fn option<T>(
        &mut self,
        value: &mut Option<T>,
        blank: impl FnOnce() -> T,
        code: impl FnOnce(&mut Self, &mut T),
    ) {
        let mut is_some = value.is_some();
        self.codec.flag(&mut is_some);
        if is_some {
            code(self, value.get_or_insert_with(blank));
        } else {
            *value = None;
        }
    }

    fn list<T: Clone>(&mut self, list: &mut Vec<T>, blank: &T, code: impl Fn(&mut Self, &mut T)) {
        let mut length = u32::try_from(list.len()).expect("a short list");
        self.number(&mut length);
        list.resize(length as usize, blank.clone());
        for value in list {
            code(self, value);
        }
    }

    /// By slot.
    fn map<T: Copy>(
        &mut self,
        map: &mut BTreeMap<u32, T>,
        blank: T,
        code: impl Fn(&mut Self, &mut T),
    ) {
        for slot in 0..self.slots {
            let mut has = map.contains_key(&slot);
            self.codec.flag(&mut has);
            if has {
                code(self, map.entry(slot).or_insert(blank));
            } else {
                map.remove(&slot);
            }
        }
    }

    /// Of slots.
    fn set(&mut self, set: &mut BTreeSet<u32>) {
        for slot in 0..self.slots {
            self.member(set, slot);
        }
    }

    fn member<T: Ord>(&mut self, set: &mut BTreeSet<T>, value: T) {
        let had = set.contains(&value);
        let mut has = had;
        self.codec.flag(&mut has);
        match (had, has) {
            (false, true) => drop(set.insert(value)),
            (true, false) => drop(set.remove(&value)),
            _ => {}
        }
    }
}
