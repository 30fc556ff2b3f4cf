//! All steps of the model, and what must hold in a state without a next step.

use std::fmt;

use super::configurations::Transfer;
use super::property::{Broken, Property};
use super::state::{Notice, State};
use crate::engine::MOST_STATES;
use crate::engine::account::{Account, Outcome};
use crate::explore::{Codec, Model, broken};

/// The name of a step, with its subject, as `worker 0 posts`.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    whose: &'static str,
    number: usize,
    what: &'static str,
}

impl Step {
    pub(super) fn new(whose: &'static str, number: usize, what: &'static str) -> Self {
        Self {
            whose,
            number,
            what,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.whose, self.number, self.what)
    }
}

impl<A: Account> Model for Transfer<A> {
    type State = State<A>;
    type Step = Step;
    type Property = Property;

    const MOST_STATES: usize = MOST_STATES;

    fn first(&self) -> State<A> {
        self.begin()
    }

    fn code(&self, state: &mut State<A>, codec: &mut impl Codec) {
        state.code(codec);
    }

    fn steps(&self, state: &State<A>, emit: &mut impl FnMut(Step, State<A>)) -> Result<(), Broken> {
        let emit = &mut |step, next: State<A>| {
            if next != *state {
                emit(step, next);
            }
        };
        self.slices_move(state, emit)?;
        self.qps_move(state, emit);
        self.peer_moves(state, emit);
        self.control_moves(state, emit)?;
        for worker in 0..usize::from(self.workers) {
            self.worker_moves(state, worker, emit)?;
        }
        self.user_moves(state, emit)
    }

    fn at_rest(&self, state: &State<A>) -> Result<(), Broken> {
        let user = state.user;
        if !user.has_seen {
            let places: Vec<_> = self.slices(state).iter().map(|slice| slice.place).collect();
            let text = format!("it is never concluded: {places:?} {:?}", state.account);
            return broken(Property::Ends, text);
        }
        if user.status == Some(Outcome::Done) && user.notice != Notice::There {
            broken(Property::N1, "the notice is lost".to_owned())
        } else {
            Ok(())
        }
    }

    fn is_live(&self) -> bool {
        self.live
    }
}
