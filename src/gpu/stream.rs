//! Streams, in each of which launches run in order, and graphs, which are recorded launches.
//!
//! ```text
//! a.begin_capture()      launches in `a` are recorded, not run
//! launch in a            -> event
//! b.wait(&event)         `b` joins the recording
//! launch in b            -> end
//! a.wait(&end)           every stream that joined leads back to `a`
//! a.end_capture()        -> graph
//! graph.launch(&a)       runs all of it, any number of times, with the parameters of the recording
//! ```

// UNSAFETY: a graph runs kernels on addresses that it recorded.
#![expect(unsafe_code, reason = "launching is unsafe, see `Graph::launch`")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::error::GpuError;
use super::event::Event;

/// A queue of launches of one device. They run in the order in which they were made, beside the launches of other streams.
///
/// A clone is the same stream. The stream ends when the last clone is dropped; that drop waits for what is in the stream.
#[derive(Clone, Debug)]
pub struct Stream {
    queue: Arc<dyn Queue>,
}

/// The interface of a backend's streams.
pub(super) trait Queue: Any + Send + Sync + fmt::Debug {
    /// See [`Stream::wait`].
    fn wait(&self, event: &Event) -> Result<(), GpuError>;
    /// See [`Stream::record`].
    fn record(&self) -> Result<Event, GpuError>;
    /// See [`Stream::is_capturing`].
    fn is_capturing(&self) -> Result<bool, GpuError>;
    /// See [`Stream::begin_capture`].
    fn begin_capture(&self) -> Result<(), GpuError>;
    /// See [`Stream::end_capture`].
    fn end_capture(&self) -> Result<Graph, GpuError>;
}

impl Stream {
    pub(super) fn new(queue: Arc<dyn Queue>) -> Self {
        Self { queue }
    }

    /// Returns the stream as the backend's own type, if it is a stream of that backend.
    pub(super) fn downcast<T: Queue>(&self) -> Option<&T> {
        let queue: &dyn Any = &*self.queue;
        queue.downcast_ref()
    }

    /// Makes later launches in this stream wait until `event` is done. Returns at once.
    ///
    /// If `event` comes from a stream that is being captured, this stream joins the capture.
    ///
    /// # Errors
    ///
    /// [`GpuError::BadArgument`] for the event of another backend or device. [`GpuError::Capture`] if this stream is in a capture to which
    /// the event does not belong, or if the event's capture has ended. The driver's errors.
    pub fn wait(&self, event: &Event) -> Result<(), GpuError> {
        self.queue.wait(event)
    }

    /// Returns the end of everything that is in the stream now.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn record(&self) -> Result<Event, GpuError> {
        self.queue.record()
    }

    /// Begins to record launches in this stream instead of running them. Only streams can wait for their events, and not the host.
    ///
    /// # Errors
    ///
    /// [`GpuError::Capture`] if the stream is in a capture already; the driver's errors.
    pub fn begin_capture(&self) -> Result<(), GpuError> {
        self.queue.begin_capture()
    }

    /// Returns whether launches in the stream are recorded, and not run: some caller began a capture here, or the stream has joined one.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn is_capturing(&self) -> Result<bool, GpuError> {
        self.queue.is_capturing()
    }

    /// Ends the capture that [`Stream::begin_capture`] began. Also after an error the stream can be used again.
    ///
    /// # Errors
    ///
    /// [`GpuError::Capture`] if no capture began here, or if a launch in another stream that joined does not lead back here by
    /// a [`Stream::wait`]; the driver's errors.
    pub fn end_capture(&self) -> Result<Graph, GpuError> {
        self.queue.end_capture()
    }
}

/// Recorded launches with their parameters, in the order that streams and events gave them.
///
/// Launches of one graph run one after the other. Branches that no event orders run in any order, also one after the other.
#[derive(Debug)]
pub struct Graph {
    replay: Box<dyn Replay>,
}

/// The interface of a backend's graphs.
pub(super) trait Replay: Send + Sync + fmt::Debug {
    /// See [`Graph::launch`].
    ///
    /// # Safety
    ///
    /// The contract of that function.
    unsafe fn launch(&self, stream: &Stream) -> Result<Event, GpuError>;
    /// Returns the number of recorded operations.
    fn len(&self) -> usize;
}

impl Graph {
    pub(super) fn new(replay: Box<dyn Replay>) -> Self {
        Self { replay }
    }

    /// Launches the whole graph in `stream`, as one launch.
    ///
    /// # Errors
    ///
    /// [`GpuError::BadArgument`] for a stream of another device; the errors of [`Gpu::launch`](super::Gpu::launch).
    ///
    /// # Safety
    ///
    /// As [`Gpu::launch`](super::Gpu::launch) for each recorded launch: the memory to which the recorded parameters point still
    /// lives, and stays until the event is done.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<Event, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.replay.launch(stream) }
    }

    /// Returns the number of recorded operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.replay.len()
    }

    /// Returns whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
