//! Starts the thread `group connect` only while this rank has QPs to connect, or memory of a dropped rank to close. At other times the
//! process saves the stack of the thread, which counts when one process simulates a thousand ranks.

use std::sync::{Arc, Mutex, PoisonError};

use super::GroupError;
use super::connect::{self, Schedule};
use super::shared::Shared;
use super::threads::spawn;
use crate::error::OwnThread;

/// The thread `group connect`, and the state that outlives it.
#[derive(Debug, Default)]
pub(super) struct Connector {
    thread: Mutex<Option<OwnThread>>,
    /// When each rank is tried next. It outlives the thread, so that a pair that parts again has failed once more.
    schedule: Arc<Mutex<Schedule>>,
}

impl Connector {
    /// Starts the thread if it has work and does not run.
    ///
    /// # Errors
    /// [`GroupError::Thread`]: the system gives no thread. The next call tries again.
    pub(super) fn wake(&self, shared: &Arc<Shared>) -> Result<(), GroupError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut inner = shared.lock();
            if inner.connects || !inner.has_to_connect() || shared.is_stopped() {
                return Ok(());
            }
            inner.connects = true;
        }
        // The last thread has given its work up under the lock, and only its exit is left.
        if let Some(ended) = thread.take() {
            ended.join();
        }
        let (own, schedule) = (Arc::clone(shared), Arc::clone(&self.schedule));
        let body = move || {
            let mut schedule = schedule.lock().unwrap_or_else(PoisonError::into_inner);
            connect::run(&own, &mut schedule);
        };
        match spawn(shared, "group connect", body) {
            Ok(spawned) => *thread = Some(spawned),
            Err(error) => {
                shared.lock().connects = false;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Waits until the thread has ended, after [`Shared::stop`].
    pub(super) fn join(&self) {
        let thread = self.thread.lock();
        let thread = thread.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.join();
        }
    }
}
