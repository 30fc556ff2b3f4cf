//! The model of buffers, as the search needs it.

use std::fmt;

use super::configuration::{Buffers, Link};
use super::peer;
use super::state::{self, Peer, Qp, State};
use crate::explore::{Codec, Model, broken};
use crate::moe::limits::MOST_STATES;
use crate::moe::property::{Broken, Property};

/// The name of a step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The peer; None: the sender.
    who: Option<usize>,
    what: &'static str,
    /// How the link fails, if it does.
    how: Option<Link>,
    buffer: Option<u8>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(who) = self.who {
            write!(f, "{} ", ["H", "X", "Y"][who])?;
        }
        write!(f, "{}", self.what)?;
        if let Some(how) = self.how {
            write!(f, " {how:?}")?;
        }
        match self.buffer {
            Some(buffer) => write!(f, " from buffer {buffer}"),
            None => Ok(()),
        }
    }
}

impl Model for Buffers {
    type State = State;
    type Step = Step;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State {
        let peer = Peer {
            failures: self.times,
            ..Peer::default()
        };
        State {
            peers: [peer; state::PEERS],
            moments: self.moments,
            ends: self.ends,
            suspicions: self.suspicions,
            ..State::default()
        }
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        state::code(self, state, codec);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Step, State)) -> Result<(), Broken> {
        for (place, peer) in self.peers(state).iter().enumerate() {
            let step = |what, how| Step {
                who: Some(place),
                what,
                how,
                buffer: None,
            };
            let with = |peer: Peer| {
                let mut next = *state;
                next.peers[place] = peer;
                next
            };
            peer::steps(self, place, peer, &mut |what, peer| {
                emit(step(what, None), with(peer));
            })?;
            let may_fail = peer.failures > 0 && (state.moments > 0 || state.fresh);
            if place > 0 && peer.link == Link::Up && may_fail {
                for kind in self.kinds {
                    let mut next = with(Peer {
                        link: *kind,
                        failures: peer.failures - 1,
                        ..*peer
                    });
                    next.moments -= u8::from(!state.fresh);
                    next.fresh = true;
                    emit(step("has a link that fails:", Some(*kind)), next);
                }
            }
            if place > 0 && peer.qp == Qp::Rts && state.ends > 0 {
                let mut next = with(Peer {
                    qp: Qp::Ending,
                    ..*peer
                });
                next.ends -= 1;
                emit(step("has a QP that the host ends", None), next);
            }
        }
        let mut go = |what, next: State| {
            let sent = next.open.all().len() > state.open.all().len();
            let newest = next.open.all().last().filter(|open| sent && !open.empty);
            let step = Step {
                who: None,
                what,
                how: None,
                buffer: newest.map(|open| open.buffer),
            };
            emit(step, next);
        };
        self.receive(state, &mut go)?;
        self.send(state, &mut go)
    }

    /// No state may be without a next step, because the sender makes calls without end.
    fn at_rest(&self, state: &State) -> Result<(), Broken> {
        broken(Property::DL, format!("nothing moves: {state:?}"))
    }
}
