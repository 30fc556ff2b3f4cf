//! Time, and what disturbs the ranks.

use membership_rules::look::{Leaving, Row};

use super::configuration::Budget;
use super::left_out::Rule;
use super::model::{Label, Model};
use super::state::{LEASE, Life, Rank, State, bit, pair};
use crate::explore::Edge;

/// Returns whether something that `a` sends arrives at `b`.
pub(super) fn path(state: &State, a: u32, b: u32) -> bool {
    let world = &state.world;
    world.down & (bit(a) | bit(b)) == 0 && world.cut & pair(a, b) == 0
}

/// Returns whether a word of `other` arrives at `rank`, or a QP to it completes something.
pub(super) fn hears(model: &Model, state: &State, rank: u32, other: u32) -> bool {
    let (own, its) = (&state.ranks[rank as usize], &state.ranks[other as usize]);
    model.config.traffic
        && its.life == Life::Alive
        && state.world.paused & bit(other) == 0
        && its.own.applied != 0
        && path(state, rank, other)
        && !own.own.broken.contains(other)
        && !its.own.broken.contains(rank)
        && !state.record.parted.contains(rank, other)
}

/// Returns whether `rank` can take a turn.
pub(super) fn is_free(state: &State, rank: u32) -> bool {
    let world = &state.world;
    state.ranks[rank as usize].life == Life::Alive
        && world.up
        && (world.paused | world.far) & bit(rank) == 0
}

/// Returns a rank that has ended.
pub(super) fn off(model: &Model, rank: &Rank, life: Life) -> Rank {
    Rank {
        life,
        ran: rank.ran.clone(),
        ..model.blank(rank.own.slot)
    }
}

pub(super) fn tick(model: &Model, state: &State) -> State {
    let mut next = state.clone();
    let world = &mut next.world;
    for (slot, rank) in model.all().zip(&mut next.ranks) {
        if rank.life != Life::Alive {
            continue;
        }
        if rank.passed > 0 {
            rank.stood |= world.paused & bit(slot) != 0;
            rank.waited |= !world.up || world.far & bit(slot) != 0;
        }
        rank.passed = (rank.passed + 1).min(LEASE + 2);
        for ticks in &mut rank.silence {
            *ticks = (*ticks + 1).min(model.config.bound + 1);
        }
    }
    if world.alone < 0 {
        world.alone += 1;
    } else if world.alone > 0 {
        world.alone = (world.alone + 1).min(4);
        for slot in model.all().filter(|slot| world.paused & bit(*slot) != 0) {
            if world.alone > 3 || next.lease[slot as usize] > LEASE {
                world.disturbed |= bit(slot);
            }
        }
    }
    for slot in 0..next.lease.len() {
        // If the rule is left out, a thread renews the lease while the rules hang.
        let beside = !model.follows(Rule::RenewedByRules);
        if !beside || next.ranks[slot].life != Life::Dead {
            next.lease[slot] = (next.lease[slot] + 1).min(LEASE + 1);
        }
        if next.lease[slot] > LEASE {
            next.rows[slot] = Row::default();
        }
    }
    next
}

pub(super) fn steps(model: &Model, state: &State, emit: &mut impl FnMut(Label, State)) {
    disturb_hosts(model, state, emit);
    disturb_store(state, emit);
    disturb_paths(model, state, emit);
    fail_qps(model, state, emit);
    fall_behind(state, emit);
}

fn living(state: &State) -> impl Iterator<Item = u32> {
    let all = (0u32..).zip(&state.ranks);
    all.filter(|it| it.1.life == Life::Alive).map(|it| it.0)
}

