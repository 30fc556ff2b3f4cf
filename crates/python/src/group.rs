//! Groups: ranks die, leave and come back while the calls of a layer go on.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use warpverbs::membership::{GroupConfig, GroupError, GroupState, Layer};

use crate::error::{Raise, raise};
use crate::interrupt::{self, SIGNALS};
use crate::moe::Moe;
use crate::origin::Origin;
use crate::team::{Team, seconds_of};

const STATES: [(&str, GroupState); 6] = [
    ("joining", GroupState::Joining),
    ("serving", GroupState::Serving),
    ("changing", GroupState::Changing),
    ("expelled", GroupState::Expelled),
    ("left", GroupState::Left),
    ("broken", GroupState::Broken),
];

/// One rank in its group. `warpverbs.Group` wraps it.
#[pyclass(frozen, module = "warpverbs._native")]
#[derive(Debug)]
pub(crate) struct Group {
    /// None once it is closed.
    group: Mutex<Option<Arc<warpverbs::membership::Group>>>,
    /// The descriptor that `fileno` returned.
    eventfd: Mutex<Option<OwnedFd>>,
    start: Instant,
    origin: Origin,
}

impl Group {
    fn get(&self, py: Python<'_>) -> PyResult<Arc<warpverbs::membership::Group>> {
        self.origin.check(py, "the group")?;
        let held = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        held.clone()
            .ok_or_else(|| raise(py, "Refused", "the group is closed".to_owned()))
    }
}

fn name_of(state: GroupState) -> &'static str {
    let known = STATES.iter().find(|(_, of)| *of == state);
    known.map_or("unknown", |(name, _)| name)
}

