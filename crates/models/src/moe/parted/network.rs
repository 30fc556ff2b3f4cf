//! The steps of packets: they arrive in order on each QP, are refused by a QP of another life, and are lost with the QP that sent them.

use super::configuration::{Mutant, Parted};
use super::moves::{Emit, Step};
use super::state::{Data, Message, Qp, State};
use crate::explore::broken;
use crate::moe::property::{Broken, Property};

/// The steps of sender `from`: its packets arrive or are refused, and its QP fails.
pub(super) fn steps(
    model: &Parted,
    state: &State,
    from: usize,
    emit: &mut Emit<'_>,
) -> Result<(), Broken> {
    let to = 1 - from;
    for i in 0..4 {
        let Some(message) = state.fifos[from][i].front() else {
            continue;
        };
        let step = |who, what| Step {
            who,
            what,
            call: message.index,
        };
        let mut next = *state;
        if takes(model, state, to, &message) {
            next.fifos[from][i].pop();
            land(&mut next, to, i, &message)?;
            let what = if message.is_data {
                "gets the rows of"
            } else {
                "gets a control word"
            };
            emit(step(to, what), next);
        } else if state.is_of(from, &message) && !state.comes(to, &message) {
            next.ends[from].qp = Qp::Err;
            next.disturbed = true;
            emit(step(from, "is refused, which ends its QP,"), next);
        }
    }
    if state.breaks > 0 && state.ends[from].qp == Qp::Rts {
        let mut next = *state;
        next.ends[from].qp = Qp::Err;
        next.breaks -= 1;
        next.disturbed = true;
        emit(
            Step {
                who: from,
                what: "has a QP that fails",
                call: 0,
            },
            next,
        );
    }
    Ok(())
}

fn takes(model: &Parted, state: &State, to: usize, message: &Message) -> bool {
    let end = &state.ends[to];
    let of_life = end.own == message.to && end.other == message.from;
    end.qp == Qp::Rts && (of_life || model.has(Mutant::OldPacketNumbers))
}

/// Lets a message land at end `to`.
fn land(next: &mut State, to: usize, i: usize, message: &Message) -> Result<(), Broken> {
    let end = &mut next.ends[to];
    let view = end.views[1];
    if message.is_data {
        if (end.cleared || view.united) && message.epoch < view.epoch {
            return broken(
                Property::E2,
                format!(
                    "rows of call {}, of before the two were parted, land at end {to} after",
                    message.index
                ),
            );
        }
        let held = end.slots[i];
        if held.epoch != 0 && held.call > end.closed[i / 2] {
            return broken(
                Property::C1,
                format!(
                    "call {} lands at end {to} over call {}, which is not released",
                    message.index, held.call
                ),
            );
        }
        end.slots[i] = Data {
            epoch: message.epoch,
            call: message.index,
        };
        end.signals[i].data = Data {
            epoch: message.epoch,
            call: message.call,
        };
    } else {
        end.signals[i].not_sent = message.not_sent;
    }
    end.signals[i].credit = message.credit;
    end.peer.heard = true;
    Ok(())
}

/// Forgets packets that no end will ever take, because it makes no difference if they are refused or lost.
pub(super) fn tidy(model: &Parted, state: &mut State) {
    for end in &mut state.ends {
        // Only suspicion asks for this field.
        end.peer.heard &= end.peer.suspect;
    }
    if model.has(Mutant::OldPacketNumbers) {
        return;
    }
    for from in 0..2 {
        for i in 0..4 {
            let seen = *state;
            state.fifos[from][i].retain(|message| {
                let to = 1 - from;
                let takes = takes(model, &seen, to, message) || seen.comes(to, message);
                takes || seen.is_of(from, message)
            });
        }
    }
}
