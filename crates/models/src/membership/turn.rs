//! What a rank does: a turn by the rules, writes that land in the store, and calls of its device.

use membership_rules::clocks::{Clock, LOOKS};
use membership_rules::look::{Ask, Leaving, Limit, Look};
use membership_rules::record::{Proposal, Record};
use membership_rules::slots::Slots;
use membership_rules::steps::Step;

use super::check;
use super::configuration::ENDLESS;
use super::left_out::Rule;
use super::model::{Label, Model, Violation};
use super::state::{LEASE, Life, Pending, State, Ticks, bit};
use super::world;
use crate::explore::Edge;

/// What a rank that would propose that ranks go or part has heard (`doubt.rs`): a word of each rank that stays, or not. The world decides
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    Come,
    Lack,
}

pub(super) fn steps(
    model: &Model,
    state: &State,
    emit: &mut impl FnMut(Label, State),
) -> Result<(), Violation> {
    for slot in model.all() {
        let rank = &state.ranks[slot as usize];
        if rank.life != Life::Alive {
            continue;
        }
        if world::is_free(state, slot) {
            let (label, next) = match &rank.pending {
                Some(pending) => lands(model, state.clone(), slot, pending.clone())?,
                None => turn(model, state, slot, Words::Come)?,
            };
            emit(label, next);
            if rank.pending.is_none() && state.world.budget.doubt > 0 {
                let (label, next) = turn(model, state, slot, Words::Lack)?;
                emit(label, next);
            }
        }
        let may = may_start(state, slot);
        if !rank.views.is_empty() && rank.next <= model.config.calls && may {
            let (label, next) = device(model, state, slot)?;
            emit(label, next);
        }
    }
    let late = model
        .all()
        .any(|slot| needs_older(state, slot) && may_start(state, slot));
    let waits = |slot: u32| {
        let rank = &state.ranks[slot as usize];
        world::is_free(state, slot) && (rank.passed > 0 || rank.pending.is_some())
    };
    let left = (0u32..)
        .zip(&state.ranks)
        .filter(|(_, rank)| rank.life == Life::Alive && rank.own.leaving != Leaving::No);
    let mut left = left.map(|(slot, _)| slot);
    let late = late || left.any(|slot| is_awaited(model, state, slot));
    if !late && !model.all().any(waits) {
        emit(does(None, "tick"), world::tick(model, state));
    }
    Ok(())
}

fn may_start(state: &State, slot: u32) -> bool {
    let rank = &state.ranks[slot as usize];
    match rank.own.limit {
        Limit::Closed => false,
        Limit::UpTo(last) => rank.next <= last,
        Limit::Open => true,
    }
}

/// Returns whether the older of the two views of the rank's device is still needed.
fn needs_older(state: &State, slot: u32) -> bool {
    let rank = &state.ranks[slot as usize];
    rank.views.len() == 2 && rank.next < rank.views[1].0
}

/// Returns whether the devices of `slot` and of all living members have run all calls up to `last`.
fn is_through(model: &Model, state: &State, last: u32, slot: u32) -> bool {
    let last = last.min(model.config.calls);
    let members = state.record.members.keys();
    let mut all = members.chain([slot]).map(|of| &state.ranks[of as usize]);
    all.all(|rank| rank.life != Life::Alive || rank.next > last)
}

/// Returns whether a leaver waits for a device that may go on. Then devices are not slower than ticks.
fn is_awaited(model: &Model, state: &State, slot: u32) -> bool {
    let last = (state.record.first - 1).min(model.config.calls);
    let members = state.record.members.keys();
    members.chain([slot]).any(|of| {
        let rank = &state.ranks[of as usize];
        let runs = rank.life == Life::Alive && !rank.views.is_empty();
        runs && rank.next <= last && may_start(state, of)
    })
}

