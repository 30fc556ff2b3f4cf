//! The steps between the sender and one peer: links, what HCAs carry and repeat, and QPs that end and begin anew.

use super::configuration::{Buffers, Link, Rule};
use super::state::{Peer, Qp};
use crate::explore::broken;
use crate::moe::property::{Broken, Property};

/// The steps of peer `place`; H has place 0.
pub(super) fn steps(
    model: &Buffers,
    place: usize,
    peer: &Peer,
    emit: &mut impl FnMut(&'static str, Peer),
) -> Result<(), Broken> {
    let healthy = place == 0;
    if peer.link == Link::Up && peer.qp != Qp::Err {
        carry(model, healthy, peer, emit)?;
    }
    let mut go = |what, change: &dyn Fn(&mut Peer)| {
        let mut next = *peer;
        change(&mut next);
        emit(what, next);
    };
    let speaks = matches!(peer.link, Link::Up | Link::OneWay);
    // H closes its calls only after it has got and read their data.
    if speaks && peer.open != [false; 2] && (!healthy || peer.items.all().is_empty()) {
        go("closes its calls", &|next| next.open = [false; 2]);
    }
    if speaks && peer.suspect {
        go("says a word", &|next| next.suspect = false);
    }
    if matches!(peer.link, Link::Stopped | Link::OneWay) {
        go("is back", &|next| next.link = Link::Up);
    }
    if peer.qp == Qp::Ending {
        go("is flushed", &|next| {
            next.stray |= !next.items.all().is_empty();
            next.qp = Qp::Err;
            next.forget();
        });
    }
    if peer.qp == Qp::Err && peer.link == Link::Up {
        // Words, credits and suspicion begin as if the pair had never met.
        go("is reunited", &|next| {
            next.qp = Qp::Rts;
            (next.suspect, next.open) = (false, [false; 2]);
        });
    }
    if peer.stray && peer.link == Link::Up && peer.qp == Qp::Rts {
        if !model.has(Rule::Numbers) {
            return broken(
                Property::E2,
                "rows of the life before land in a slot in use".to_owned(),
            );
        }
        go("refuses what is of the life before", &|next| {
            next.stray = false
        });
    }
    Ok(())
}

/// Lets an item be carried, and then either repeat later or be done. Items of one QP go in their order.
fn carry(
    model: &Buffers,
    healthy: bool,
    peer: &Peer,
    emit: &mut impl FnMut(&'static str, Peer),
) -> Result<(), Broken> {
    let items = peer.items.all();
    for (at, item) in items.iter().enumerate() {
        let before = &items[..at];
        let queued = if model.has(Rule::OneQp) {
            before.iter().any(|other| other.set == item.set)
        } else {
            before.iter().any(|other| other.buffer == item.buffer)
        };
        if queued {
            continue;
        }
        if item.refilled {
            let text = format!("{item:?} lands with the rows of a later call");
            return broken(Property::S1, text);
        }
        if item.passed {
            let text = format!("{item:?} lands over what a later call has brought");
            return broken(Property::C1, text);
        }
        let mut next = *peer;
        next.suspect = false;
        let mut passes = false;
        for other in &mut next.items.all_mut()[..at] {
            passes |= other.set == item.set;
            other.passed |= other.set == item.set;
        }
        if !healthy && passes {
            emit("takes rows, which are repeated,", next);
        }
        next.items.remove(at);
        if next.items.all().is_empty() {
            next.forget();
        }
        emit("takes rows, done,", next);
    }
    if peer.words > 0 && items.is_empty() {
        let mut next = *peer;
        next.forget();
        emit("takes words", next);
    }
    Ok(())
}

impl Peer {
    /// Forgets all work in flight.
    pub(super) fn forget(&mut self) {
        self.items = Default::default();
        (self.words, self.vain, self.waits) = (0, false, 0);
    }
}
