//! The model of a configuration: its parameters, and where it begins.

use std::collections::BTreeMap;
use std::fmt;

use membership_rules::clocks::Bounds;
use membership_rules::evidence::Rules;
use membership_rules::look::{Limit, Own, Row};
use membership_rules::record::Record;
use membership_rules::slots::Slots;

use super::configuration::Config;
use super::left_out::{LeftOut, Rule};
use super::state::{LEASE, Life, Rank, State, Ticks, World};
use crate::explore::{Broken, Edge, broken};

pub(super) type Violation = Broken<&'static str>;

/// The name of a step.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    pub(super) rank: Option<u32>,
    pub(super) what: &'static str,
    pub(super) edge: Edge,
}

impl fmt::Display for Label {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(out, "{rank} {}", self.what),
            None => out.write_str(self.what),
        }
    }
}

/// The model of a configuration, whose ranks follow the rules that are not left out.
#[derive(Debug)]
pub struct Model {
    pub(super) config: Config,
    pub(super) rules: Rules<Ticks, LeftOut>,
    /// Number of slots, with that of the newcomer.
    pub(super) slots: u32,
}

impl Model {
    /// Returns the model of `config`.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let joins = config.budget.join > 0 || config.budget.junkask == 2;
        let bounds = Bounds {
            between: Ticks(1),
            call: Ticks(1),
            unheard: Ticks(3),
            stalled: Ticks(config.bound),
            unanswered: Ticks(4),
            found: Ticks(3),
        };
        let book = LeftOut(config.left_out);
        let rules = Rules { bounds, book };
        Self {
            config,
            rules,
            slots: config.ranks + u32::from(joins),
        }
    }

    pub(super) fn follows(&self, rule: Rule) -> bool {
        self.rules.book.follows(rule)
    }

    /// Returns the slot of the newcomer.
    pub(super) fn newcomer(&self) -> Option<u32> {
        (self.slots > self.config.ranks).then_some(self.config.ranks)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.slots
    }

    /// Returns the violation of `property`, if the configuration checks that property.
    pub(super) fn fail(&self, property: &'static str, text: String) -> Result<(), Violation> {
        if self.config.only.is_empty() || self.config.only.contains(&property) {
            broken(property, text)
        } else {
            Ok(())
        }
    }

    /// Returns a rank that does nothing.
    pub(super) fn blank(&self, slot: u32) -> Rank {
        Rank {
            life: Life::Unborn,
            own: Own::newcomer(slot, 1),
            next: 1,
            views: Vec::new(),
            ran: vec![0; self.config.calls as usize],
            pending: None,
            passed: 0,
            stood: false,
            waited: false,
            wrote: Slots::default(),
            revoked: false,
            silence: if self.config.stale {
                vec![self.config.bound + 1; self.slots as usize]
            } else {
                Vec::new()
            },
        }
    }

    /// Returns the state in which all founders serve.
    pub(super) fn start(&self) -> State {
        let founders = 0..self.config.ranks;
        let rank = |slot| {
            let mut rank = self.blank(slot);
            if slot < self.config.ranks {
                rank.life = Life::Alive;
                rank.passed = 1;
                (rank.own.applied, rank.own.limit) = (1, Limit::Open);
                if self.config.calls > 0 {
                    rank.views.push((1, 1));
                }
            }
            rank
        };
        let lease = |slot| match slot < self.config.ranks {
            true => 0,
            false => LEASE + 1,
        };
        let mut state = State {
            ranks: self.all().map(rank).collect(),
            lease: self.all().map(lease).collect(),
            rows: self.all().map(|_| Row::default()).collect(),
            promises: BTreeMap::new(),
            said: BTreeMap::new(),
            record: Record::founded(founders.map(|slot| (slot, 1)).collect()),
            history: match self.config.calls {
                0 => Vec::new(),
                _ => vec![(1 << self.config.ranks) - 1],
            },
            world: World {
                up: true,
                paused: 0,
                alone: 0,
                down: 0,
                cut: 0,
                far: 0,
                behind: 0,
                disturbed: 0,
                budget: self.config.budget,
                junkrow: false,
                junkask: false,
            },
        };
        self.renumber(&mut state);
        state
    }

    /// Renumbers views and proposals, so that numbers stay small. Only their order counts.
    pub(super) fn renumber(&self, state: &mut State) {
        let (number, epoch) = (state.record.number, state.record.epoch);
        for rank in &mut state.ranks {
            let own = &mut rank.own;
            if let Some((of, _)) = &mut own.promised {
                *of = if *of == number { 2 } else { 1 };
            }
            own.unanswered = match own.unanswered {
                (of, time) if of == number && state.record.open.is_some() => (2, time),
                _ => (0, Ticks(0)),
            };
            if self.config.calls == 0 && own.applied != 0 {
                own.applied = if own.applied == epoch { 2 } else { 1 };
            }
        }
        state.record.number = 2;
        if self.config.calls == 0 {
            state.record.epoch = 2;
        }
    }
}
