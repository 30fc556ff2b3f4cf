//! A thread that watches all keys of a store. A change wakes waiting callers, which so need not ask all the time.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;

use super::client::{CallError, Client};
use super::messages::{Streamed, Watched, encoded};
use crate::thread::{OwnThread, ThreadPanicked};

/// The time after which a watch is opened anew: a watch whose member has silently gone looks like a watch of keys that do not change.
const WATCH: Duration = Duration::from_secs(30);
/// Longest wait while the watch stands, since its member may have silently gone.
const WATCHED: Duration = Duration::from_millis(500);
/// Longest wait while no watch stands, and the pause before the watch is tried again.
const UNWATCHED: Duration = Duration::from_millis(50);

/// Counts changes below a prefix.
#[derive(Debug)]
pub(super) struct Changes {
    shared: Arc<Shared>,
    /// The agent of the watch alone, so that shutting it down interrupts the watch.
    agent: Agent,
    thread: Mutex<Option<OwnThread>>,
}

#[derive(Debug)]
struct Shared {
    client: Arc<Client>,
    request: Value,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    changes: u64,
    /// The value of `changes` when each thread last stopped waiting. The thread may have missed later changes.
    seen: HashMap<ThreadId, u64>,
    watching: bool,
    ended: bool,
}

impl Changes {
    /// Prepares the watch of the keys in `from..to`. It begins when a caller first waits.
    pub(super) fn new(client: &Arc<Client>, from: &str, to: &str) -> Self {
        let shared = Shared {
            client: Arc::clone(client),
            request: json!({"create_request": {"key": encoded(from), "range_end": encoded(to)}}),
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        Self {
            agent: client.other_agent(),
            shared: Arc::new(shared),
            thread: Mutex::default(),
        }
    }

    /// Waits until something has changed since this thread last waited, at most for `timeout`. It may return earlier.
    pub(super) fn wait(&self, timeout: Duration) {
        self.start();
        let thread = std::thread::current().id();
        let mut state = self.shared.state();
        let seen = state.seen.get(&thread).copied().unwrap_or(0);
        let most = if state.watching { WATCHED } else { UNWATCHED };
        if state.changes == seen {
            let waited = self.shared.changed.wait_timeout(state, timeout.min(most));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let changes = state.changes;
        state.seen.insert(thread, changes);
    }

    /// Returns an error if the thread that watches has panicked.
    pub(super) fn check(&self) -> Result<(), ThreadPanicked> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().map_or(Ok(()), OwnThread::check)
    }

    fn start(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (shared, agent) = (Arc::clone(&self.shared), self.agent.clone());
            let waited_for = Arc::clone(&self.shared);
            let wake = move |_: &_| {
                waited_for.state().watching = false;
                waited_for.changed.notify_all();
            };
            let spawned = OwnThread::spawn("etcd watch", move || shared.watch(&agent), wake);
            // Without the thread waits are only shorter.
            *thread = spawned.ok();
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.changed.notify_all();
        self.agent.clone().shutdown();
        let thread = self.thread.get_mut();
        if let Some(thread) = thread.unwrap_or_else(PoisonError::into_inner).take() {
            thread.join();
        }
    }
}

impl Shared {
    fn watch(&self, agent: &Agent) {
        while !self.state().ended {
            if let Err(error) = self.watch_once(agent) {
                tracing::debug!("etcd of {}: no watch: {error:?}", self.client.name());
            }
            let mut state = self.state();
            state.watching = false;
            if !state.ended {
                drop(self.changed.wait_timeout(state, UNWATCHED));
            }
        }
    }

    fn watch_once(&self, agent: &Agent) -> Result<(), CallError> {
        let response = self.client.stream(agent, "watch", &self.request, WATCH)?;
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let Some(line) = line.ok().filter(|_| !self.state().ended) else {
                return Ok(());
            };
            let line: Streamed<Watched> =
                serde_json::from_str(&line).map_err(|error| broken(error.to_string()))?;
            match line {
                Streamed {
                    result: Some(watched),
                    error: None,
                } if !watched.canceled => self.count(),
                refused => {
                    // An invalid token is the likely cause. If the cause is another one, a new token does no harm.
                    self.client.forget_token();
                    let cause = format!("{refused:?}");
                    return Err(broken(cause));
                }
            }
        }
        Ok(())
    }

    /// Counts a change. The first line of a watch counts too: changes before it may have been missed.
    fn count(&self) {
        let mut state = self.state();
        state.watching = true;
        state.changes += 1;
        drop(state);
        self.changed.notify_all();
    }

    /// The state is whole after every operation, so a panic of another thread under the lock has broken nothing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the error of a watch that has ended.
fn broken(cause: String) -> CallError {
    CallError::Unreachable {
        waited: Duration::ZERO,
        cause,
    }
}