fn look(model: &Model, state: &State, slot: u32) -> Look<Ticks> {
    let rank = &state.ranks[slot as usize];
    let holds = |of: &u32| state.lease[*of as usize] <= LEASE;
    let others = || model.all().filter(|of| *of != slot);
    let heard: Slots = others()
        .filter(|of| world::hears(model, state, slot, *of))
        .collect();
    let lately = |of: &u32| {
        let silence = rank.silence.get(*of as usize);
        silence.is_some_and(|ticks| *ticks <= model.config.bound)
    };
    let contact = heard.with(&others().filter(lately).collect());
    // If contact is old, kernels say just as late that they wait in vain.
    let silent = if model.config.traffic {
        others().filter(|of| !contact.contains(*of)).collect()
    } else {
        Slots::default()
    };
    let dead = |of: &u32| state.ranks[*of as usize].life == Life::Dead;
    // With `witness` all ranks run on one machine; otherwise each runs on its own.
    let (ended, beside) = if model.config.witness {
        (model.all().filter(dead).collect(), model.all().collect())
    } else {
        Default::default()
    };
    let row = |of: u32| (of, state.rows[of as usize].clone());
    let mut look = Look {
        passed: Ticks(rank.passed.min(1)),
        call: Ticks(0),
        holders: model.all().filter(holds).collect(),
        wrote: rank.wrote.clone(),
        contact,
        heard,
        calls: true,
        silent,
        ended,
        beside,
        rows: model.all().filter(holds).map(row).collect(),
        promises: state.promises.clone(),
        goodbyes: state.said.clone(),
        has_place: !needs_older(state, slot),
        behind: state.world.behind & bit(slot) != 0,
        through: is_through(model, state, state.record.first - 1, slot),
        started: rank.next - 1,
        ..Look::default()
    };
    if rank.stood {
        look.passed = Ticks(rank.passed);
    }
    if rank.waited {
        look.call = Ticks(rank.passed);
    }
    if let Some(comes) = model.newcomer().filter(holds) {
        let row = state.rows[comes as usize].clone();
        look.asks.insert((comes, 1), Ask { holds: true, row });
    }
    if state.world.junkask {
        let of = model.newcomer().unwrap_or(1);
        look.asks.insert((of, 2), Ask::default());
    }
    look
}

fn turn(
    model: &Model,
    state: &State,
    slot: u32,
    words: Words,
) -> Result<(Label, State), Violation> {
    let at = slot as usize;
    let mut next = state.clone();
    let (stood, waited) = (state.ranks[at].stood, state.ranks[at].waited);
    if !model.follows(Rule::KeysOneByOne) && state.world.junkrow {
        next.ranks[at].passed = 0;
        next.lease[at] = 0;
        return Ok((does(Some(slot), "cannot look"), next));
    }
    if !model.follows(Rule::NotRevoked) && waited && !state.ranks[at].revoked {
        (next.ranks[at].revoked, next.ranks[at].passed) = (true, 0);
        next.lease[at] = LEASE + 1;
        return Ok((does(Some(slot), "revokes its lease"), next));
    }
    // L3: a rank that takes its lease again reports that in its row, where it stays. Another rank that runs no clock for this one does
    // not see the report. The next look of that rank starts a clock or does not, as without the report.
    if state.lease[at] > LEASE && model.follows(Rule::Takings) && model.follows(Rule::Withdrawn) {
        for other in &mut next.ranks {
            if other.life == Life::Alive && other.own.unheard.contains_key(&slot) {
                other.wrote.insert(slot);
            }
        }
    }
    next.lease[at] = 0;
    let mut look = look(model, &next, slot);
    let record = state.record.clone();
    let rank = &mut next.ranks[at];
    (rank.passed, rank.stood, rank.waited, rank.revoked) = (0, false, false, false);
    rank.wrote = Slots::default();
    for (of, ticks) in (0u32..).zip(&mut rank.silence) {
        if look.heard.contains(of) {
            *ticks = 0;
        } else if rank.own.broken.contains(of) {
            // Words from before do not count after the pair is connected anew.
            *ticks = model.config.bound + 1;
        }
    }
    let own = &mut rank.own;
    let meets = model.rules.observe(own, &record, &look);
    if !model.follows(Rule::ClockFirst) && stood {
        let counts = Clock {
            time: model.rules.bounds.unheard,
            looks: LOOKS,
        };
        let others = record.members.keys().filter(|of| *of != slot);
        own.unheard = others.map(|of| (of, counts)).collect();
    }
    for other in model.rules.to_connect(own, &record, &look).iter() {
        let lives = state.ranks[other as usize].life == Life::Alive;
        let answers = lives && state.world.paused & bit(other) == 0;
        let through = state.world.behind & (bit(slot) | bit(other)) == 0;
        let carries = world::path(state, slot, other);
        if answers && through && carries {
            own.connected.insert(other);
            own.unproven.remove(other);
            own.broken.remove(other);
        } else if answers && !carries && !record.parted.contains(slot, other) {
            // The two ranks have told each other of their QPs, and nothing arrives.
            own.unproven.insert(other);
        }
    }
    let row = model.rules.row(own, &record, &look, meets);
    look.rows.insert(slot, row.clone());
    if let Some(ask) = look.asks.get_mut(&(slot, 1)) {
        ask.row = row.clone();
    }
    next.rows[at] = row;
    let in_force = own.is_member(&record) && own.is_current(&record);
    let mut holders = look.holders.iter();
    let other_holds = holders.any(|of| of != slot && record.members.contains_key(of));
    let port_down = state.world.down & bit(slot) != 0;
    if !model.follows(Rule::PortsSayNothing) && in_force && port_down && other_holds {
        return gives_up(model, next, slot);
    }
    match model.rules.next(own, &record, &look) {
        Step::Propose(new) if words == Words::Lack && takes_away(&record, &new) => {
            let doubt = &mut next.world.budget.doubt;
            *doubt -= u8::from(*doubt != ENDLESS);
            Ok((does(Some(slot), "waits for words"), next))
        }
        step => carry_out(model, next, slot, step),
    }
}

