//! Breadth-first search over all states, and what must hold where nothing can move.

use super::configuration::{Admission, Configuration, Recovery};
use super::device::{RECOVERED, Violation, broken};
use super::property::Property;
use super::state::{At, State, Thread, Word, parked};
use crate::explore::Met;

/// No configuration comes near: a mistake in one must not eat the machine.
const MOST_STATES: usize = 4_000_000;

/// What a search found.
pub struct Found {
    /// States met.
    pub states: usize,
    /// The first violation.
    pub violation: Option<Violation>,
}

impl Configuration {
    /// Visits every state, or those up to the first violation.
    pub fn search(&self) -> Found {
        let mut search = Search {
            configuration: self,
            met: Met::new(),
            before: Vec::new(),
            ends: Vec::new(),
        };
        let violation = search.run().err();
        Found {
            states: search.met.count(),
            violation,
        }
    }

    fn first_state(&self) -> State {
        // Equal programs share the number of the first of them.
        let number = |program| self.programs.iter().position(|other| other == program);
        let threads: Vec<Thread> = self
            .programs
            .iter()
            .filter_map(number)
            .map(|number| Thread::new(u8::try_from(number).unwrap()))
            .chain(self.mailbox.then(|| {
                // The host's thread has no program.
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

    /// All states one step away.
    fn successors(&self, state: &State, emit: &mut impl FnMut(State)) -> Result<(), Violation> {
        self.around(state, emit)?;
        let threads = state.threads();
        for number in 0..threads.len() {
            // An identical thread has the same successors.
            if number == 0 || threads[number] != threads[number - 1] {
                self.thread_steps(state, number, emit)?;
            }
        }
        Ok(())
    }

    /// What must hold where nothing can move.
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
            return Err(broken(hangs, format!("a thread hangs: {places:?}")));
        }
        let recovered = match self.recover {
            Recovery::Never => true,
            Recovery::AfterError => words[Word::ERR] == 0 || state.recovery == 2,
            Recovery::Staged => state.recovery == RECOVERED,
        };
        if !recovered {
            return Err(broken(hangs, "the recovery hangs".to_owned()));
        }
        if words[Word::READERS] != 0 {
            return Err(broken(
                Property::Rest,
                format!("{} readers at rest", words[Word::READERS]),
            ));
        }
        let (claim, resv) = (words[Word::CLAIM], words[Word::RESV]);
        if claim != resv && self.admission == Admission::Claim {
            return Err(broken(
                Property::Rest,
                format!("claim {claim} and resv {resv} differ at rest"),
            ));
        }
        if words[Word::DEAD] != 0 {
            return Ok(());
        }
        let run = words[Word::BASE] + words[Word::RUN];
        if run != resv {
            return Err(broken(
                Property::NothingLost,
                format!("a lost doorbell: posted {resv}, run {run}"),
            ));
        }
        if words[Word::TOKEN] != resv {
            return Err(broken(
                Property::OneToken,
                format!("token at {}, resv {resv}", words[Word::TOKEN]),
            ));
        }
        Ok(())
    }
}

struct Search<'a> {
    configuration: &'a Configuration,
    met: Met,
    /// For liveness: (state, one before it).
    before: Vec<(u32, u32)>,
    ends: Vec<u32>,
}

impl Search<'_> {
    fn run(&mut self) -> Result<(), Violation> {
        let configuration = self.configuration;
        let words = configuration.word_count();
        let mut state = configuration.first_state();
        let mut bytes = Vec::new();
        state.pack(words, &mut bytes);
        self.met.number(&bytes);
        let mut me = 0;
        // States are numbered in the order in which they are met, which is that of the search.
        while let Some(packed) = self.met.state(me) {
            state.unpack(words, packed);
            let mut moved = false;
            configuration.successors(&state, &mut |mut next| {
                next.sort();
                if next != state {
                    moved = true;
                    next.pack(words, &mut bytes);
                    let id = self.met.number(&bytes);
                    if configuration.live {
                        self.before.push((id, me));
                    }
                }
            })?;
            if !moved {
                configuration.at_rest(&state)?;
            }
            if configuration.live && configuration.at_rest(&state).is_ok() {
                self.ends.push(me);
            }
            let met = self.met.count();
            assert!(
                met <= MOST_STATES,
                "{}: more than {MOST_STATES} states",
                configuration.name
            );
            me += 1;
        }
        if configuration.live {
            self.all_states_can_end()?;
        }
        Ok(())
    }

    /// From every state a state at rest is reachable: backwards from those.
    fn all_states_can_end(&mut self) -> Result<(), Violation> {
        let states = self.met.count();
        let index = |id: u32| usize::try_from(id).unwrap();
        let mut before: Vec<Vec<u32>> = vec![Vec::new(); states];
        for (state, earlier) in self.before.drain(..) {
            before[index(state)].push(earlier);
        }
        let mut can_end = vec![false; states];
        let mut left = self.ends.clone();
        for end in &left {
            can_end[index(*end)] = true;
        }
        while let Some(state) = left.pop() {
            for earlier in &before[index(state)] {
                if !std::mem::replace(&mut can_end[index(*earlier)], true) {
                    left.push(*earlier);
                }
            }
        }
        let Some(stuck) = can_end.iter().position(|can| !*can) else {
            return Ok(());
        };
        let mut state = self.configuration.first_state();
        let packed = self.met.state(u32::try_from(stuck).unwrap()).unwrap();
        state.unpack(self.configuration.word_count(), packed);
        let count = can_end.iter().filter(|can| !**can).count();
        let why = self.configuration.at_rest(&state).err();
        Err(broken(
            why.map_or(Property::Ends, |bad| bad.property),
            format!("livelock: from {count} states no end can be reached"),
        ))
    }
}
