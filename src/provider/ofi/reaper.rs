//! Where a worker finds completions, and where it sleeps.

use std::sync::Arc;
use std::time::Duration;

use super::cq::Cq;
use crate::provider::{Completion, ProviderError, Reaper, Wake};

/// The reaper of one worker.
#[derive(Debug)]
pub(crate) struct OfiReaper(Arc<Cq>);

impl OfiReaper {
    pub(super) fn new(cq: &Arc<Cq>) -> Self {
        Self(Arc::clone(cq))
    }
}

impl Reaper for OfiReaper {
    fn reap(&mut self, found: &mut Vec<Completion>, most: usize) {
        self.0.reap(found, most);
    }

    fn sleep(&mut self, wake: &Wake, most: Option<Duration>) -> Result<(), ProviderError> {
        self.0.sleep(wake, most)
    }
}
