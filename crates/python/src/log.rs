//! What the runtime tells by `tracing`, as records of the logger `warpverbs` of Python.
//!
//! A thread that tells something puts it into a queue and needs no GIL. One thread of this module takes the GIL and hands the queue to
//! Python. It starts with the first event and ends before the interpreter does.

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
    /// No further event is taken.
    ends: bool,
    /// The thread has ended.
    over: bool,
}

/// Sends events to Python from now on.
pub(crate) fn start() {
    // It fails where this module is loaded once more: events go to Python already.
    let _ = tracing::subscriber::set_global_default(ToPython);
}

/// Hands over what waits, and ends the thread: no thread of this module takes the GIL behind this call.
#[pyfunction]
pub(crate) fn end_log(py: Python<'_>) {
    if let Some(queue) = QUEUE.get().filter(|queue| queue.is_here()) {
        py.detach(|| queue.end());
    }
}

impl Queue {
    fn started() -> Self {
        let spawned = thread::Builder::new()
            .name("log to Python".to_owned())
            .spawn(hand_over);
        Self {
            process: process::id(),
            state: Mutex::new(State {
                over: spawned.is_err(),
                ..State::default()
            }),
            changed: Condvar::new(),
        }
    }

    /// Whether this is no child that was forked from the process of the queue's thread.
    fn is_here(&self) -> bool {
        self.process == process::id()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, level: u8, words: String) {
        let mut state = self.state();
        match state.ends || state.over || state.events.len() >= WAITING {
            true => state.left_out += 1,
            false => state.events.push_back((level, words)),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Events that wait, and how many were left out before; none at the end.
    fn take(&self) -> Option<(VecDeque<(u8, String)>, u64)> {
        let mut state = self.state();
        loop {
            if !state.events.is_empty() {
                return Some((
                    std::mem::take(&mut state.events),
                    std::mem::take(&mut state.left_out),
                ));
            }
            if state.ends {
                return None;
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn end(&self) {
        let until = Instant::now() + LAST_WAIT;
        let mut state = self.state();
        state.ends = true;
        self.changed.notify_all();
        while !state.over {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What the thread does.
fn hand_over() {
    let queue = QUEUE.wait();
    while let Some((events, left_out)) = queue.take() {
        let handed = Python::try_attach(|py| {
            if let Err(error) = log(py, &events, left_out) {
                error.write_unraisable(py, None);
            }
        });
        if handed.is_none() {
            break;
        }
    }
    queue.state().over = true;
    queue.changed.notify_all();
}

fn log(py: Python<'_>, events: &VecDeque<(u8, String)>, left_out: u64) -> PyResult<()> {
    let logger = py
        .import("logging")?
        .call_method1("getLogger", ("warpverbs",))?;
    if left_out != 0 {
        let words =
            format!("{left_out} events were left out: {WAITING} others waited for a handler");
        logger.call_method1("warning", (words,))?;
    }
    for (level, words) in events {
        // The words are no pattern.
        logger.call_method1("log", (*level, "%s", words))?;
    }
    Ok(())
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

/// The message of an event, and its other fields behind it.
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
