//! The phases of a call, as the kernels of one end run them towards the other (`begin.cuh`, `credit.cuh`, `send.cuh`,
//! `receive.cuh`).

use super::configuration::{Mutant, Parted};
use super::moves::{Emit, Step};
use super::numbers::{RENEWAL, Run, SETS, ahead, newer, renews};
use super::state::{Data, End, Handle, Message, Qp, Stage, State};
use crate::explore::broken;
use crate::moe::property::{Broken, Property};
use crate::moe::signals::pattern::{COMBINE, DISPATCH, Phase};

/// The next step of the kernels of end `me`.
pub(super) fn steps(
    model: &Parted,
    state: &State,
    me: usize,
    emit: &mut Emit<'_>,
) -> Result<(), Broken> {
    let end = &state.ends[me];
    let Some(phase) = model.phase(end.at) else {
        return Ok(());
    };
    let index = phase.call;
    let step = |what| Step {
        who: me,
        what,
        call: index,
    };
    let begins = phase.sends && phase.kind == DISPATCH;
    if begins && matches!(end.stage, Stage::Idle | Stage::Held) {
        begin(model, state, me, index, &step, emit)
    } else if phase.sends {
        send(model, state, me, phase, &step, emit);
        Ok(())
    } else {
        receive(model, state, me, phase, &step, emit)
    }
}

