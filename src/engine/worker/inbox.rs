//! What others give a worker, and how it posts.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::held::Held;
use crate::engine::transfers::queue::RunQueue;
use crate::provider::Provider;

/// What others give a worker.
pub(super) struct Inbox<P: Provider> {
    /// The number of the worker.
    pub(super) number: u32,
    pub(super) queue: Arc<RunQueue>,
    pub(super) lanes: Mutex<Vec<Held<P::Lane>>>,
    pub(super) stops: AtomicBool,
}

/// How a worker posts.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Pace {
    /// Most WQEs for one doorbell.
    pub(in crate::engine) chain: u32,
    /// Most completions of one turn.
    pub(in crate::engine) reap: usize,
    /// Most local ranges of a WQE.
    pub(in crate::engine) gather: u32,
    /// How long slices of a closed transfer may take to end by themselves.
    pub(in crate::engine) grace: Duration,
}