fn gives_up(model: &Model, mut state: State, slot: u32) -> Result<(Label, State), Violation> {
    if state.world.disturbed & bit(slot) == 0 {
        model.fail("A2", format!("{slot}, undisturbed, goes by itself"))?;
    }
    ends(model, &mut state, slot, Life::Over);
    Ok((does(Some(slot), "gives up"), state))
}

fn ends(model: &Model, state: &mut State, slot: u32, life: Life) {
    let at = slot as usize;
    state.ranks[at] = world::off(model, &state.ranks[at], life);
    state.lease[at] = LEASE + 1;
}

fn carry_out(
    model: &Model,
    mut next: State,
    slot: u32,
    step: Step,
) -> Result<(Label, State), Violation> {
    let record = next.record.clone();
    let rank = &mut next.ranks[slot as usize];
    let own = &mut rank.own;
    let what = match step {
        Step::Wait => "looks",
        Step::End => {
            let life = match own.leaving {
                Leaving::No | Leaving::Wants => Life::Over,
                Leaving::Said => Life::Left,
            };
            ends(model, &mut next, slot, life);
            check::lost(model, &next)?;
            "ends"
        }
        Step::GiveUp => return gives_up(model, next, slot),
        Step::Limit(last) => {
            own.limit = Limit::UpTo(last);
            "lets calls go on up to the view"
        }
        Step::View => {
            if model.config.calls > 0 {
                if rank.views.is_empty() {
                    rank.next = record.first;
                }
                rank.views.push((record.first, record.epoch));
                let old = rank.views.len().saturating_sub(2);
                rank.views.drain(..old);
            }
            own.applied = record.epoch;
            own.limit = Limit::Open;
            own.promised = None;
            own.fenced = Slots::default();
            own.solo = false;
            let parted = record.parted.of(slot);
            own.connected.take_away(&record.slots().without(&parted));
            own.unproven.take_away(&record.slots());
            if own.leaving == Leaving::Said {
                own.leaving = Leaving::Wants;
            }
            "has the view"
        }
        Step::Goodbye(last) => {
            own.limit = Limit::UpTo(last);
            own.leaving = Leaving::Said;
            next.said.insert(slot, last);
            "says goodbye"
        }
        Step::Propose(mut proposal) => {
            own.solo |= record.open.is_some() && own.applied != 0 && !own.is_proposed(&record);
            // `by` serves to count turns only, which the model does not have.
            proposal.by = 0;
            return write(model, next, slot, Pending::Propose(proposal));
        }
        Step::Commit(first) => return write(model, next, slot, Pending::Commit(first)),
        Step::Promise(fence) => {
            let promise = own.promise(&record, rank.next - 1);
            if let Some(last) = promise.last {
                let open = record.open.as_ref().expect("it promises for one");
                let silent = |of: u32| !next.promises.contains_key(&of);
                if open.takes.keys().any(silent) {
                    let text = format!("{slot} holds its calls for a newcomer");
                    model.fail("A4", text)?;
                }
                own.limit = Limit::UpTo(last);
                own.fenced.add(&fence);
                own.broken.add(&fence);
                own.connected.take_away(&fence);
            } else {
                own.broken.add(&fence);
                own.connected.take_away(&fence);
                own.fenced.add(&fence);
            }
            return write(model, next, slot, Pending::Promise(promise));
        }
    };
    Ok((does(Some(slot), what), next))
}

