//! The inbox of a worker, and how a worker posts.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::held::Held;
use crate::engine::transfers::queue::RunQueue;
use crate::provider::Provider;

/// The inbox of a worker: what others give it.
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
    /// The most WQEs for one doorbell.
    pub(in crate::engine) chain: u32,
    /// The most completions of one turn.
    pub(in crate::engine) reap: usize,
    /// The most local ranges of a WQE.
    pub(in crate::engine) gather: u32,
    /// The time in which slices of a closed transfer may end by themselves.
    pub(in crate::engine) grace: Duration,
}