fn disturb_hosts(model: &Model, state: &State, emit: &mut impl FnMut(Label, State)) {
    let world = &state.world;
    let budget = world.budget;
    if budget.die > 0 {
        for slot in living(state) {
            let mut next = state.clone();
            next.ranks[slot as usize] = off(model, &state.ranks[slot as usize], Life::Dead);
            next.world.disturbed |= bit(slot);
            next.world.paused &= !bit(slot);
            next.world.budget.die -= 1;
            emit(new(Some(slot), "dies"), next);
        }
    }
    if world.paused == 0 {
        if budget.pause1 > 0 {
            for slot in living(state) {
                let mut next = state.clone();
                let lapsed = state.lease[slot as usize] > LEASE;
                if lapsed || world.alone < 0 {
                    next.world.disturbed |= bit(slot);
                }
                (next.world.paused, next.world.alone) = (bit(slot), 1);
                next.world.budget.pause1 -= 1;
                emit(new(Some(slot), "stands still"), next);
            }
        }
        if budget.pauseall > 0 {
            let mut next = state.clone();
            next.world.paused = living(state).fold(0, |all, slot| all | bit(slot));
            next.world.budget.pauseall -= 1;
            emit(new(None, "all stand still"), next);
        }
    } else {
        let mut next = state.clone();
        next.world.paused = 0;
        next.world.alone = if world.alone == 0 { 0 } else { -2 };
        emit(new(None, "they go on"), next);
    }
    if budget.leave > 0 {
        for slot in living(state) {
            let own = &state.ranks[slot as usize].own;
            if own.applied != 0 && own.leaving == Leaving::No {
                let mut next = state.clone();
                next.ranks[slot as usize].own.leaving = Leaving::Wants;
                next.world.disturbed |= bit(slot);
                next.world.budget.leave -= 1;
                emit(new(Some(slot), "wants to go"), next);
            }
        }
    }
    let Some(slot) = model.newcomer().filter(|_| budget.join > 0) else {
        return;
    };
    let all_stand = world.paused != 0 && world.alone == 0;
    if state.ranks[slot as usize].life == Life::Unborn && !all_stand {
        let mut next = state.clone();
        next.ranks[slot as usize].life = Life::Alive;
        next.lease[slot as usize] = 0;
        next.world.budget.join -= 1;
        emit(new(Some(slot), "comes"), next);
    }
}

fn disturb_store(state: &State, emit: &mut impl FnMut(Label, State)) {
    let world = &state.world;
    let budget = world.budget;
    let mut change = |label, change: &dyn Fn(&mut State)| {
        let mut next = state.clone();
        change(&mut next);
        emit(label, next);
    };
    if !world.up {
        change(new(None, "the store goes on"), &|next| next.world.up = true);
    } else if budget.stall > 0 {
        change(new(None, "the store stands still"), &|next| {
            next.world.up = false;
            next.world.budget.stall -= 1;
        });
    }
    if world.far != 0 {
        change(new(None, "the store is near again"), &|next| {
            next.world.far = 0;
        });
    } else if budget.xstall > 0 {
        for slot in living(state) {
            change(new(Some(slot), "is far from the store"), &|next| {
                next.world.far = bit(slot);
                next.world.budget.xstall -= 1;
            });
        }
    }
    if budget.lose > 0 {
        for slot in living(state) {
            if state.lease[slot as usize] <= LEASE {
                change(new(Some(slot), "has its lease lost"), &|next| {
                    next.lease[slot as usize] = LEASE + 1;
                    if world.alone != 0 {
                        next.world.disturbed |= world.paused & bit(slot);
                    }
                    next.world.budget.lose -= 1;
                });
            }
        }
    }
    if budget.junkrow > 0 {
        change(new(None, "a key that cannot be read"), &|next| {
            next.world.junkrow = true;
            next.world.budget.junkrow -= 1;
        });
    }
    if budget.junkask > 0 {
        change(new(None, "an asker without a lease"), &|next| {
            next.world.junkask = true;
            next.world.budget.junkask -= 1;
        });
    }
}

