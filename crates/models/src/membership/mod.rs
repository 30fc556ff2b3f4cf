//! Runs the rules in every order, with bad evidence. Leases lapse while their holders live. The store is slow without failing. Hosts stand
//! still, alone or all at once. Ports and paths go and come back. Ranks die and leave, a newcomer dies, and no rank can read some keys.
//!
//! A tick is half a lease. A lease lapses 2 ticks after its renewal, and a rank that took no turn for a whole tick has a gap. A
//! healthy rank that reaches the store takes at least one turn in each tick, and any number in any order. A turn renews the lease
//! and follows [`Rules`]; the model holds no second copy of them. Where the rules do not fix what a rank sees, the world may show
//! it anything.
//!
//! Checked properties:
//!
//! - E2: no rank is dropped or parted that a member of the new view has not fenced.
//! - E3: a call runs in one view.
//! - E6: no fenced rank is kept whole.
//! - VT: a device finds its view.
//! - A1: once nothing is disturbed, all living ranks serve in one view in every state of a cycle, with no pair parted and no QP broken.
//! - A2: only a rank that was disturbed alone is expelled.
//! - A3: no cycle holds a proposal.
//! - A4: no member closes for a newcomer that has not promised.
//! - A5: a rank that is disturbed for good does not stay while others are well.
//! - N: a newcomer comes in whole with members only where both ends have proven their QPs, and with more than half of them.
//! - T: a rank that has left was part of every call that another ran in a view with it, and of no other call.
//!
//! An earlier prototype in Python has the same worlds. If neither leases nor calls differ, the numbers of states are the same: deaths
//! 4,896, of 4 ranks 8,283; the store stands still twice 1,845. Five things differ here. A rank learns only by its own look of a lost
//! lease, of a leaver that has died and of a newer proposal. A dropped newcomer does not come back. A leaver ends when all ranks have made
//! its last call. The record names the ranks that have left. These differences move most numbers by up to a quarter. If leases lapse one by
//! one, each observer has one more state between the taking of a lease and the look that finds it. That makes up to 2.5 times the states.
//!
//! The model leaves out:
//!
//! - words across a pair that is parted and connected anew; `moe::parted` has them;
//! - turns (P9) and waits after failures, which cost time and decide nothing;
//! - how the pace of the store stretches bounds.
//!
//! Module `world` has time and disturbances, `turn` what a rank does, `check` the properties, `left_out` the rules that may be left out.
//! Configurations are in `tests/`. The numbers of epochs (without calls) and of proposals are kept small, because only their order counts.
//!
//! Two smaller models stand by themselves: [`successors`] has two processes that take one place, and [`anew`] a store that has lost the
//! record.

pub mod anew;
mod check;
mod code;
mod left_out;
pub mod successors;
mod turn;
mod world;

use std::collections::BTreeMap;
use std::fmt;

use membership_rules::clocks::{Bounds, Span};
use membership_rules::evidence::Rules;
use membership_rules::look::{Leaving, Limit, Own, Row};
use membership_rules::members::Members;
use membership_rules::record::{Promise, Proposal, Record};
use membership_rules::slots::Slots;

use crate::explore::{self, Broken, Codec, Edge, broken};

pub use left_out::{LeftOut, Rule};

type Violation = Broken<&'static str>;

/// The number of ticks after which a lease lapses.
const LEASE: u8 = 2;

/// A time of the model, in ticks of half a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Ticks(u8);

impl Span for Ticks {
    fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// How often each disturbance comes. A disturbance begins and ends at any moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Deaths of members and newcomers.
    pub die: u8,
    /// Times that one rank stands still.
    pub pause1: u8,
    /// Times that all ranks stand still.
    pub pauseall: u8,
    /// Times that all calls of the store hang and none fails, while leases age.
    pub stall: u8,
    /// Times that the store loses a lease.
    pub lose: u8,
    /// Times that the port of one rank is down.
    pub port1: u8,
    /// Times that the ports of all ranks are down.
    pub portall: u8,
    /// Times that no path to one rank carries.
    pub cut1: u8,
    /// Times that no path carries.
    pub cutall: u8,
    /// Times that the path between rank 0 and another does not carry.
    pub cutlink: u8,
    /// Times that ranks 0 and 1 are cut off from 2 and 3.
    pub cuthalf: u8,
    /// Times that one rank does not reach the store.
    pub xstall: u8,
    /// Times that a member wants to leave.
    pub leave: u8,
    /// Times that the newcomer comes.
    pub join: u8,
    /// Times that a key cannot be read.
    pub junkrow: u8,
    /// 1: a rank without a lease asks for the slot of a member. 2: it asks for the slot of the newcomer.
    pub junkask: u8,
    /// Times that a rank that a view parts has calls to make from before that view.
    pub behind: u8,
    /// Times that a rank waits for words before it proposes that ranks go or part (`doubt.rs`). [`ENDLESS`]: as often as it likes.
    pub doubt: u8,
}

/// A budget that is never spent.
pub const ENDLESS: u8 = 7;

/// A budget without any disturbance.
pub const NONE: Budget = Budget {
    die: 0,
    pause1: 0,
    pauseall: 0,
    stall: 0,
    lose: 0,
    port1: 0,
    portall: 0,
    cut1: 0,
    cutall: 0,
    cutlink: 0,
    cuthalf: 0,
    xstall: 0,
    leave: 0,
    join: 0,
    junkrow: 0,
    junkask: 0,
    behind: 0,
    doubt: 0,
};

