//! What the runtime tells by `tracing`, as records of the logger `warpverbs` of Python.
//!
//! A thread that tells something puts it into a queue and needs no GIL. A thread of Python's own (`warpverbs._log`) takes the events and
//! calls the handlers. It begins with the first event, and is a daemon. The interpreter may end before a handler has returned. It then
//! ends a thread that wants the GIL where that stands, which a frame of Rust does not survive: the process would abort. So this thread has none
//! below a handler, and [`next_events`] takes the GIL no more once [`end_log`] was called.

use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{process, thread};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Most events that wait for Python. Later ones are counted and left out.
const WAITING: usize = 4096;
/// Longest wait at the end for a handler of Python's.
const LAST_WAIT: Duration = Duration::from_secs(1);

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Levels of Python's and words, and how many events were left out before them.
type Events = (Vec<(u8, String)>, u64);

/// Events of one process on their way to Python.
#[derive(Debug)]
struct Queue {
    process: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<(u8, String)>,
    left_out: u64,
    /// Python's thread has been started, or cannot be.
    begun: bool,
    /// No further event is taken.
    ends: bool,
    /// Python's thread has taken all events and takes the GIL no more, or there is none.
    over: bool,
}

/// Sends events to Python from now on.
pub(crate) fn start() {
    // It fails where this module is loaded once more: events go to Python already.
    let _ = tracing::subscriber::set_global_default(ToPython);
}

/// Hands over what waits, and takes no event any more. Python's thread takes the GIL after this call only where a handler still runs.
/// Returns what that thread does not take, since it could not be started.
#[pyfunction]
pub(crate) fn end_log(py: Python<'_>) -> Events {
    let queue = QUEUE.get_or_init(Queue::ended);
    if queue.is_here() {
        py.detach(|| queue.end())
    } else {
        Events::default()
    }
}

/// The next events, and how many were left out before them: for Python's thread. Waits for them. At the end it does not return.
#[pyfunction]
pub(crate) fn next_events(py: Python<'_>) -> Events {
    let queue = QUEUE.get_or_init(Queue::ended);
    py.detach(|| queue.take())
}

impl Queue {
    fn new(state: State) -> Self {
        Self {
            process: process::id(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// One whose events a thread of Python's will take, which another thread starts.
    fn started() -> Self {
        let spawned = thread::Builder::new()
            .name("starts log".to_owned())
            .spawn(begin);
        let fails = spawned.is_err();
        Self::new(State {
            begun: fails,
            over: fails,
            ..State::default()
        })
    }

    /// One that takes no event.
    fn ended() -> Self {
        Self::new(State {
            begun: true,
            ends: true,
            over: true,
            ..State::default()
        })
    }

    /// Returns whether this is no child that was forked from the process of the queue's thread.
    fn is_here(&self) -> bool {
        self.process == process::id()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, level: u8, words: String) {
        let mut state = self.state();
        if state.ends || state.events.len() >= WAITING {
            state.left_out += 1;
        } else {
            state.events.push_back((level, words))
        }
        drop(state);
        self.changed.notify_all();
    }

    fn take(&self) -> Events {
        let mut state = self.state();
        loop {
            if !state.events.is_empty() {
                return state.taken();
            }
            if state.ends && !state.over {
                state.over = true;
                self.changed.notify_all();
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self) -> Events {
        let mut state = self.state();
        state.ends = true;
        self.changed.notify_all();
        // The thread that starts Python's needs the GIL, which this one does not have.
        while !state.begun {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let until = Instant::now() + LAST_WAIT;
        while !state.over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Events::default();
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.taken()
    }
}

impl State {
    fn taken(&mut self) -> Events {
        let events = std::mem::take(&mut self.events);
        (events.into(), std::mem::take(&mut self.left_out))
    }
}

/// Starts Python's thread. Python refuses that at its exit: then [`end_log`] returns the events.
fn begin() {
    let queue = QUEUE.wait();
    let started = Python::try_attach(|py| {
        let found = py.import("warpverbs._log");
        found
            .and_then(|module| module.call_method0("start"))
            .is_ok()
    });
    let mut state = queue.state();
    state.begun = true;
    state.over |= !started.unwrap_or_default();
    queue.changed.notify_all();
}

/// The one subscriber of this module's copy of the runtime.
#[derive(Debug)]
struct ToPython;

impl Subscriber for ToPython {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG && metadata.is_event()
    }

    fn event(&self, event: &Event<'_>) {
        let queue = QUEUE.get_or_init(Queue::started);
        if !queue.is_here() {
            return;
        }
        let mut words = Words::default();
        event.record(&mut words);
        let level = match *event.metadata().level() {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            _ => 10,
        };
        queue.add(level, words.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message of an event, and its other fields after it.
#[derive(Debug, Default)]
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let written = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        debug_assert!(written.is_ok(), "a String takes all words");
    }
}
