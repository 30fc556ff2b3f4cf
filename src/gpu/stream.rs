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

/// A queue of launches of one device: they run in the order in which they were made, beside those of other streams.
///
/// Clones are the same stream. It ends when the last of them is dropped, which waits for what is in it.
#[derive(Clone, Debug)]
pub struct Stream {
    queue: Arc<dyn Queue>,
}

/// How a backend queues.
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

    /// Returns the backend's own type, if it is a stream of that backend.
    pub(super) fn downcast<T: Queue>(&self) -> Option<&T> {
        let queue: &dyn Any = &*self.queue;
        queue.downcast_ref()
    }

    /// Lets whatever is launched here from now on wait until `event` is done. Returns at once.
    ///
    /// If `event` comes from a stream that is being captured, this stream joins the capture.
    ///
    /// # Errors
    ///
    /// [`GpuError::BadArgument`] for the event of another backend or device. Also [`GpuError::Capture`] if only one of the two
    /// belongs to a capture that this stream is in, and the driver's errors.
    pub fn wait(&self, event: &Event) -> Result<(), GpuError> {
        self.queue.wait(event)
    }

    /// The end of everything that is in the stream now.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn record(&self) -> Result<Event, GpuError> {
        self.queue.record()
    }

    /// From now on launches here are recorded instead of run. Their events cannot be waited for by the host, only by streams.
    ///
    /// # Errors
    ///
    /// [`GpuError::Capture`] if the stream is in a capture already; the driver's.
    pub fn begin_capture(&self) -> Result<(), GpuError> {
        self.queue.begin_capture()
    }

    /// Returns whether launches in the stream are recorded, and not run: a capture began here, by any caller, or has joined.
    ///
    /// # Errors
    ///
    /// The driver's.
    pub fn is_capturing(&self) -> Result<bool, GpuError> {
        self.queue.is_capturing()
    }

    /// Ends what [`Stream::begin_capture`] began; also after an error, so that the stream can be used again.
    ///
    /// # Errors
    ///
    /// [`GpuError::Capture`] if no capture began here, or if a launch in another stream that joined does not lead back here by
    /// a [`Stream::wait`]; the driver's.
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

/// How a backend keeps a graph.
pub(super) trait Replay: Send + Sync + fmt::Debug {
    /// See [`Graph::launch`].
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn launch(&self, stream: &Stream) -> Result<Event, GpuError>;
    /// Recorded operations.
    fn len(&self) -> usize;
}

impl Graph {
    pub(super) fn new(replay: Box<dyn Replay>) -> Self {
        Self { replay }
    }

    /// Launches all of it in `stream`, as one.
    ///
    /// # Errors
    ///
    /// [`GpuError::BadArgument`] for a stream of another device; as [`Gpu::launch`](super::Gpu::launch).
    ///
    /// # Safety
    ///
    /// As [`Gpu::launch`](super::Gpu::launch) for each recorded launch: the memory to which the recorded parameters point still
    /// lives, and stays until the event is done.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<Event, GpuError> {
        // SAFETY: the caller's promise.
        unsafe { self.replay.launch(stream) }
    }

    /// Recorded operations.
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