/// One configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of members at the start.
    pub ranks: u32,
    /// True if calls are made, so that words arrive.
    pub traffic: bool,
    /// Number of calls that devices run, for E3.
    pub calls: u32,
    /// True if writes of record and promises land later than they were decided.
    pub split: bool,
    /// True if ends of processes are seen at once.
    pub witness: bool,
    /// The stall bound, in ticks.
    pub bound: u8,
    /// True if QPs fail pair by pair.
    pub onebyone: bool,
    /// True if contact is old. Then a pair counts as one that exchanges for the stall bound after its last word, unless a QP of it has
    /// failed. The QPs between 0 and 1 never fail.
    pub stale: bool,
    /// The properties that are checked; an empty list stands for all.
    pub only: &'static [&'static str],
    /// How often each disturbance may happen.
    pub budget: Budget,
    /// Rules that the ranks do not follow.
    pub left_out: &'static [Rule],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Unborn,
    Alive,
    Dead,
    Over,
    Left,
}

/// A write that a rank has decided, and that has not landed in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pending {
    Propose(Proposal),
    Promise(Promise),
    Commit(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rank {
    life: Life,
    own: Own<Ticks>,
    /// The device: its next call, its views (first call, epoch), and the epoch of each call that it ran.
    next: u32,
    views: Vec<(u32, u32)>,
    ran: Vec<u32>,
    pending: Option<Pending>,
    /// Ticks since the rank's last turn.
    passed: u8,
    /// `stood`: the rank stood still since that turn. `waited`: the store did.
    stood: bool,
    waited: bool,
    /// Ranks whose takings have grown since the rank's last look.
    wrote: Slots,
    /// True if the rank has just revoked its lease.
    revoked: bool,
    /// By slot: ticks since something was heard of the rank, if contact is old.
    silence: Vec<u8>,
}

/// What disturbs the ranks. Sets of ranks and of pairs are bits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct World {
    up: bool,
    paused: u8,
    /// Ticks for which one rank stands still. Below 0 it went on, and the others have not looked yet.
    alone: i8,
    down: u8,
    cut: u8,
    far: u8,
    /// Ranks that have calls to make from before the view.
    behind: u8,
    /// Ranks that were disturbed while the others were not.
    disturbed: u8,
    budget: Budget,
    junkrow: bool,
    junkask: bool,
}

/// A state of the model: ranks, store and world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    ranks: Vec<Rank>,
    /// By slot: ticks since the lease was renewed.
    lease: Vec<u8>,
    rows: Vec<Row>,
    promises: BTreeMap<u32, Promise>,
    said: BTreeMap<u32, u32>,
    record: Record,
    /// Members of each view, for T; empty without calls.
    history: Vec<u8>,
    world: World,
}

/// The name of a step.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    rank: Option<u32>,
    what: &'static str,
    edge: Edge,
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
    config: Config,
    rules: Rules<Ticks, LeftOut>,
    /// Number of slots, with that of the newcomer.
    slots: u32,
}

/// Returns the bit of a rank.
fn bit(rank: u32) -> u8 {
    1 << rank
}

/// Returns the bit of a pair.
fn pair(a: u32, b: u32) -> u8 {
    let (low, high) = (a.min(b), a.max(b));
    1 << (high * (high - 1) / 2 + low)
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

    fn follows(&self, rule: Rule) -> bool {
        self.rules.book.follows(rule)
    }

    /// Returns the slot of the newcomer.
    fn newcomer(&self) -> Option<u32> {
        (self.slots > self.config.ranks).then_some(self.config.ranks)
    }

    fn all(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.slots
    }

    /// Returns the violation of `property`, if the configuration checks that property.
    fn fail(&self, property: &'static str, text: String) -> Result<(), Violation> {
        if self.config.only.is_empty() || self.config.only.contains(&property) {
            broken(property, text)
        } else {
            Ok(())
        }
    }

    /// Returns a rank that does nothing.
    fn blank(&self, slot: u32) -> Rank {
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

    fn start(&self) -> State {
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
    fn renumber(&self, state: &mut State) {
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

impl explore::Model for Model {
    type State = State;
    type Step = Label;
    type Property = &'static str;

    const MOST_STATES: usize = 4_000_000;

    fn first(&self) -> State {
        self.start()
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        code::Coder {
            slots: self.slots,
            codec,
        }
        .state(state);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Label, State)) -> Result<(), Violation> {
        let mut emit = |label: Label, mut next: State| {
            self.renumber(&mut next);
            if next != *state {
                emit(label, next);
            }
        };
        self.ranks_step(state, &mut emit)?;
        self.disturb(state, &mut emit);
        Ok(())
    }

    fn at_rest(&self, _: &State) -> Result<(), Violation> {
        Ok(())
    }

    fn once(&self) -> Option<Violation> {
        Some(Broken {
            property: "A3",
            text: "proposals without end".to_owned(),
        })
    }

    fn edge(&self, step: &Label) -> Edge {
        step.edge
    }

    fn on_cycle(&self, state: &State) -> Result<(), Violation> {
        if self.is_calm(state) && !self.is_good(state) {
            return broken("A1", "undisturbed, and not in one view for ever".to_owned());
        }
        if self.lingers(state) {
            broken(
                "A5",
                "one who is disturbed for good stays a member".to_owned(),
            )
        } else {
            Ok(())
        }
    }
}