#[pymethods]
impl Group {
    /// Puts the calls of `moe` under views that all members agree on. Bounds in seconds; none: the defaults.
    #[new]
    #[pyo3(signature = (team, moe, lease, stall, error, promise, found))]
    #[expect(
        clippy::too_many_arguments,
        reason = "the bounds of GroupConfig, by name in Python"
    )]
    fn new(
        py: Python<'_>,
        team: &Team,
        moe: &Moe,
        lease: f64,
        stall: Option<f64>,
        error: Option<f64>,
        promise: Option<f64>,
        found: Option<f64>,
    ) -> PyResult<Self> {
        let team = team.get(py)?;
        let bound = |name: &str, seconds: Option<f64>| {
            seconds
                .map(|seconds| seconds_of(py, name, seconds))
                .transpose()
        };
        let config = GroupConfig::new()
            .with_lease_ttl(seconds_of(py, "lease", lease)?)
            .with_stall_bound(bound("stall", stall)?)
            .with_error_bound(bound("error", error)?)
            .with_promise_bound(bound("promise", promise)?)
            .with_found_bound(bound("found", found)?);
        let layer = Arc::clone(&moe.moe) as Arc<dyn Layer>;
        let started = || warpverbs::membership::Group::start(&team, layer, &config);
        let group = interrupt::detach(py, started)?;
        Ok(Self {
            group: Mutex::new(Some(Arc::new(group.map_err(|error| error.raise(py))?))),
            eventfd: Mutex::default(),
            start: Instant::now(),
            origin: Origin::here(),
        })
    }

    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(name_of(self.get(py)?.state()))
    }

    /// The newest view that the kernels of this rank have: epoch, first call, generation by rank, parted pairs. None before the
    /// first.
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(view) = self.get(py)?.view() else {
            return Ok(None);
        };
        let all = PyDict::new(py);
        all.set_item("epoch", view.epoch)?;
        all.set_item("first", view.first)?;
        all.set_item("members", view.members.iter().into_py_dict(py)?)?;
        all.set_item("parted", view.parted)?;
        Ok(Some(all))
    }

    /// Returns how often things have happened so far, by the names of `GroupCounters`.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let of = self.get(py)?.counters();
        let all = PyDict::new(py);
        for (name, count) in [
            ("views", of.views),
            ("proposals", of.proposals),
            ("promises", of.promises),
            ("suspicions", of.suspicions),
            ("connections", of.connections),
            ("store_losses", of.store_losses),
            ("parted", of.parted),
            ("partings", of.partings),
            ("unions", of.unions),
        ] {
            all.set_item(name, count)?;
        }
        Ok(all)
    }

    /// Returns what has happened since the last call: seconds since the start of the group, and the kind with words.
    fn events(&self, py: Python<'_>) -> PyResult<Vec<(f64, String)>> {
        let events = self.get(py)?.events();
        let told = events.into_iter().map(|event| {
            let at = event.at.saturating_duration_since(self.start);
            (
                at.as_secs_f64(),
                format!("{}: {}", event.what.name(), event.what),
            )
        });
        Ok(told.collect())
    }

    /// Waits until this rank is in `state`, without the GIL. Ctrl-C ends the wait.
    fn wait(&self, py: Python<'_>, state: &str, seconds: f64) -> PyResult<()> {
        let Some((_, wanted)) = STATES.iter().find(|(name, _)| *name == state) else {
            let names: Vec<&str> = STATES.iter().map(|(name, _)| *name).collect();
            let words = format!("state is {state:?}; it must be one of {}", names.join(", "));
            return Err(raise(py, "Refused", words));
        };
        let group = self.get(py)?;
        self.until(py, &group, seconds, |slice| group.wait(*wanted, slice))
    }

    /// Waits until this rank serves in a view of at least `epoch`, and returns the epoch of its view.
    fn wait_view(&self, py: Python<'_>, epoch: u32, seconds: f64) -> PyResult<u32> {
        let group = self.get(py)?;
        self.until(py, &group, seconds, |slice| {
            group.wait_view(epoch, slice).map(|view| view.epoch)
        })
    }

    /// The group's eventfd, which closes with it: readable from a change until `clear_changes`, and at first.
    fn fileno(&self, py: Python<'_>) -> PyResult<RawFd> {
        let group = self.get(py)?;
        let mut eventfd = self.eventfd.lock().unwrap_or_else(PoisonError::into_inner);
        let held = match eventfd.take() {
            Some(held) => held,
            None => group.eventfd()?,
        };
        Ok(eventfd.insert(held).as_raw_fd())
    }

    /// Another descriptor of it, which the caller closes.
    fn eventfd(&self, py: Python<'_>) -> PyResult<RawFd> {
        Ok(self.get(py)?.eventfd()?.into_raw_fd())
    }

    /// Returns how often the state, the view or the masked ranks have changed. The eventfd is readable when they change again.
    fn clear_changes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.get(py)?.clear_changes())
    }

    /// Says that `rank` is not reached.
    fn suspect(&self, py: Python<'_>, rank: u32, why: &str) -> PyResult<()> {
        let group = self.get(py)?;
        py.detach(|| group.suspect(rank, why))
            .map_err(|error| error.raise(py))
    }

    /// Asks the others to go on without this rank, and waits until they do. Ctrl-C ends the wait, and the others still go on.
    fn leave(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let group = self.get(py)?;
        self.until(py, &group, seconds, |slice| group.leave(slice))
    }

    /// Stops the threads of the group and gives the lease back: the others go on without this rank.
    fn close(&self, py: Python<'_>) {
        if !self.origin.is_here() {
            return;
        }
        let held = {
            let mut group = self.group.lock().unwrap_or_else(PoisonError::into_inner);
            group.take()
        };
        py.detach(|| drop(held));
        let mut eventfd = self.eventfd.lock().unwrap_or_else(PoisonError::into_inner);
        *eventfd = None;
    }
}

impl Group {
    /// Waits by `wait` in slices, between which Ctrl-C is seen, until the state is reached or can no longer be.
    fn until<T: Send>(
        &self,
        py: Python<'_>,
        group: &warpverbs::membership::Group,
        seconds: f64,
        wait: impl Fn(Duration) -> Result<T, GroupError> + Sync,
    ) -> PyResult<T> {
        let (mut left, start) = (seconds_of(py, "timeout", seconds)?, Instant::now());
        loop {
            let slice = left.min(SIGNALS);
            // Before the wait: it may end just before the state does.
            let over = group.state().is_over();
            let waited = py.detach(|| wait(slice));
            left = left.saturating_sub(slice);
            match waited {
                Ok(there) => return Ok(there),
                Err(GroupError::State { .. }) if !left.is_zero() && !over => {
                    py.check_signals()?;
                }
                // The caller has waited for all slices.
                Err(GroupError::State {
                    state, wanted, why, ..
                }) => {
                    let waited = start.elapsed();
                    let whole = GroupError::State {
                        state,
                        wanted,
                        waited,
                        why,
                    };
                    return Err(whole.raise(py));
                }
                Err(error) => return Err(error.raise(py)),
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let group = self.group.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(held) = group.take() else {
            return;
        };
        if self.origin.is_here() {
            // Its threads end in a moment, and take the GIL for nothing.
            Python::attach(|py| py.detach(|| drop(held)))
        } else {
            std::mem::forget(held)
        }
    }
}
