//! Events, by which a caller knows that a launch has ended.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::error::GpuError;

/// The end of one launch, or of everything that was in a stream.
#[derive(Clone, Debug)]
pub struct Event {
    completion: Arc<dyn Completion>,
}

/// How a backend reports that a launch has ended.
pub(super) trait Completion: Any + Send + Sync + fmt::Debug {
    /// Waits at most `timeout`; see [`Gpu::wait`](super::Gpu::wait).
    fn wait(&self, timeout: Duration) -> Result<(), GpuError>;

    /// Returns whether a wait would return at once with something other than a timeout. Counts as no look at a failure.
    fn is_done(&self) -> bool;
}

impl Event {
    pub(super) fn new(completion: Arc<dyn Completion>) -> Self {
        Self { completion }
    }

    /// Returns the event as the backend's own type, if it is an event of that backend.
    pub(super) fn downcast<T: Completion>(&self) -> Option<&T> {
        let completion: &dyn Any = &*self.completion;
        completion.downcast_ref()
    }

    /// Waits as [`Gpu::wait`](super::Gpu::wait) does, for a caller that does not hold the device.
    ///
    /// # Errors
    ///
    /// The errors of that function.
    pub fn wait(&self, timeout: Duration) -> Result<(), GpuError> {
        self.completion.wait(timeout)
    }

    /// Returns whether the kernel has ended, well or badly, or will never begin.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.completion.is_done()
    }
}