fn write(
    model: &Model,
    mut state: State,
    slot: u32,
    what: Pending,
) -> Result<(Label, State), Violation> {
    if model.config.split {
        state.ranks[slot as usize].pending = Some(what);
        return Ok((does(Some(slot), "is about to write"), state));
    }
    lands(model, state, slot, what)
}

fn lands(
    model: &Model,
    mut next: State,
    slot: u32,
    what: Pending,
) -> Result<(Label, State), Violation> {
    let record = next.record.clone();
    let rank = &mut next.ranks[slot as usize];
    rank.pending = None;
    if let Pending::Promise(promise) = what {
        if rank.own.is_proposed(&record) {
            rank.own.promised = Some((record.number, promise));
            rank.own.unanswered = (record.number, Ticks(0));
            next.promises.insert(slot, promise);
        }
        return Ok((does(Some(slot), "promises"), next));
    }
    // If several ranks would write the record at once, one succeeds. A promise for the record before no longer counts.
    for other in &mut next.ranks {
        if let Some(Pending::Promise(promise)) = other.pending.take() {
            other.own.promised = Some((0, promise));
        }
    }
    next.promises.clear();
    match what {
        Pending::Promise(_) => unreachable!("done above"),
        Pending::Propose(proposal) => {
            check::proven(model, &next, &proposal)?;
            match record.propose(proposal) {
                Ok(record) => next.record = record,
                Err(why) => model.fail("refused", format!("{why:?}"))?,
            }
            let label = Label {
                rank: Some(slot),
                what: "proposes",
                edge: Edge::Once,
            };
            Ok((label, next))
        }
        Pending::Commit(first) => {
            let open = record.open.as_ref().expect("it commits one");
            let mut new = record.commit(open, first);
            if !model.follows(Rule::PartsStand) {
                new.parted = record.parted.clone();
            }
            check::committed(model, &next, open, &new)?;
            for of in new.members.keys() {
                next.ranks[of as usize].own.fenced = Slots::default();
            }
            next.said.retain(|of, _| open.leaves.contains_key(of));
            if model.config.calls > 0 {
                let members = new.members.keys();
                next.history.push(members.fold(0, |all, of| all | bit(of)));
            }
            next.record = new;
            check::same_view(model, &next)?;
            Ok((does(Some(slot), "commits"), next))
        }
    }
}

fn device(model: &Model, state: &State, slot: u32) -> Result<(Label, State), Violation> {
    let mut next = state.clone();
    let rank = &mut next.ranks[slot as usize];
    let call = rank.next;
    let view = rank.views.iter().rev().find(|(first, _)| *first <= call);
    match view {
        Some((_, epoch)) => rank.ran[call as usize - 1] = *epoch,
        None => model.fail("VT", format!("{slot} finds no view for call {call}"))?,
    }
    rank.next += 1;
    check::same_view(model, &next)?;
    check::lost(model, &next)?;
    Ok((does(Some(slot), "runs a call"), next))
}

/// Returns whether `new` is the first proposal for its record, and lets ranks go or parts some.
fn takes_away(record: &Record, new: &Proposal) -> bool {
    let parts = !new.parts.is_subset(&record.parted);
    record.open.is_none() && (parts || new.keep != record.slots())
}

/// Returns the label of a step that may be taken again.
fn does(rank: Option<u32>, what: &'static str) -> Label {
    Label {
        rank,
        what,
        edge: Edge::Inner,
    }
}
