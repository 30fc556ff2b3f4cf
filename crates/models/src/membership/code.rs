//! Writes states as bits, and reads them.

use std::collections::BTreeMap;

use membership_rules::clocks::Clock;
use membership_rules::look::{Leaving, Limit, Row};
use membership_rules::members::Members;
use membership_rules::record::{Promise, Proposal, Record};
use membership_rules::slots::{Pairs, Slots};

use super::configuration::Budget;
use super::state::{Life, Pending, Rank, State, Ticks, World};
use crate::explore::Codec;

/// Writes or reads a state. When a state is read, the values that stood in it before do not matter.
pub(super) struct Coder<'a, C> {
    pub(super) slots: u32,
    pub(super) codec: &'a mut C,
}

impl<C: Codec> Coder<'_, C> {
    pub(super) fn state(&mut self, state: &mut State) {
        for rank in &mut state.ranks {
            self.rank(rank);
        }
        for lease in &mut state.lease {
            self.codec.byte(lease, 2);
        }
        for row in &mut state.rows {
            self.row(row);
        }
        self.map(&mut state.promises, Promise { last: None }, Self::promise);
        self.map(&mut state.said, 0, Self::number);
        self.record(&mut state.record);
        let mut views = u32::try_from(state.history.len()).expect("few");
        self.number(&mut views);
        state.history.resize(views as usize, 0);
        for members in &mut state.history {
            self.codec.byte(members, self.slots);
        }
        self.world(&mut state.world);
    }

    fn world(&mut self, world: &mut World) {
        for flag in [&mut world.up, &mut world.junkrow, &mut world.junkask] {
            self.codec.flag(flag);
        }
        for ranks in [
            &mut world.paused,
            &mut world.down,
            &mut world.far,
            &mut world.behind,
            &mut world.disturbed,
        ] {
            self.codec.byte(ranks, self.slots);
        }
        self.codec.byte(&mut world.cut, 6);
        let mut alone = u8::try_from(world.alone + 2).expect("from -2 on");
        self.codec.byte(&mut alone, 3);
        world.alone = i8::try_from(alone).expect("three bits") - 2;
        let Budget {
            die,
            pause1,
            pauseall,
            stall,
            lose,
            port1,
            portall,
            cut1,
            cutall,
            cutlink,
            cuthalf,
            xstall,
            leave,
            join,
            junkrow,
            junkask,
            behind,
            doubt,
        } = &mut world.budget;
        for left in [
            die, pause1, pauseall, stall, lose, port1, portall, cut1, cutall, cutlink, cuthalf,
            xstall, leave, join, junkrow, junkask, behind, doubt,
        ] {
            self.codec.byte(left, 3);
        }
    }

    fn rank(&mut self, rank: &mut Rank) {
        const LIVES: [Life; 5] = [
            Life::Unborn,
            Life::Alive,
            Life::Dead,
            Life::Over,
            Life::Left,
        ];
        self.one_of(&mut rank.life, &LIVES);
        self.number(&mut rank.next);
        let mut views = u32::try_from(rank.views.len()).expect("two at most");
        self.number(&mut views);
        rank.views.resize(views as usize, (0, 0));
        for (first, epoch) in &mut rank.views {
            self.number(first);
            self.number(epoch);
        }
        for epoch in &mut rank.ran {
            self.number(epoch);
        }
        let mut kind = match rank.pending {
            None => 0,
            Some(Pending::Propose(_)) => 1,
            Some(Pending::Promise(_)) => 2,
            Some(Pending::Commit(_)) => 3,
        };
        let before = kind;
        self.codec.byte(&mut kind, 2);
        if kind != before {
            rank.pending = match kind {
                0 => None,
                1 => Some(Pending::Propose(Proposal::default())),
                2 => Some(Pending::Promise(Promise { last: None })),
                _ => Some(Pending::Commit(0)),
            };
        }
        match &mut rank.pending {
            None => {}
            Some(Pending::Propose(proposal)) => self.proposal(proposal),
            Some(Pending::Promise(promise)) => self.promise(promise),
            Some(Pending::Commit(first)) => self.number(first),
        }
        self.codec.byte(&mut rank.passed, 3);
        for flag in [&mut rank.stood, &mut rank.waited, &mut rank.revoked] {
            self.codec.flag(flag);
        }
        self.set(&mut rank.wrote);
        for ticks in &mut rank.silence {
            self.codec.byte(ticks, 3);
        }
        let own = &mut rank.own;
        self.number(&mut own.applied);
        self.limit(&mut own.limit);
        let blank = || (0, Promise { last: None });
        self.option(&mut own.promised, blank, |on, (of, promise)| {
            on.long(of);
            on.promise(promise);
        });
        for set in [
            &mut own.fenced,
            &mut own.broken,
            &mut own.connected,
            &mut own.unproven,
        ] {
            self.set(set);
        }
        for clocks in [&mut own.unheard, &mut own.apart] {
            self.map(clocks, Clock::default(), |on, clock| {
                on.codec.byte(&mut clock.time.0, 3);
                on.codec.byte(&mut clock.looks, 3);
            });
        }
        let (of, Ticks(time)) = &mut own.unanswered;
        self.long(of);
        self.codec.byte(time, 3);
        self.codec.flag(&mut own.solo);
        let all = [Leaving::No, Leaving::Wants, Leaving::Said];
        self.one_of(&mut own.leaving, &all);
    }

    fn row(&mut self, row: &mut Row) {
        let Row {
            unheard,
            broken,
            overdue,
            meets,
            connected,
            unproven,
            ended,
            behind,
        } = row;
        self.codec.flag(behind);
        for set in [unheard, broken, overdue, meets, connected, unproven, ended] {
            self.set(set);
        }
    }

    fn record(&mut self, record: &mut Record) {
        self.number(&mut record.epoch);
        self.members(&mut record.members);
        self.pairs(&mut record.parted);
        self.number(&mut record.first);
        self.members(&mut record.admitted);
        self.map(&mut record.left, (0, 0), |on, (generation, first)| {
            on.number(generation);
            on.number(first);
        });
        self.long(&mut record.number);
        self.option(&mut record.open, Proposal::default, Self::proposal);
    }

    fn proposal(&mut self, proposal: &mut Proposal) {
        self.number(&mut proposal.by);
        self.set(&mut proposal.keep);
        self.members(&mut proposal.takes);
        self.map(&mut proposal.leaves, 0, Self::number);
        self.pairs(&mut proposal.parts);
    }

    fn promise(&mut self, promise: &mut Promise) {
        self.option(&mut promise.last, || 0, Self::number);
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

    // ---- the parts of a state ----

    fn one_of<T: Copy + PartialEq>(&mut self, value: &mut T, all: &[T]) {
        let at = all.iter().position(|one| one == value).expect("one of all");
        let mut at = u8::try_from(at).expect("few");
        self.codec.byte(&mut at, 3);
        *value = all[usize::from(at)];
    }

    /// Writes or reads a number, which must be small.
    fn number(&mut self, number: &mut u32) {
        let mut short = u8::try_from(*number).expect("small");
        self.codec.byte(&mut short, 5);
        *number = short.into();
    }

    fn long(&mut self, number: &mut u64) {
        let mut short = u8::try_from(*number).expect("small");
        self.codec.byte(&mut short, 2);
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
            code(self, value.get_or_insert_with(blank))
        } else {
            *value = None;
        }
    }

    fn members(&mut self, members: &mut Members) {
        for slot in 0..self.slots {
            let before = members.get(slot);
            let mut generation = before;
            self.option(&mut generation, || 0, Self::generation);
            match generation {
                now if now == before => {}
                Some(generation) => drop(members.insert(slot, generation)),
                None => drop(members.remove(slot)),
            }
        }
    }

    fn generation(&mut self, generation: &mut u32) {
        let mut short = u8::try_from(*generation).expect("small");
        self.codec.byte(&mut short, 2);
        *generation = short.into();
    }

    /// Writes or reads a map by slot.
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

    fn set(&mut self, set: &mut Slots) {
        for slot in 0..self.slots {
            let mut has = set.contains(slot);
            self.codec.flag(&mut has);
            if has {
                set.insert(slot)
            } else {
                set.remove(slot)
            }
        }
    }

    fn pairs(&mut self, pairs: &mut Pairs) {
        for b in 0..self.slots {
            for a in 0..b {
                let mut has = pairs.contains(a, b);
                self.codec.flag(&mut has);
                if has {
                    pairs.insert(a, b)
                } else {
                    pairs.remove(a, b)
                }
            }
        }
    }
}