fn begin(
    model: &Parted,
    state: &State,
    me: usize,
    index: u8,
    step: &impl Fn(&'static str) -> Step,
    emit: &mut Emit<'_>,
) -> Result<(), Broken> {
    let call = model.number(state, index);
    let mut next = *state;
    let end = &mut next.ends[me];
    let was_held = end.stage == Stage::Held;
    if !was_held {
        for kind in [DISPATCH, COMBINE] {
            let two_back = call.wrapping_sub(SETS);
            if call.wrapping_sub(model.first) >= SETS && newer(two_back, end.released[kind]) {
                end.released[kind] = two_back;
            }
            end.closed[kind] = end.closed[kind].max(index.saturating_sub(SETS));
        }
    }
    let covers = end.views.iter().rev().find(|view| view.first <= index);
    let view = *covers.expect("the first view begins with the first call");
    let aborted_before = end.aborted;
    end.handles[usize::from(call % SETS)] = Handle {
        untold: aborted_before,
        united: view.united || (model.has(Mutant::SendsBeforeTheView) && end.connected),
        aborted: false,
        epoch: view.epoch,
    };
    end.stage = Stage::Entered;
    if index <= end.limit {
        end.aborted = 0;
        emit(step("begins"), next);
        return Ok(());
    }
    if !was_held {
        let mut held = next;
        held.ends[me].stage = Stage::Held;
        held.ends[me].handles = state.ends[me].handles;
        emit(step("is held in"), held);
    } else if state.aborts > 0 && index < model.calls {
        // A rank tells an abort in its next call, so its last call does not abort.
        let handle = &mut end.handles[usize::from(call % SETS)];
        (handle.aborted, handle.untold) = (true, 0);
        end.aborted = SETS.min(aborted_before + 1);
        next.aborts -= 1;
        next.disturbed = true;
        emit(step("aborts"), next);
    }
    Ok(())
}

fn send(
    model: &Parted,
    state: &State,
    me: usize,
    phase: Phase,
    step: &impl Fn(&'static str) -> Step,
    emit: &mut Emit<'_>,
) {
    let call = model.number(state, phase.call);
    let i = place(phase.kind, call);
    let handle = state.ends[me].handles[usize::from(call % SETS)];
    let peer = &state.ends[me].peer;
    let mut next = *state;
    if !handle.united {
        passes(&mut next, me);
        return emit(step("leaves out the other in"), next);
    }
    let begins = phase.kind == DISPATCH && state.ends[me].stage == Stage::Entered;
    if begins {
        tell_aborted(model, &mut next, me, phase.call, handle.untold);
    }
    if handle.aborted {
        // Without a guard the kernel does not touch what is kept of the other end, because the host may be clearing it.
        if state.ends[me].open {
            skip(model, &mut next, me, i, call);
        }
        passes_send(&mut next, me, phase, call);
        return emit(step("says that it aborts"), next);
    }
    let flies = |i: usize| flies(model, state, me, i);
    let missing = flies(i) || (peer.suspect && (0..4).any(flies));
    let closed = !peer.sent[i] || has_released(&state.ends[me], phase.kind, peer.last[i]);
    let credit = closed && !missing;
    if credit {
        send_rows(model, &mut next, me, phase, call);
        return emit(step("sends"), next);
    }
    if state.ends[me].stage != Stage::Waits {
        let end = &mut next.ends[me];
        end.stage = Stage::Waits;
        if end.peer.told != own_credit(end) {
            control(&mut next, me, i);
        }
        return emit(step("wants a credit for"), next);
    }
    if state.ends[me].qp != Qp::Rts {
        suspect(&mut next, me);
        skip(model, &mut next, me, i, call);
        passes_send(&mut next, me, phase, call);
        return emit(step("gets an error instead of a credit in"), next);
    }
    let distrusts = peer.suspect && !peer.heard;
    if !distrusts && state.timeouts == 0 {
        return;
    }
    if !distrusts {
        next.timeouts -= 1;
        next.disturbed = true;
    }
    suspect(&mut next, me);
    skip(model, &mut next, me, i, call);
    passes_send(&mut next, me, phase, call);
    emit(step("gets no credit in time in"), next);
}

/// Returns whether the HCA has not yet carried the last data of a kind and set.
fn flies(model: &Parted, state: &State, me: usize, i: usize) -> bool {
    let end = &state.ends[me];
    let fifo = &state.fifos[me][i];
    let life = end.own + 1;
    let old = end.peer.ticket[i] != 0 && end.peer.ticket[i] != life;
    if old && model.has(Mutant::OldTicketsFly) {
        return true;
    }
    let mut messages = fifo.messages[..usize::from(fifo.len)].iter();
    let posted = end.qp == Qp::Rts && end.peer.ticket[i] == life;
    posted && messages.any(|message| message.is_data && message.from == end.own)
}

fn send_rows(model: &Parted, next: &mut State, me: usize, phase: Phase, call: u8) {
    let i = place(phase.kind, call);
    if next.ends[me].qp == Qp::Rts {
        let credit = own_credit(&next.ends[me]);
        let message = Message {
            is_data: true,
            call,
            index: phase.call,
            credit,
            ..Message::default()
        };
        let end = &mut next.ends[me];
        end.peer.last[i] = call;
        end.peer.sent[i] = true;
        end.peer.ticket[i] = end.own + 1;
        end.peer.told = credit;
        end.posted[phase.kind] |= 1 << (phase.call - 1);
        post(next, me, i, message);
    } else {
        skip(model, next, me, i, call);
        suspect(next, me);
    }
    passes_send(next, me, phase, call);
}

/// Ends a send phase towards a member.
fn passes_send(next: &mut State, me: usize, phase: Phase, call: u8) {
    if phase.kind == DISPATCH && renews(call) {
        renew(next, me, call);
    }
    passes(next, me);
}

/// `tell_aborted`: tells the other end that the calls right before this one ended aborted, each in the view that it found. The other
/// end may have been no member of that view. It gets the word now, before this call waits for anything.
fn tell_aborted(model: &Parted, next: &mut State, me: usize, index: u8, untold: u8) {
    if !next.ends[me].open {
        return;
    }
    let untold = match model.mutant {
        Some(Mutant::AbortsToldOnce) => 0,
        Some(Mutant::OneAbortTold) => untold.min(1),
        _ => untold,
    };
    for earlier in index - untold..index {
        let call = model.number(next, earlier);
        for kind in [DISPATCH, COMBINE] {
            skip(model, next, me, place(kind, call), call);
        }
    }
}

/// `mark_skipped`, and the word that reports the skipped calls.
fn skip(model: &Parted, next: &mut State, me: usize, i: usize, call: u8) {
    let end = &mut next.ends[me];
    let (run, last, sent) = (end.peer.skip[i], end.peer.last[i], end.peer.sent[i]);
    let extends = run.number != 0 && (!sent || newer(run.end(), last));
    let mut first = run.first;
    if !extends {
        let behind_joined = u8::from(model.first % SETS != call % SETS);
        first = if sent {
            last.wrapping_add(SETS)
        } else {
            model.first.wrapping_add(behind_joined)
        };
    }
    let mut number = call.wrapping_sub(first) / SETS + 1;
    if number > RENEWAL / SETS {
        first = first.wrapping_add(SETS * (number - RENEWAL / SETS));
        number = RENEWAL / SETS;
    }
    end.peer.skip[i] = Run { first, number };
    if sent && has_released(end, i / usize::from(SETS), last) {
        end.peer.sent[i] = false;
    }
    control(next, me, i);
}

fn renew(next: &mut State, me: usize, call: u8) {
    for kind in [DISPATCH, COMBINE] {
        let i = place(kind, call);
        let peer = &mut next.ends[me].peer;
        if peer.sent[i] && !newer(peer.skip[i].end(), peer.last[i]) {
            peer.skip[i].number = 0;
        }
        control(next, me, i);
    }
}

/// Writes credits and the numbers of calls that were not sent, unless the QP refuses that.
fn control(next: &mut State, me: usize, i: usize) {
    let end = &mut next.ends[me];
    if end.qp != Qp::Rts || !end.open {
        return;
    }
    let credit = own_credit(end);
    end.peer.told = credit;
    let not_sent = end.peer.skip[i];
    let message = Message {
        credit,
        not_sent,
        ..Message::default()
    };
    post(next, me, i, message);
}

fn post(next: &mut State, me: usize, i: usize, message: Message) {
    let end = &next.ends[me];
    let set = usize::from(message.call % SETS);
    // No rule depends on when a control word was written.
    let epoch = if message.is_data {
        end.handles[set].epoch
    } else {
        0
    };
    let (from, to) = (end.own, end.other);
    next.fifos[me][i].push(Message {
        epoch,
        from,
        to,
        ..message
    });
}

fn receive(
    model: &Parted,
    state: &State,
    me: usize,
    phase: Phase,
    step: &impl Fn(&'static str) -> Step,
    emit: &mut Emit<'_>,
) -> Result<(), Broken> {
    let call = model.number(state, phase.call);
    let i = place(phase.kind, call);
    let (end, other) = (&state.ends[me], &state.ends[1 - me]);
    let handle = end.handles[usize::from(call % SETS)];
    let mut next = *state;
    next.ends[me].stage = Stage::Reading;
    if end.stage == Stage::Reading || !handle.united || handle.aborted {
        let sent_by_third = model.place_of_send(phase.kind, phase.call) < state.third.at;
        if !model.third || handle.aborted || sent_by_third {
            let end = &mut next.ends[me];
            end.released[phase.kind] = call;
            end.closed[phase.kind] = phase.call;
            passes(&mut next, me);
            emit(step("releases"), next);
        }
        return Ok(());
    }
    let not_whole = |what: &str| {
        let text = format!(
            "end {me} does not get the rows of call {}: {what}",
            phase.call
        );
        broken(Property::W, text)
    };
    let whole = !state.disturbed && model.aborts == 0;
    let signal = &end.signals[i];
    let data = signal.data;
    if data.epoch != 0 && data.call == call && data.epoch == handle.epoch {
        let (epoch, index) = (handle.epoch, phase.call);
        if end.slots[i] != (Data { epoch, call: index }) {
            let text = format!(
                "end {me} accepts call {index}, the slot holds {:?}",
                end.slots[i]
            );
            return broken(Property::E1, text);
        }
        next.ends[me].peer.suspect = false;
        emit(step("accepts"), next);
        return Ok(());
    }
    if (data.epoch != 0 && ahead(data.call, call)) || signal.not_sent.names(call) {
        let posted = other.posted[phase.kind] >> (phase.call - 1) & 1 != 0;
        if posted || other.at <= model.place_of_send(phase.kind, phase.call) {
            let text = format!(
                "end {me} takes call {} for not sent because of {signal:?}",
                phase.call
            );
            return broken(Property::K1, text);
        }
        if whole {
            return not_whole("a word said that they were not sent");
        }
        next.ends[me].peer.suspect = false;
        emit(step("finds not sent"), next);
        return Ok(());
    }
    let distrusts = end.peer.suspect && !end.peer.heard;
    if end.qp == Qp::Rts && !distrusts && state.timeouts == 0 {
        return Ok(());
    }
    if whole && (end.qp != Qp::Rts || distrusts) {
        return not_whole("it does not wait for them");
    }
    if end.qp == Qp::Rts && !distrusts {
        next.timeouts -= 1;
        next.disturbed = true;
    }
    suspect(&mut next, me);
    emit(step("gives up"), next);
    Ok(())
}

/// Returns the index of a signal among those of a peer.
fn place(kind: usize, call: u8) -> usize {
    kind * usize::from(SETS) + usize::from(call % SETS)
}

/// Ends the present phase of end `me`.
fn passes(next: &mut State, me: usize) {
    next.ends[me].at += 1;
    next.ends[me].stage = Stage::Idle;
}

/// Returns the credit of an end. It is never zero, because zero means that the word was not written.
fn own_credit(end: &End) -> [u8; 2] {
    match end.released {
        [0, 0] => [0, u8::MAX],
        released => released,
    }
}

/// Returns whether the other end has closed call `last` of a kind.
fn has_released(end: &End, kind: usize, last: u8) -> bool {
    let says = |credit: [u8; 2]| credit != [0, 0] && !newer(last, credit[kind]);
    end.signals.iter().any(|signal| says(signal.credit))
}

fn suspect(next: &mut State, me: usize) {
    next.ends[me].peer.suspect = true;
    next.ends[me].peer.heard = false;
}
