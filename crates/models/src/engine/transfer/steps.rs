//! All steps of the model, and what must hold in a state without a next step.

use super::configurations::Transfer;
use super::moves::Step;
use super::property::{Broken, Property};
use super::state::{Notice, State};
use super::{control, hca, user, worker};
use crate::engine::account::{Account, Outcome};
use crate::engine::limits::MOST_STATES;
use crate::explore::{Codec, Model, broken};

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
        hca::slices_move(self, state, emit)?;
        hca::qps_move(self, state, emit);
        hca::peer_moves(self, state, emit);
        control::steps(self, state, emit)?;
        for worker in 0..usize::from(self.workers) {
            worker::steps(self, state, worker, emit)?;
        }
        user::steps(self, state, emit)
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
