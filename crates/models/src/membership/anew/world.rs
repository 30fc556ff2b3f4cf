//! The model of a configuration: where it begins, and what is checked in every state and where nothing moves.

use std::collections::BTreeSet;

use membership_rules::record::RankGeneration;

use super::configuration::Config;
use super::left_out::{AnewRule, LeftOut};
use super::state::{BITS, FOUNDERS, PROCESSES, Process, Rec, Said, State, Store, slot};
use crate::explore::{Broken, Codec, Model, broken};

/// The model of a configuration.
#[derive(Debug)]
pub struct World(pub Config);

impl World {
    pub(super) fn follows(&self, rule: AnewRule) -> bool {
        LeftOut(self.0.left_out).follows(rule)
    }

    pub(super) fn name(state: &State, process: usize) -> RankGeneration {
        (slot(process), state.processes[process].generation.into())
    }

    pub(super) fn is_in(rec: Rec, state: &State, process: usize) -> bool {
        if process < FOUNDERS {
            rec.members >> process & 1 != 0
        } else {
            rec.third != 0 && rec.third == state.processes[process].generation
        }
    }

    pub(super) fn is_proposed(rec: Rec, state: &State, process: usize) -> bool {
        let generation = state.processes[process].generation;
        if process < FOUNDERS {
            rec.keep >> process & 1 != 0
        } else {
            let keeps = rec.keep >> 3 & 1 != 0 && rec.third == generation;
            rec.open && generation != 0 && (keeps || rec.takes == generation)
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
