//! The steps of hosts: the change of views, the clearing, and the connection.

use super::configuration::{Mutant, Parted};
use super::moves::{BOTH, Emit, Step};
use super::state::{Change, End, OPEN, Peer, Qp, Signal, Stage, State, View};
use crate::moe::signals::pattern::DISPATCH;

/// The steps that change the record, which any member may write.
pub(super) fn record(model: &Parted, state: &State, emit: &mut Emit<'_>) {
    let ends = &state.ends;
    let step = |what| Step {
        who: BOTH,
        what,
        call: state.record.first,
    };
    let current = |end: &End| end.views[1].epoch == state.record.epoch && end.limit == OPEN;
    let mut next = *state;
    match (state.change, state.record.united) {
        (Change::None, true) => {
            if ends.iter().any(|end| end.qp == Qp::Err && current(end)) {
                next.change = Change::Part;
                emit(step("are to be parted"), next);
            }
        }
        (Change::None, false) => {
            let one = model.has(Mutant::UnitedWhenOneSays) && ends.iter().any(|e| e.connected);
            if one || ends.iter().all(|end| end.connected) {
                next.change = Change::Unite;
                emit(step("are to be united"), next);
            }
        }
        _ => {
            let epoch = state.record.epoch;
            let promised = |end: &End| end.promised && end.views[1].epoch == epoch;
            if !ends.iter().all(promised) || (model.third && !state.third.promised) {
                return;
            }
            for later in 0..=model.later {
                commit(model, state, later, emit);
            }
        }
    }
}

fn commit(model: &Parted, state: &State, later: u8, emit: &mut Emit<'_>) {
    let mut next = *state;
    let promised = state.ends.iter().map(|end| end.limit).max();
    let mut last = promised.expect("two ends");
    if model.third {
        last = last.max(state.third.limit);
        next.third.limit = OPEN;
        next.third.promised = false;
    }
    let united = state.change == Change::Unite;
    next.record = View {
        first: state.record.first.max(last + 1 + later),
        epoch: state.record.epoch + 1,
        united,
    };
    next.change = Change::None;
    if united && state.is_joined(0) && state.is_joined(1) {
        next.disturbed = false;
    }
    let step = Step {
        who: BOTH,
        what: if united {
            "are united from"
        } else {
            "are parted from"
        },
        call: next.record.first,
    };
    emit(step, next);
}

/// The steps of the host of end `me`.
pub(super) fn steps(model: &Parted, state: &State, me: usize, emit: &mut Emit<'_>) {
    let end = &state.ends[me];
    let mut go = |what, change: &dyn Fn(&mut State)| {
        let mut next = *state;
        change(&mut next);
        let call = model.started(end.at, end.stage != Stage::Idle);
        emit(
            Step {
                who: me,
                what,
                call,
            },
            next,
        );
    };
    let record = state.record;
    let applied = end.views[1].epoch == record.epoch;
    if state.change != Change::None && applied && !end.promised {
        let fences = state.change == Change::Part
            && !model.has(Mutant::ClearedBeforeErr)
            && !model.has(Mutant::PromisesBeforeErr);
        go("promises behind", &|next| {
            let mine = &mut next.ends[me];
            mine.limit = model.started(end.at, end.stage != Stage::Idle);
            mine.promised = true;
            if state.change == Change::Part && !model.has(Mutant::StaysConnected) {
                mine.connected = false;
            }
            if fences {
                mine.fence();
            }
        });
    }
    if !applied && end.limit < record.first - 1 {
        go("opens the limit up to the view in", &|next| {
            next.ends[me].limit = record.first - 1;
        });
    }
    let replaces = end.views[1].first == record.first;
    let unneeded = model.finished(end) + 1 >= end.views[1].first;
    if !applied && end.limit + 1 >= record.first && (replaces || unneeded) {
        go("applies the view in", &|next| {
            let mine = &mut next.ends[me];
            if !replaces {
                mine.views[0] = mine.views[1];
            }
            mine.views[1] = record;
            mine.limit = OPEN;
            mine.promised = false;
            mine.cleared = false;
            mine.connected &= record.united && model.has(Mutant::StaysConnected);
            mine.open |= record.united;
            if record.united && mine.qp != Qp::Rts && !model.has(Mutant::UnconnectedIsUnited) {
                // The end began to connect anew before it promised, and has not finished. In the new view its QP is broken.
                mine.qp = Qp::Err;
            }
        });
    }
    if !end.views[1].united {
        connect(model, state, me, &mut go);
    }
}

