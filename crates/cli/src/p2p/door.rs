//! Limits of what clients may take of a server: the number of conversations without a request, and the number of requests at a time.
//!
//! A client that connects takes a thread and descriptors before it says what it wants. If there is one such conversation too many, the
//! server ends the one that has been silent longest, as an engine does. A request also takes a window. If there is one request too many, it
//! is refused. So its client knows at once, and no queue of strangers grows here.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::error::P2pError;
use super::requests::Handle;

/// The most conversations at a time that have not made a request.
const MOST_STRANGERS: usize = 64;

/// The limits of a server, and the conversations that it has now.
pub(super) struct Door {
    limits: Limits,
    state: Mutex<State>,
    /// A descriptor that becomes readable when no more requests are wanted.
    over: OwnedFd,
}

/// How many requests a server takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most requests in all; None: no limit.
    pub(super) requests: Option<u64>,
    /// The most requests at a time.
    pub(super) at_once: usize,
}

#[derive(Default)]
struct State {
    strangers: Vec<Stranger>,
    /// The number of requests that were taken.
    requests: u64,
    /// The number of these that are served now.
    served: usize,
    /// The number of conversations so far.
    visits: u64,
}

/// A conversation without a request.
struct Stranger {
    visit: u64,
    handle: Arc<Handle>,
}

/// A conversation, from its begin to its end.
pub(super) struct Visit<'a> {
    door: &'a Door,
    from: String,
    number: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The conversation has made no request.
    Stranger,
    Served,
    /// The request of the conversation is over.
    Over,
}

impl Door {
    pub(super) fn new(limits: Limits) -> io::Result<Self> {
        let over = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let state = Mutex::default();
        Ok(Self {
            limits,
            state,
            over,
        })
    }

    /// Returns whether no more requests are taken.
    pub(super) fn is_over(&self) -> bool {
        self.is_over_in(&self.state())
    }

    /// Waits until a connection can be taken from `listener`, if it is given, or `most` has passed, or no more requests are taken.
    pub(super) fn wait(
        &self,
        listener: Option<BorrowedFd<'_>>,
        most: Option<Duration>,
    ) -> io::Result<()> {
        let most = most.map(Timespec::try_from).transpose();
        let most = most.map_err(io::Error::other)?;
        let mut waits = vec![PollFd::new(&self.over, PollFlags::IN)];
        waits.extend(listener.map(|it| PollFd::from_borrowed_fd(it, PollFlags::IN)));
        match poll(&mut waits, most.as_ref()) {
            // The caller checks what has happened.
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Admits a conversation. If too many have made no request, it ends the one that has been silent longest.
    pub(super) fn enter(&self, handle: &Arc<Handle>, from: String) -> Visit<'_> {
        let mut state = self.state();
        if state.strangers.len() >= MOST_STRANGERS {
            let all = state.strangers.iter().enumerate();
            if let Some((at, _)) = all.min_by_key(|(_, it)| it.handle.heard()) {
                state.strangers.swap_remove(at).handle.end();
            }
        }
        let number = state.visits;
        state.visits += 1;
        state.strangers.push(Stranger {
            visit: number,
            handle: Arc::clone(handle),
        });
        Visit {
            door: self,
            from,
            number,
            stage: Stage::Stranger,
        }
    }

    /// Ends all conversations without a request.
    pub(super) fn close(&self) {
        for stranger in self.state().strangers.drain(..) {
            stranger.handle.end();
        }
    }

    fn is_over_in(&self, state: &State) -> bool {
        let most = self.limits.requests;
        most.is_some_and(|most| state.requests >= most)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visit<'_> {
    /// Returns the address of the client.
    pub(super) fn from(&self) -> &str {
        &self.from
    }

    /// Counts a request of this conversation, if the limits allow it.
    ///
    /// # Errors
    /// The limit because of which the request is refused.
    pub(super) fn request(&mut self) -> Result<(), P2pError> {
        let mut state = self.door.state();
        if let Some(reason) = self.refusal(&state) {
            return Err(self.refused(reason));
        }
        let number = self.number;
        state.strangers.retain(|it| it.visit != number);
        state.requests += 1;
        state.served += 1;
        self.stage = Stage::Served;
        if self.door.is_over_in(&state)
            && let Err(error) = rustix::io::write(&self.door.over, &1u64.to_ne_bytes())
        {
            tracing::error!("the server takes one more connection before it ends: {error}");
        }
        Ok(())
    }

    /// Frees the place of this conversation for another one. Its request is over, and its window is gone.
    pub(super) fn leave(&mut self) {
        let mut state = self.door.state();
        match self.stage {
            Stage::Stranger => state.strangers.retain(|it| it.visit != self.number),
            Stage::Served => state.served -= 1,
            Stage::Over => {}
        }
        self.stage = Stage::Over;
    }

    /// Returns the result of a conversation that ends as `done`. If the door ended the conversation, the result is the reason for that.
    pub(super) fn judged(&self, done: Result<(), P2pError>) -> Result<(), P2pError> {
        let state = self.door.state();
        let is_ended = self.stage == Stage::Stranger && !self.is_stranger(&state);
        match done {
            Err(_) if is_ended => Err(self.refused(self.ended(&state))),
            done => done,
        }
    }

    fn refusal(&self, state: &State) -> Option<String> {
        let at_once = self.door.limits.at_once;
        if !self.is_stranger(state) || self.door.is_over_in(state) {
            return Some(self.ended(state));
        }
        (state.served >= at_once).then(|| {
            format!(
                "the server has at most {at_once} requests at a time (--at-once); ask again later"
            )
        })
    }

    fn ended(&self, state: &State) -> String {
        match self.door.limits.requests {
            Some(most) if self.door.is_over_in(state) => {
                format!("the server ends: it has taken its {most} requests (--requests)")
            }
            _ => format!(
                "ended, since {MOST_STRANGERS} conversations have made no request, the most, and this one was silent longest"
            ),
        }
    }

    fn is_stranger(&self, state: &State) -> bool {
        state.strangers.iter().any(|it| it.visit == self.number)
    }

    fn refused(&self, reason: String) -> P2pError {
        let place = self.from.clone();
        P2pError::Other { place, reason }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
