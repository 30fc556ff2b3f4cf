//! The steps of the model, and what is checked in every cycle.

use super::code::Coder;
use super::model::{Label, Model, Violation};
use super::state::State;
use super::{check, turn, world};
use crate::explore::{self, Broken, Codec, Edge, broken};

impl explore::Model for Model {
    type State = State;
    type Step = Label;
    type Property = &'static str;

    const MOST_STATES: usize = 4_000_000;

    fn first(&self) -> State {
        self.start()
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        Coder {
            slots: self.slots,
            codec,
        }
        .state(state);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Label, State)) -> Result<(), Violation> {
        let mut emit = |label: Label, mut next: State| {
            self.renumber(&mut next);
            if next != *state {
                emit(label, next);
            }
        };
        turn::steps(self, state, &mut emit)?;
        world::steps(self, state, &mut emit);
        Ok(())
    }

    fn at_rest(&self, _: &State) -> Result<(), Violation> {
        Ok(())
    }

    fn once(&self) -> Option<Violation> {
        Some(Broken {
            property: "A3",
            text: "proposals without end".to_owned(),
        })
    }

    fn edge(&self, step: &Label) -> Edge {
        step.edge
    }

    fn on_cycle(&self, state: &State) -> Result<(), Violation> {
        if check::is_calm(state) && !check::is_good(self, state) {
            return broken("A1", "undisturbed, and not in one view for ever".to_owned());
        }
        if check::lingers(self, state) {
            broken(
                "A5",
                "one who is disturbed for good stays a member".to_owned(),
            )
        } else {
            Ok(())
        }
    }
}
