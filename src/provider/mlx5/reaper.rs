//! The reaper of a worker: takes CQEs off its CQs for sends and for receives, and sleeps on all of them. If the workers of a NIC share
//! their CQs, `hub` takes the CQEs for all.

use std::sync::Arc;
use std::time::Duration;

use super::consumers::Consumers;
use super::hub::Hub;
use super::stock::Stock;
use crate::provider::{Completion, ProviderError, Reaper, Wake};

/// The place where the WQEs of one thread's lanes complete.
#[derive(Debug)]
pub struct Mlx5Reaper {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A worker with CQs of its own.
    Alone(Consumers),
    /// A worker with this number, which shares the CQs with all other workers.
    Shared(Arc<Hub>, usize),
}

impl Mlx5Reaper {
    pub(super) fn alone(stock: &Arc<Stock>) -> Self {
        let kind = Kind::Alone(Consumers::new(stock));
        Self { kind }
    }

    pub(super) fn shared(hub: &Arc<Hub>, worker: usize) -> Self {
        let kind = Kind::Shared(Arc::clone(hub), worker);
        Self { kind }
    }
}

impl Reaper for Mlx5Reaper {
    fn reap(&mut self, found: &mut Vec<Completion>, most: usize) {
        match &mut self.kind {
            Kind::Alone(consumers) => consumers.reap(found, most),
            Kind::Shared(hub, worker) => hub.reap(*worker, found, most),
        }
    }

    fn sleep(&mut self, wake: &Wake, most: Option<Duration>) -> Result<(), ProviderError> {
        match &mut self.kind {
            Kind::Alone(consumers) => consumers.sleep(wake, most),
            Kind::Shared(hub, worker) => hub.sleep(*worker, wake, most),
        }
    }
}
