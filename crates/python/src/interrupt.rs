//! Calls of Python that wait for other ranks, and what ends them early: Ctrl-C, or what a handler of a signal raises.

use std::cell::{Cell, RefCell};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use warpverbs::team::StoreError;

/// How long a wait goes on before it looks for signals such as Ctrl-C.
pub(crate) const SIGNALS: Duration = Duration::from_millis(50);

thread_local! {
    /// Whether this thread has come from Python and may take the GIL.
    static LENT: Cell<bool> = const { Cell::new(false) };
    /// What ends the call and is no error of the store.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// Whether a call of the store has failed with it already.
    static TOLD: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body` without the GIL. A store of Python's takes it for each of its calls, and a signal ends its waits for other ranks.
pub(crate) fn detach<T: Send>(py: Python<'_>, body: impl Send + FnOnce() -> T) -> PyResult<T> {
    let outer = LENT.replace(true);
    let done = py.detach(body);
    LENT.set(outer);
    TOLD.set(false);
    match RAISED.take() {
        Some(error) => Err(error),
        None => Ok(done),
    }
}

/// Whether this thread has come from Python.
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

/// What has ended the call, once: the calls of the store behind it tell other ranks of the failure.
fn untold() -> Option<StoreError> {
    let cause = RAISED.with_borrow(|raised| raised.as_ref().map(PyErr::to_string))?;
    (!TOLD.replace(true)).then_some(StoreError::Interrupted { cause })
}

/// Whether the call has ended, and the store was told so.
pub(crate) fn is_over() -> bool {
    TOLD.get()
}

/// Makes `call`, which a signal ends: then it goes on by itself, on a thread of its own, and nothing comes of it here.
pub(crate) fn ask<T: Send + 'static>(
    call: impl Send + 'static + FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    if let Some(error) = untold() {
        return Err(error);
    }
    let (sender, answer) = channel();
    let asking = thread::Builder::new().name("store call".to_owned());
    let spawned = asking.spawn(move || sender.send(call()).is_ok());
    let asking = spawned.map_err(|error| StoreError::Foreign {
        store: "of this rank".to_owned(),
        message: format!("no thread for a call of it: {error}"),
    })?;
    loop {
        match answer.recv_timeout(SIGNALS) {
            Ok(answered) => return answered,
            Err(RecvTimeoutError::Timeout) => look(),
            Err(RecvTimeoutError::Disconnected) => match asking.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(_) => unreachable!("a call that has ended has sent its answer"),
            },
        }
        if let Some(error) = untold() {
            return Err(error);
        }
    }
}
