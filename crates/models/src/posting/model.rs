//! Posting as a model: its first state, the threads that may move, and what must hold in a state without a next step.

use super::configuration::{Admission, Configuration, Recovery};
use super::device::{self, RECOVERED};
use super::moves::Move;
use super::property::{Property, Violation};
use super::state::{At, State, Thread, Word, parked};
use super::thread;
use crate::explore::{Codec, Model, broken};

impl Model for Configuration {
    type State = State;
    type Step = Move;
    type Property = Property;

    const MOST_STATES: usize = 4_000_000;

    fn first(&self) -> State {
        // Equal programs get the number of the first of them.
        let number = |program| self.programs.iter().position(|other| other == program);
        let threads: Vec<Thread> = self
            .programs
            .iter()
            .filter_map(number)
            .map(|number| Thread::new(u8::try_from(number).unwrap()))
            .chain(self.mailbox.then(|| {
                // The host's thread has no program, so it gets the number after all programs.
                let mut agent = Thread::new(u8::try_from(self.programs.len()).unwrap());
                agent.at = At::Agent;
                agent
            }))
            .collect();
        let mut state = State::new(&threads);
        state.words[Word::CQE] = self.modulus - 1;
        state.words[self.flag(0)] = parked(0, false);
        state
    }

    fn code(&self, state: &mut State, codec: &mut impl Codec) {
        state.code(self.word_count(), codec);
    }

    fn steps(&self, state: &State, emit: &mut impl FnMut(Move, State)) -> Result<(), Violation> {
        let emit = &mut |step, mut next: State| {
            next.sort();
            if next != *state {
                emit(step, next);
            }
        };
        device::around(self, state, emit)?;
        let threads = state.threads();
        for number in 0..threads.len() {
            // A thread that equals the one before has the same successors, so it is left out.
            if number == 0 || threads[number] != threads[number - 1] {
                thread::steps(self, state, number, emit)?;
            }
        }
        Ok(())
    }

    fn at_rest(&self, state: &State) -> Result<(), Violation> {
        let words = &state.words;
        let hangs = if words[Word::ERR] != 0 || words[Word::DEAD] != 0 {
            Property::EndsAfterError
        } else if words[Word::BASE] + words[Word::RUN] >= self.modulus {
            Property::Wrap
        } else {
            Property::Ends
        };
        let unfinished = |thread: &Thread| {
            let program = self.programs.get(usize::from(thread.program));
            let ops = program.map_or(0, Vec::len);
            usize::from(thread.done) < ops || !thread.buffer.is_empty()
        };
        if state.threads().iter().any(unfinished) {
            let places: Vec<At> = state.threads().iter().map(|thread| thread.at).collect();
            return broken(hangs, format!("a thread hangs: {places:?}"));
        }
        let recovered = match self.recover {
            Recovery::Never => true,
            Recovery::AfterError => words[Word::ERR] == 0 || state.recovery == 2,
            Recovery::Staged => state.recovery == RECOVERED,
        };
        if !recovered {
            return broken(hangs, "the recovery hangs".to_owned());
        }
        if words[Word::READERS] != 0 {
            return broken(
                Property::Rest,
                format!("{} readers at rest", words[Word::READERS]),
            );
        }
        let (claim, resv) = (words[Word::CLAIM], words[Word::RESV]);
        if claim != resv && self.admission == Admission::Claim {
            return broken(
                Property::Rest,
                format!("claim {claim} and resv {resv} differ at rest"),
            );
        }
        if words[Word::DEAD] != 0 {
            return Ok(());
        }
        let run = words[Word::BASE] + words[Word::RUN];
        if run != resv {
            return broken(
                Property::NothingLost,
                format!("a lost doorbell: posted {resv}, run {run}"),
            );
        }
        if words[Word::TOKEN] != resv {
            return broken(
                Property::OneToken,
                format!("token at {}, resv {resv}", words[Word::TOKEN]),
            );
        }
        Ok(())
    }

    fn is_live(&self) -> bool {
        self.live
    }
}