fn disturb_paths(model: &Model, state: &State, emit: &mut impl FnMut(Label, State)) {
    let world = &state.world;
    let mut change = |label, down: u8, cut: u8, ill: u8, spend: fn(&mut Budget)| {
        let mut next = state.clone();
        (next.world.down, next.world.cut) = (down, cut);
        next.world.disturbed |= ill;
        spend(&mut next.world.budget);
        emit(label, next);
    };
    let budget = world.budget;
    let all = model.all().fold(0, |all, slot| all | bit(slot));
    let pairs = |cut: &dyn Fn(u32, u32) -> bool| {
        let pairs = model.all().flat_map(|b| (0..b).map(move |a| (a, b)));
        let those = pairs.filter(|(a, b)| cut(*a, *b));
        those.fold(0, |all, (a, b)| all | pair(a, b))
    };
    if world.down != 0 {
        change(new(None, "ports up"), 0, world.cut, 0, |_| ());
    } else {
        if budget.port1 > 0 {
            for slot in living(state) {
                let ill = bit(slot);
                let label = new(Some(slot), "has its port down");
                change(label, ill, world.cut, ill, |left| left.port1 -= 1);
            }
        }
        if budget.portall > 0 {
            let label = new(None, "all ports down");
            change(label, all, world.cut, 0, |left| left.portall -= 1);
        }
    }
    if world.cut != 0 {
        change(new(None, "paths carry"), world.down, 0, 0, |_| ());
        return;
    }
    if budget.cut1 > 0 {
        for slot in living(state) {
            let cut = pairs(&|a, b| a == slot || b == slot);
            let label = new(Some(slot), "is cut off");
            change(label, world.down, cut, bit(slot), |left| left.cut1 -= 1);
        }
    }
    if budget.cutall > 0 {
        let label = new(None, "no path carries");
        let cut = pairs(&|_, _| true);
        change(label, world.down, cut, 0, |left| left.cutall -= 1);
    }
    if budget.cuthalf > 0 {
        let label = new(None, "2 and 3 are cut off");
        let cut = pairs(&|a, b| a < 2 && b >= 2);
        change(label, world.down, cut, 12, |left| left.cuthalf -= 1);
    }
    if budget.cutlink > 0 {
        let other = model.newcomer().unwrap_or(1);
        let label = new(None, "no path between 0 and another");
        let cut = pair(0, other);
        change(label, world.down, cut, 0, |left| left.cutlink -= 1);
    }
}

/// Begins or ends a disturbance in which a rank has calls to make from before the view.
fn fall_behind(state: &State, emit: &mut impl FnMut(Label, State)) {
    let world = &state.world;
    if world.behind != 0 {
        let mut next = state.clone();
        next.world.behind = 0;
        emit(new(None, "all have made their calls"), next);
    } else if world.budget.behind > 0 {
        for slot in living(state) {
            let own = &state.ranks[slot as usize].own;
            let parted = state.record.parted.of(slot);
            if !parted.is_empty() && own.connected.and(&parted).is_empty() {
                let mut next = state.clone();
                next.world.behind = bit(slot);
                next.world.budget.behind -= 1;
                emit(new(Some(slot), "has calls to make"), next);
            }
        }
    }
}

/// Lets HCAs give up QPs that do not carry.
fn fail_qps(model: &Model, state: &State, emit: &mut impl FnMut(Label, State)) {
    let has_view = |slot: u32| state.ranks[slot as usize].own.applied != 0;
    let hurt = |a: u32, b: u32| {
        let rank = &state.ranks[a as usize];
        a != b
            && !(model.config.stale && a + b == 1)
            && rank.life == Life::Alive
            && !path(state, a, b)
            && !rank.own.broken.contains(b)
            && (rank.own.connected.contains(b) || has_view(a) && has_view(b))
    };
    let ends = model.all().flat_map(|a| model.all().map(move |b| (a, b)));
    let hurt: Vec<(u32, u32)> = ends.filter(|(a, b)| hurt(*a, *b)).collect();
    let mut fail = |some: &mut dyn Iterator<Item = (u32, u32)>| {
        let mut next = state.clone();
        for (a, b) in some {
            let own = &mut next.ranks[a as usize].own;
            own.broken.insert(b);
            own.connected.remove(b);
        }
        emit(new(None, "QPs fail"), next);
    };
    if !model.config.onebyone {
        fail(&mut hurt.iter().copied());
        return;
    }
    for &(a, b) in &hurt {
        if a < b || !hurt.contains(&(b, a)) {
            let both = [(a, b), (b, a)];
            fail(&mut hurt.iter().copied().filter(|end| both.contains(end)));
        }
    }
}

/// Returns the label of a disturbance.
fn new(rank: Option<u32>, what: &'static str) -> Label {
    Label {
        rank,
        what,
        edge: Edge::Outside,
    }
}
