//! The steps of a call: what it waits for, which buffer it takes, and which peers get data.

use super::configuration::{Buffers, Link, Rows, Rule};
use super::state::{Item, Open, Peer, Qp, State};
use crate::explore::broken;
use crate::moe::property::{Broken, Property};

impl Buffers {
    /// Returns the peers, H first.
    pub(super) fn peers<'a>(&self, state: &'a State) -> &'a [Peer] {
        &state.peers[..=self.sick]
    }

    fn may_send(&self, peer: &Peer, set: u8) -> bool {
        let mut items = peer.items.all().iter();
        let closed = !peer.open[usize::from(set)];
        if peer.masked || peer.qp != Qp::Rts || !closed {
            return false;
        }
        if self.has(Rule::Set) && items.clone().any(|item| item.set == set) {
            return false;
        }
        !(self.has(Rule::Suspect) && peer.suspect && items.next().is_some())
    }

    /// The oldest call that this rank has sent and not received is received.
    pub(super) fn receive(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        let Some(open) = state.open.all().first() else {
            return Ok(());
        };
        if open.spoiled {
            let text = format!("{open:?}: this rank reads rows of a later call as its own");
            return broken(Property::S2, text);
        }
        let mut next = *state;
        next.open.remove(0);
        for peer in &mut next.peers {
            peer.suspect |= matches!(peer.link, Link::Stopped | Link::Dead);
        }
        emit("the sender receives", next);
        for place in (0..=self.sick).filter(|_| state.suspicions > 0) {
            let mut next = next;
            next.suspicions -= 1;
            next.peers[place].suspect = true;
            emit("the sender receives, and takes one for late", next);
        }
        Ok(())
    }

    /// The next call is sent.
    pub(super) fn send(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        if state.open.all().len() > usize::from(self.ahead) {
            return Ok(());
        }
        if state.peers[0].masked {
            let text = "H gets nothing: a call that found no buffer has masked it".to_owned();
            return broken(Property::S3, text);
        }
        let set = state.set;
        let without = |peer: &&Peer| peer.qp == Qp::Rts && !self.may_send(peer, set);
        // Such a peer gets its rows, or closes the call, in a moment. A link that takes longer counts as failing.
        let mut waits = self.peers(state).iter().filter(without);
        if waits.any(|peer| peer.link == Link::Up) {
            return Ok(());
        }
        if self.await_credit(state, emit)? {
            return Ok(());
        }
        match self.rows {
            Rows::Pool(buffers) => self.send_of_pool(state, buffers, emit),
            Rows::BySource => self.post(state, set, |_, gets| gets, emit),
            Rows::ZeroCopy => {
                // The memory was handed out when the call was received. No item of this set was posted between then and now.
                let read = |peer: &Peer| peer.items.all().iter().any(|item| item.set == set);
                let handed = !self.peers(state).iter().any(read) || !self.has(Rule::HandsOut);
                self.post(state, set, |_, gets| handed || gets, emit)
            }
        }
    }

    /// Waits for the credit of trusted peers, at most once for what is in flight to each.
    fn await_credit(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<bool, Broken> {
        let lacks = |peer: &Peer| peer.qp == Qp::Rts && !self.may_send(peer, state.set);
        let awaits =
            |peer: &&Peer| lacks(peer) && !peer.suspect && !(peer.vain && self.has(Rule::Once));
        let Some(at) = self.peers(state).iter().position(|peer| awaits(&peer)) else {
            return Ok(false);
        };
        let mut next = *state;
        let peer = &mut next.peers[at];
        peer.suspect = true;
        if !peer.items.all().is_empty() {
            peer.vain = true;
            peer.waits += 1;
            if peer.waits > 1 {
                let text = "a second phase waits for the same work in flight".to_owned();
                return broken(Property::S4, text);
            }
        }
        emit("the sender waits in vain for a credit", next);
        Ok(true)
    }

    fn send_of_pool(
        &self,
        state: &State,
        buffers: u8,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        let set = state.set;
        let peers = self.peers(state);
        let ended = |peer: &Peer| peer.qp == Qp::Ending && !self.has(Rule::Flushed);
        let is_read = |buffer: u8| {
            let mut items = peers.iter().filter(|peer| !ended(peer));
            items.any(|peer| peer.items.all().iter().any(|item| item.buffer == buffer))
        };
        let is_own = |buffer: u8| {
            let mut open = state.open.all().iter();
            open.any(|open| !open.empty && open.buffer == buffer)
        };
        let is_free = |buffer: &u8| {
            let read = self.has(Rule::Free) && is_read(*buffer);
            let own = self.has(Rule::Own) && is_own(*buffer);
            !read && !own
        };
        // In peace, the calls use two buffers in turn.
        let others = (0..buffers).filter(|buffer| *buffer != set && self.has(Rule::Pool));
        let mut order = [set].into_iter().chain(others);
        if let Some(buffer) = order.find(is_free) {
            return self.post(state, buffer, |item, _| item.buffer == buffer, emit);
        }
        let moves = |peer: &Peer| peer.link == Link::Up || peer.qp == Qp::Ending;
        let mut held = peers.iter().filter(|peer| !peer.items.all().is_empty());
        if held.any(moves) {
            return Ok(()); // One is free in a moment.
        }
        if self.exhausts {
            self.end_empty(state, emit)
        } else {
            broken(
                Property::S3,
                "all buffers are held by sick links: no peer gets anything".to_owned(),
            )
        }
    }

    /// Posts the call from `buffer`. `refills` says whether the call writes over the rows of an item, given whether the item's peer gets
    /// data.
    fn post(
        &self,
        state: &State,
        buffer: u8,
        refills: impl Fn(&Item, bool) -> bool,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        let set = state.set;
        let mut next = *state;
        for peer in &mut next.peers[..=self.sick] {
            let gets = self.may_send(peer, set);
            // With rows by source rank, each set has rows of its own.
            let of_set = |item: &Item| matches!(self.rows, Rows::Pool(_)) || item.set == set;
            for item in peer.items.all_mut() {
                item.refilled |= of_set(item) && refills(item, gets);
            }
            if !gets {
                self.say_nothing_comes(peer)?;
                continue;
            }
            peer.items.push(Item {
                set,
                buffer,
                ..Item::default()
            });
            peer.open[usize::from(set)] = true;
        }
        if matches!(self.rows, Rows::Pool(_)) {
            for open in next.open.all_mut() {
                open.spoiled |= !open.empty && open.buffer == buffer;
            }
        }
        next.open.push(Open {
            buffer,
            ..Open::default()
        });
        emit("the sender sends", Self::next_call(next));
        Ok(())
    }

    /// Ends the call without data for any peer, and says so.
    fn end_empty(
        &self,
        state: &State,
        emit: &mut impl FnMut(&'static str, State),
    ) -> Result<(), Broken> {
        let mut next = *state;
        for peer in &mut next.peers[1..=self.sick] {
            self.say_nothing_comes(peer)?;
        }
        for peer in &mut next.peers[..=self.sick] {
            peer.masked |= !self.has(Rule::Mask);
        }
        next.open.push(Open {
            empty: true,
            ..Open::default()
        });
        emit("the sender finds no buffer", Self::next_call(next));
        Ok(())
    }

    fn next_call(state: State) -> State {
        State {
            set: 1 - state.set,
            fresh: false,
            ..state
        }
    }

    /// Says that nothing comes. If the ring has no room, the word is left out: the next word says the same.
    fn say_nothing_comes(&self, peer: &mut Peer) -> Result<(), Broken> {
        if peer.qp != Qp::Rts || self.ring == 0 {
            return Ok(());
        }
        if peer.items.all().len() + usize::from(peer.words) < usize::from(self.ring) {
            peer.words += 1;
            return Ok(());
        }
        if self.has(Rule::Room) || peer.suspect {
            Ok(())
        } else {
            broken(
                Property::S3,
                "a phase waits for room in the ring of a peer that carries nothing".to_owned(),
            )
        }
    }
}