/// The steps of an end while it is parted from the other.
fn connect(
    model: &Parted,
    state: &State,
    me: usize,
    go: &mut impl FnMut(&'static str, &dyn Fn(&mut State)),
) {
    let (end, other) = (&state.ends[me], &state.ends[1 - me]);
    let ended = !end.views[0].united || model.finished(end) + 1 >= end.views[1].first;
    let ended = ended || model.has(Mutant::ClearedBeforeCallsEnded);
    let silent = end.qp == Qp::Err || model.has(Mutant::ClearedBeforeErr);
    let fences = model.has(Mutant::ClearedBeforeErr) && end.own < end.views[1].epoch / 2;
    let fences = fences || (model.has(Mutant::PromisesBeforeErr) && !end.cleared);
    if fences && end.qp == Qp::Rts {
        go("fences late in", &|next| next.ends[me].fence());
    }
    if !end.cleared && ended && silent {
        go("clears in", &|next| {
            clear(model, &mut next.ends[me], me);
            next.ends[me].cleared = true;
            next.disturbed = !next.ends[1 - me].cleared;
        });
    }
    if !end.cleared {
        return;
    }
    let free = !end.promised;
    if end.qp == Qp::Err && free {
        go("resets in", &|next| next.reset(me));
    }
    let hello = other.views[1].epoch == end.views[1].epoch && other.cleared;
    let for_me = other.qp == Qp::Fresh || (other.qp == Qp::Rts && other.other == end.own);
    if end.qp == Qp::Fresh && hello && for_me {
        go("connects in", &|next| {
            next.ends[me].qp = Qp::Rts;
            next.ends[me].other = next.ends[1 - me].own;
        });
    }
    if end.qp == Qp::Rts && !end.connected {
        go("says connected in", &|next| next.ends[me].connected = true);
    }
    let comes = other.qp == Qp::Fresh && other.own == end.other;
    if end.qp == Qp::Rts && !state.is_joined(1 - me) && !comes {
        go("finds the other end gone in", &|next| {
            next.ends[me].qp = Qp::Err
        });
    }
    if state.retries > 0 && free && end.qp != Qp::Err {
        go("begins to connect anew in", &|next| {
            next.reset(me);
            next.retries -= 1;
            next.disturbed = true;
        });
    }
}

fn clear(model: &Parted, end: &mut End, me: usize) {
    if model.has(Mutant::OneEndClears) && me == 1 {
        return;
    }
    let old = end.peer;
    if !model.has(Mutant::WordsNotCleared) {
        end.signals = [Signal::default(); 4];
    }
    end.peer = Peer::default();
    let all = model.has(Mutant::OwnStateNotCleared);
    if all || model.has(Mutant::LastNotCleared) {
        (end.peer.last, end.peer.sent) = (old.last, old.sent);
    }
    if model.has(Mutant::OldTicketsFly) {
        end.peer.ticket = old.ticket;
    }
    if all || model.has(Mutant::SkipNotCleared) {
        end.peer.skip = old.skip;
    }
    if all || model.has(Mutant::ToldNotCleared) {
        end.peer.told = old.told;
    }
    if all || model.has(Mutant::SuspectNotCleared) {
        (end.peer.suspect, end.peer.heard) = (old.suspect, old.heard);
    }
}

/// Lets both ends run many calls while they are parted.
pub(super) fn leap(model: &Parted, state: &State, emit: &mut Emit<'_>) {
    let [a, b] = &state.ends;
    let idle = |end: &End| end.stage == Stage::Idle && end.cleared && end.limit == OPEN;
    let phase = model.phases.get(usize::from(a.at));
    let begins = phase.filter(|phase| phase.sends && phase.kind == DISPATCH);
    let Some(phase) = begins else {
        return;
    };
    let parted = [a, b].iter().all(|end| !end.views[1].united && idle(end));
    let behind = phase.call > a.views[1].first && phase.call >= state.record.first;
    if model.leap == 0 || state.leapt != 0 || a.at != b.at || !parted || !behind {
        return;
    }
    let mut next = *state;
    next.leapt = phase.call;
    let before = model.number(&next, phase.call).wrapping_sub(1);
    for end in &mut next.ends {
        end.released = [before; 2];
        end.aborted = 0;
    }
    emit(
        Step {
            who: BOTH,
            what: "run many calls before",
            call: phase.call,
        },
        next,
    );
}

impl End {
    /// `fail_peer`: puts the QP into error. Kernels get no guard until a view unites the pair.
    fn fence(&mut self) {
        self.qp = Qp::Err;
        self.open = false;
    }
}
