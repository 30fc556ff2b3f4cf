//! Errors of the runtime as exceptions of `warpverbs.errors`, with their text.

use std::collections::BTreeMap;
use std::error::Error as StdError;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use warpverbs::config::ConfigError;
use warpverbs::engine::{EngineError, HostError, ProviderError};
use warpverbs::error::{Error, Part};
use warpverbs::gpu::GpuError;
use warpverbs::membership::GroupError;
use warpverbs::moe::{Difference, MoeError};
use warpverbs::team::{StoreError, TeamError};

/// The class `name` of `warpverbs.errors`, made with `text`. An interpreter that is shutting down may have lost the module; then
/// it is a RuntimeError.
pub(crate) fn raise(py: Python<'_>, name: &str, text: String) -> PyErr {
    let made = py
        .import("warpverbs.errors")
        .and_then(|module| module.getattr(name))
        .and_then(|class| class.call1((&text,)));
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(_) => PyRuntimeError::new_err(text),
    }
}

/// How an error of the runtime is raised in Python.
pub(crate) trait Raise {
    /// The class in `warpverbs.errors`.
    fn class(&self) -> &'static str;

    /// The rank that has failed or ended, if the error says so.
    fn rank(&self) -> Option<u32> {
        None
    }

    /// Returns whether the process of that rank has ended.
    fn has_ended(&self) -> bool {
        false
    }

    /// The exception, with the text of the error.
    fn raise(self, py: Python<'_>) -> PyErr
    where
        Self: StdError + Sized,
    {
        raise_as(py, &self, self.to_string())
    }
}

fn raise_as(py: Python<'_>, error: &impl Raise, text: String) -> PyErr {
    let raised = raise(py, error.class(), text);
    if let Some(rank) = error.rank() {
        // A RuntimeError of an interpreter that is shutting down takes the attribute, too.
        let _ = raised.value(py).setattr("ranks", (rank,));
    }
    if error.has_ended() {
        let _ = raised.value(py).setattr("ended", true);
    }
    raised
}

impl Raise for ConfigError {
    fn class(&self) -> &'static str {
        "ConfigError"
    }
}

impl Raise for TeamError {
    fn class(&self) -> &'static str {
        match self {
            Self::Absent { .. } => "TimeoutError",
            _ => "TeamError",
        }
    }

    fn rank(&self) -> Option<u32> {
        match self {
            Self::PeerFailed { rank, .. }
            | Self::PeerEnded { rank, .. }
            | Self::PeerClosed { rank }
            | Self::LeftOut { rank, .. } => Some(*rank),
            _ => None,
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self, Self::PeerEnded { .. })
    }
}

/// The exception of ranks that differ in an argument.
pub(crate) fn raise_difference(py: Python<'_>, found: &Difference) -> PyErr {
    let raised = raise(py, "MoeError", found.to_string());
    let values = [
        (found.first_rank, &found.first),
        (found.second_rank, &found.second),
    ];
    let value = raised.value(py);
    // A RuntimeError of an interpreter that is shutting down takes the attributes, too.
    let _ = value.setattr("argument", &found.argument);
    let _ = value.setattr("values", BTreeMap::from(values));
    if found.call.is_some() {
        let _ = value.setattr("call", found.call);
        let _ = value.setattr("phase", found.phase);
        let _ = value.setattr("_layer", &found.layer);
    }
    let _ = PyTuple::new(py, &found.missed).and_then(|ranks| value.setattr("ranks", ranks));
    raised
}

impl Raise for MoeError {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Arguments(found) => raise_difference(py, &found),
            other => raise_as(py, &other, other.to_string()),
        }
    }

    fn class(&self) -> &'static str {
        match self {
            Self::Team(error) => error.class(),
            Self::Gpu(error) => error.class(),
            Self::NotMade { source, .. } => source.class(),
            Self::Call(_) | Self::Arguments(_) => "MoeError",
            _ => "Refused",
        }
    }

    fn rank(&self) -> Option<u32> {
        match self {
            Self::Team(error) => error.rank(),
            Self::NotMade { source, .. } => source.rank(),
            _ => None,
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self, Self::Team(error) if error.has_ended())
    }
}

impl Raise for GpuError {
    fn class(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "TimeoutError",
            Self::BadArgument { .. } | Self::BadRange { .. } => "Refused",
            _ => "Error",
        }
    }
}

impl Raise for GroupError {
    fn class(&self) -> &'static str {
        match self {
            Self::State { .. } => "TimeoutError",
            Self::Bound { .. }
            | Self::Suspect { .. }
            | Self::Store(StoreError::NoLeases { .. }) => "Refused",
            _ => "GroupError",
        }
    }
}

impl Raise for EngineError {
    fn class(&self) -> &'static str {
        match self {
            Self::WouldBlock { .. } | Self::InboxFull { .. } => "WouldBlock",
            Self::PeerGone { .. } => "PeerGone",
            Self::Pending { .. } | Self::Busy { .. } | Self::WorkerPanicked(_) => "EngineError",
            Self::Slots { .. }
            | Self::Block { .. }
            | Self::Fragment { .. }
            | Self::SliceBytes { .. }
            | Self::Gather { .. }
            | Self::Devices { .. }
            | Self::FewQps { .. }
            | Self::Knob { .. } => "ConfigError",
            _ => "Refused",
        }
    }
}

impl Raise for HostError {
    fn class(&self) -> &'static str {
        match self {
            Self::Refused(error) => error.class(),
            Self::Provider(error) => error.class(),
            Self::Listed { error, .. } => error.class(),
            Self::Insecure { .. } | Self::NoAddress { .. } => "Refused",
            Self::KeyFile { .. } => "ConfigError",
            _ => "EngineError",
        }
    }
}

impl Raise for ProviderError {
    fn class(&self) -> &'static str {
        match self {
            Self::Memory { .. } | Self::Range { .. } => "Refused",
            Self::Gpu(GpuError::BadArgument { .. } | GpuError::BadRange { .. }) => "Refused",
            _ => "EngineError",
        }
    }
}

impl Raise for Error {
    fn class(&self) -> &'static str {
        match self.part() {
            Part::Config => "ConfigError",
            // An HCA is opened for a team.
            Part::Verbs => "TeamError",
            Part::Team => self
                .downcast_ref::<TeamError>()
                .map_or("TeamError", Raise::class),
            Part::Moe => self
                .downcast_ref::<MoeError>()
                .map_or("MoeError", Raise::class),
            Part::Gpu => self
                .downcast_ref::<GpuError>()
                .map_or("Error", Raise::class),
            _ => "Error",
        }
    }
}
