//! Which process an object belongs to.

use pyo3::prelude::*;

use crate::error::raise;

/// The process that made an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin(u32);

impl Origin {
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    /// Refuses the use of `what` in a process that was forked from its maker.
    pub(crate) fn check(self, py: Python<'_>, what: &str) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        let (maker, own) = (self.0, std::process::id());
        let words = format!(
            "{what} belongs to process {maker}; this is process {own}, which was forked from it. Make teams after the fork, or start processes by spawn"
        );
        Err(raise(py, "Refused", words))
    }

    pub(crate) fn is_here(self) -> bool {
        self.0 == std::process::id()
    }
}
