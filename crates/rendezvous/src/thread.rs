//! Threads that the library runs for itself. An error says why the system has not started one. A panic in such a thread marks the object
//! that the thread served. The next call on that object fails with the panic.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};

/// A thread of the library that the system has not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the thread '{thread}' of the library was not started: {reason}; raise the limit of threads (ulimit -u unlimited; docker run \
     --pids-limit=-1; TasksMax=infinity of systemd)"
)]
pub struct ThreadRefused {
    /// The name of the thread.
    pub thread: String,
    /// The system's reason.
    pub reason: String,
}

impl ThreadRefused {
    /// Returns the error for `thread`, which the system has refused with `cause`.
    #[doc(hidden)]
    #[must_use]
    pub fn new(thread: &str, cause: &io::Error) -> Self {
        Self {
            thread: thread.to_owned(),
            reason: cause.to_string(),
        }
    }
}

impl From<ThreadRefused> for io::Error {
    fn from(refused: ThreadRefused) -> Self {
        Self::other(refused)
    }
}

/// The panic of a thread of the library, which has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the thread '{thread}' of the library has panicked: {message}. This is a defect of the library; whatever the thread \
     served has to be made anew"
)]
pub struct ThreadPanicked {
    /// The name of the thread.
    pub thread: String,
    /// The message of its panic.
    pub message: String,
}

impl ThreadPanicked {
    /// Returns the error for a panic of `thread`.
    #[doc(hidden)]
    #[must_use]
    pub fn new(thread: &str, panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self {
            thread: thread.to_owned(),
            message: text.unwrap_or_else(|| "without a message".to_owned()),
        }
    }

    /// Runs `body` on the calling thread, whose name is `thread`.
    ///
    /// # Errors
    /// The panic of `body`.
    #[doc(hidden)]
    pub fn catch<T>(thread: &str, body: impl FnOnce() -> T) -> Result<T, Self> {
        // After a panic callers drop what `body` used, or locks keep it whole.
        catch_unwind(AssertUnwindSafe(body)).map_err(|panic| Self::new(thread, &*panic))
    }
}

/// A thread of the library. Its owner asks [`OwnThread::check`] in each of its calls.
#[derive(Debug)]
pub struct OwnThread {
    handle: JoinHandle<()>,
    panicked: Arc<OnceLock<ThreadPanicked>>,
}

impl OwnThread {
    /// Starts `body` as the thread `name`. If `body` panics, the thread runs `on_panic` and ends; `on_panic` wakes the threads that
    /// wait for it. [`OwnThread::check`] fails before `on_panic` begins.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn spawn(
        name: &str,
        body: impl FnOnce() + Send + 'static,
        on_panic: impl FnOnce(&ThreadPanicked) + Send + 'static,
    ) -> Result<Self, ThreadRefused> {
        let panicked = Arc::new(OnceLock::new());
        let (told, own_name) = (Arc::clone(&panicked), name.to_owned());
        let run = move || {
            if let Err(panic) = ThreadPanicked::catch(&own_name, body) {
                tracing::error!("{panic}");
                let _ = told.set(panic.clone());
                on_panic(&panic);
            }
        };
        let handle = Builder::new().name(name.to_owned()).spawn(run);
        let handle = handle.map_err(|cause| ThreadRefused::new(name, &cause))?;
        Ok(Self { handle, panicked })
    }

    /// Returns an error if the thread has panicked.
    ///
    /// # Errors
    /// The panic of the thread.
    pub fn check(&self) -> Result<(), ThreadPanicked> {
        match self.panicked.get() {
            Some(panicked) => Err(panicked.clone()),
            None => Ok(()),
        }
    }

    /// Ends the thread's [`std::thread::park`].
    pub fn unpark(&self) {
        self.handle.thread().unpark();
    }

    /// Returns whether the thread has ended, so that [`OwnThread::join`] does not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Waits until the thread has ended. A panic of the thread was reported before.
    pub fn join(self) {
        let _ = self.handle.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_panic_is_reported_at_once_and_found_at_every_later_look() {
        let (tell, told) = channel();
        let on_panic = move |panic: &ThreadPanicked| tell.send(panic.clone()).unwrap();
        let thread = OwnThread::spawn("worker 7", || panic!("planted {}", 3), on_panic).unwrap();
        let panic = told.recv_timeout(LONG).unwrap();
        assert_eq!(
            panic.to_string(),
            "the thread 'worker 7' of the library has panicked: planted 3. This is a defect of the library; whatever the \
             thread served has to be made anew"
        );
        assert_eq!(thread.check(), Err(panic.clone()));
        assert_eq!(thread.check(), Err(panic));
        thread.join();
    }

    #[test]
    fn a_thread_that_is_refused_is_named_with_the_reason_and_what_to_do() {
        let refused = ThreadRefused::new("worker 7", &io::ErrorKind::WouldBlock.into());
        let text = "the thread 'worker 7' of the library was not started: operation would block; raise the limit of threads (ulimit -u \
                    unlimited; docker run --pids-limit=-1; TasksMax=infinity of systemd)";
        assert_eq!(refused.to_string(), text);
        assert_eq!(io::Error::from(refused).to_string(), text);
    }

    #[test]
    fn a_thread_that_ends_by_itself_has_nothing_to_tell() {
        let (tell, told) = channel();
        let parked = || std::thread::park_timeout(LONG);
        let thread = OwnThread::spawn("idle", parked, move |_| tell.send(()).unwrap()).unwrap();
        assert_eq!(thread.check(), Ok(()));
        thread.unpark();
        thread.join();
        assert!(
            told.recv_timeout(LONG).is_err(),
            "the thread ended without a panic"
        );
    }

    #[test]
    fn a_panic_without_words_is_one_too() {
        let caught = ThreadPanicked::catch("odd", || std::panic::panic_any(7u8));
        let message = caught.unwrap_err().message;
        assert_eq!(message, "without a message");
        assert_eq!(ThreadPanicked::catch("even", || 8), Ok(8));
    }
}
