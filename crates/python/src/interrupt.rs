//! Calls of Python that wait for other ranks, and what ends them early: Ctrl-C, or what a handler of a signal raises.

use std::cell::{Cell, RefCell};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use warpverbs::error::ThreadRefused;
use warpverbs::team::StoreError;

/// How long a wait goes on before it looks for signals such as Ctrl-C.
pub(crate) const SIGNALS: Duration = Duration::from_millis(50);

/// A call of a store.
type Task = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Where calls of the store are made for this thread.
    static ASKING: RefCell<Option<Sender<Task>>> = const { RefCell::new(None) };
    /// Whether this thread has come from Python and may take the GIL.
    static LENT: Cell<bool> = const { Cell::new(false) };
    /// What ends the call and is no error of the store.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// Whether a call of the store has failed with it already.
    static TOLD: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body` without the GIL. A store of Python's takes it for each of its calls, and a signal ends its waits for other ranks.
pub(crate) fn detach<T: Send>(py: Python<'_>, body: impl Send + FnOnce() -> T) -> PyResult<T> {
    let lent = Lent(LENT.replace(true));
    let done = py.detach(body);
    // A call within another, from a store of Python's: what ends it ends the outer one.
    let raised = if lent.0 { None } else { RAISED.take() };
    drop(lent);
    raised.map_or(Ok(done), Err)
}

/// Ends the outermost call of this thread, also where it panics.
struct Lent(bool);

impl Drop for Lent {
    fn drop(&mut self) {
        LENT.set(self.0);
        if !self.0 {
            TOLD.set(false);
            RAISED.set(None);
            // The thread ends after the call that it makes.
            ASKING.set(None);
        }
    }
}

/// Returns whether this thread has come from Python.
pub(crate) fn is_lent() -> bool {
    LENT.get()
}

/// Ends the call with `error`. A call of the store fails with these words.
pub(crate) fn ends_with(error: PyErr) -> String {
    let words = error.to_string();
    RAISED.set(Some(error));
    TOLD.set(true);
    words
}

/// Lets handlers of signals run, on a thread that has come from Python.
pub(crate) fn look() {
    if is_lent() && RAISED.with_borrow(Option::is_none) {
        let raised = Python::attach(|py| py.check_signals());
        RAISED.set(raised.err());
    }
}

/// Returns what has ended the call, once: the calls of the store after it tell other ranks of the failure.
fn untold() -> Option<StoreError> {
    let cause = RAISED.with_borrow(|raised| raised.as_ref().map(PyErr::to_string))?;
    (!TOLD.replace(true)).then_some(StoreError::Interrupted { cause })
}

/// Returns whether the call has ended, and the store has got the error.
pub(crate) fn is_over() -> bool {
    TOLD.get()
}

/// Makes `call`, which a signal ends: then it goes on by itself, on the thread that makes it, and nothing comes of it here.
pub(crate) fn ask<T: Send + 'static>(
    call: impl Send + 'static + FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    if let Some(error) = untold() {
        return Err(error);
    }
    let (sender, answer) = channel();
    let task: Task = Box::new(move || {
        // A caller that a signal has ended does not wait for it.
        let _ = sender.send(call());
    });
    asking()?.send(task).map_err(|_| lost("it has ended"))?;
    loop {
        match answer.recv_timeout(SIGNALS) {
            Ok(answered) => return answered,
            Err(RecvTimeoutError::Timeout) => look(),
            Err(RecvTimeoutError::Disconnected) => return Err(lost("it has panicked")),
        }
        if let Some(error) = untold() {
            return Err(error);
        }
    }
}

/// The thread that makes calls of the store for this one, until the call of Python is over.
fn asking() -> Result<Sender<Task>, ThreadRefused> {
    ASKING.with_borrow_mut(|asking| {
        if let Some(asking) = asking {
            return Ok(asking.clone());
        }
        let (sender, tasks) = channel::<Task>();
        let run = move || tasks.into_iter().for_each(|task| task());
        let name = "store calls";
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(run);
        spawned.map_err(|cause| ThreadRefused::new(name, &cause))?;
        Ok(asking.insert(sender).clone())
    })
}

fn lost(why: &str) -> StoreError {
    StoreError::Foreign {
        store: "of this rank".to_owned(),
        message: format!("no thread for a call of it: {why}"),
    }
}
