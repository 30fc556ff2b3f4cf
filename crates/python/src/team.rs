//! Teams.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use warpverbs::error::Error;
use warpverbs::membership::{GroupError, newest_view, next_generation};
use warpverbs::moe::Difference;
use warpverbs::team::{JoinOptions, RankSet, Store, TeamConfig};

use crate::config::config;
use crate::dlpack::Memory;
use crate::error::{Raise, raise, raise_difference};
use crate::interrupt;
use crate::native_store;
use crate::origin::Origin;
use crate::store::Meeting;

/// Ranks that have found each other. `warpverbs.Team` wraps it.
#[pyclass(frozen, module = "warpverbs._native")]
#[derive(Debug)]
pub(crate) struct Team {
    /// None once it is closed.
    team: Mutex<Option<Arc<warpverbs::team::Team>>>,
    /// The store of Python's in which the founders have met, if that is one and this rank is one of them.
    meeting: Mutex<Option<Meeting>>,
    origin: Origin,
}

impl Team {
    pub(crate) fn of(team: Arc<warpverbs::team::Team>) -> Self {
        Self {
            team: Mutex::new(Some(team)),
            meeting: Mutex::default(),
            origin: Origin::here(),
        }
    }

    /// The team, unless it is closed or belongs to another process.
    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<Arc<warpverbs::team::Team>> {
        self.origin.check(py, "the team")?;
        let held = self.team.lock().unwrap_or_else(PoisonError::into_inner);
        held.clone()
            .ok_or_else(|| raise(py, "Refused", "the team is closed".to_owned()))
    }
}

/// Of close: QPs that were drained and idle; what was refused and leaked, in words.
type Ended = (usize, usize, Vec<String>, Vec<String>);

/// Why a team was not opened.
enum Opening {
    Team(Error),
    Group(GroupError),
}

impl From<Error> for Opening {
    fn from(error: Error) -> Self {
        Self::Team(error)
    }
}

impl From<GroupError> for Opening {
    fn from(error: GroupError) -> Self {
        Self::Group(error)
    }
}

impl Opening {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Team(error) => error.raise(py),
            Self::Group(error) => error.raise(py),
        }
    }
}

/// The role of this process: a founder, or a rank that comes later.
fn role(
    team: TeamConfig,
    store: &Arc<dyn Store>,
    founders: Vec<u32>,
    joins: bool,
) -> Result<TeamConfig, Opening> {
    if joins {
        let members: RankSet = match newest_view(store, team.ranks)? {
            Some(view) => view.members.into_keys().collect(),
            None => RankSet::default(),
        };
        let generation = next_generation(store.as_ref(), team.rank)?;
        return Ok(team.joining(generation, members));
    }
    let mut team = team;
    if !founders.is_empty() {
        team.members = Some(founders.into_iter().collect());
    }
    Ok(team)
}

#[pymethods]
impl Team {
    /// `given`: `WARPVERBS_*` variables that outrank the environment. `founders`: the ranks that begin the team, none means all of
    /// them. `joins`: this process takes the place of one that is gone. `store`: an object with the methods of a c10d store, and its
    /// name, in place of the store that the variables name.
    #[new]
    #[pyo3(signature = (given, founders, joins, store = None))]
    fn new(
        py: Python<'_>,
        given: HashMap<String, String>,
        founders: Vec<u32>,
        joins: bool,
        store: Option<(Py<PyAny>, String)>,
    ) -> PyResult<Self> {
        let config = config(py, &given)?;
        let opened = interrupt::detach(py, || {
            let of_python = store.map(|(object, name)| Meeting::new(object, name, &config.run_id));
            let meeting = of_python.transpose().map_err(Error::from)?;
            let store = match &meeting {
                None => native_store::open(&config).map_err(Error::from)?,
                Some(meeting) => Arc::clone(&meeting.records),
            };
            let team = role(TeamConfig::of(&config), &store, founders, joins)?;
            let options = JoinOptions::new(team).with_config(&config);
            let team = options.with_store(store).join().map_err(Error::from)?;
            Ok((team, meeting))
        })?;
        let (team, meeting) = opened.map_err(|error: Opening| error.raise(py))?;
        let meeting = meeting.filter(|_| !joins);
        Ok(Self {
            team: Mutex::new(Some(team)),
            meeting: Mutex::new(meeting),
            origin: Origin::here(),
        })
    }

    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.get(py)?.rank())
    }

    #[getter]
    fn ranks(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.get(py)?.ranks())
    }

    #[getter]
    fn generation(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.get(py)?.config().generation)
    }

    /// Longest wait for other ranks in what all do together, seconds.
    #[getter]
    fn join_timeout(&self, py: Python<'_>) -> PyResult<f64> {
        Ok(self.get(py)?.config().join_timeout.as_secs_f64())
    }

    /// CUDA's number of the GPU; none where kernels run on the CPU.
    #[getter]
    fn gpu(&self, py: Python<'_>) -> PyResult<Option<u32>> {
        Ok(self.get(py)?.gpu().slot().map(|slot| slot.ordinal))
    }

    /// `simt`, or the name of the GPU.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.get(py)?.gpu().label())
    }

    /// Bytes of the control heap that are in use, and its size.
    #[getter]
    fn control_heap(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let stats = self.get(py)?.control_stats();
        Ok((stats.live_bytes, stats.size))
    }

    /// One line that says which HCAs, memory and doorbells the team uses.
    fn summary(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.get(py)?.summary())
    }

    /// Returns whether it is closed, or belongs to another process.
    #[getter]
    fn closed(&self) -> bool {
        let held = self.team.lock().unwrap_or_else(PoisonError::into_inner);
        held.is_none() || !self.origin.is_here()
    }

    fn barrier(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let team = self.get(py)?;
        interrupt::detach(py, || team.barrier(name))?.map_err(|error| error.raise(py))
    }

    /// Raises what another rank, or a thread of this one, has failed with.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        let team = self.get(py)?;
        interrupt::detach(py, || team.check_peers())?.map_err(|error| error.raise(py))
    }

    /// The error of another founder on this machine whose process has ended; None if all run.
    fn ended_process(&self, py: Python<'_>) -> PyResult<Option<PyErr>> {
        let team = self.get(py)?;
        let looked = py.detach(|| team.check_processes());
        Ok(looked.err().map(|error| error.raise(py)))
    }

    /// Other founders on this machine whose processes have ended.
    fn ended_ranks(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        let team = self.get(py)?;
        Ok(py.detach(|| team.ended_ranks()))
    }

    /// Tells the others that this rank comes to nothing any more.
    fn tell_closed(&self, py: Python<'_>) -> PyResult<()> {
        let team = self.get(py)?;
        interrupt::detach(py, || team.tell_closed())
    }

    /// Other founders that have told so.
    fn closed_ranks(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        let team = self.get(py)?;
        interrupt::detach(py, || team.closed_ranks())?.map_err(|error| error.raise(py))
    }

    /// Writes what this rank makes with the others now, by the names and values of its arguments.
    fn wants(&self, py: Python<'_>, layer: &str, arguments: Vec<(String, String)>) -> PyResult<()> {
        let team = self.get(py)?;
        interrupt::detach(py, || team.wants(layer, &arguments))?.map_err(|error| error.raise(py))
    }

    /// The founders that go on, the same at all of them; waits for those in `awaited` that live.
    fn living(&self, py: Python<'_>, name: &str, awaited: Vec<u32>) -> PyResult<Vec<u32>> {
        let team = self.get(py)?;
        let awaited = awaited.into_iter().collect();
        let agreed = interrupt::detach(py, || team.living(name, awaited))?;
        let living = agreed.map_err(|error| match Difference::try_from(error) {
            Ok(found) => raise_difference(py, &found),
            Err(error) => error.raise(py),
        })?;
        Ok(living.iter().collect())
    }

    /// Tells the other ranks that this one gives up.
    fn give_up(&self, py: Python<'_>, why: &str) -> PyResult<()> {
        let team = self.get(py)?;
        interrupt::detach(py, || team.give_up(why))
    }

    /// Ends the waits of all kernels of this rank.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        let team = self.get(py)?;
        py.detach(|| team.abort()).map_err(|error| error.raise(py))
    }

    fn set_deadline(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let team = self.get(py)?;
        let deadline = seconds_of(py, "deadline", seconds)?;
        py.detach(|| team.set_deadline(deadline))
            .map_err(|error| error.raise(py))
    }

    /// Device memory, filled with zeros, that `__dlpack__` lends to other libraries.
    fn alloc(&self, py: Python<'_>, bytes: usize, align: usize) -> PyResult<Memory> {
        Memory::new(py, &self.get(py)?, bytes, align)
    }

    /// Gives the team back. Layers and calls that still exist keep what they need until they end. With `drain` the QPs of a team
    /// that nothing else holds drain first, and this rank leaves a store of Python's. Returns how many were drained and idle, and what
    /// was refused and leaked, in words.
    fn close(&self, py: Python<'_>, drain: bool) -> PyResult<Option<Ended>> {
        if !self.origin.is_here() {
            return Ok(None);
        }
        let held = taken(&self.team);
        let meeting = taken(&self.meeting);
        interrupt::detach(py, || {
            let team = held.filter(|_| drain)?;
            let members = members_of(&team);
            let report = team.close().ok();
            if let Some(meeting) = meeting {
                meeting.leave(members);
            }
            let report = report?;
            let (drained, idle) = (report.drained, report.idle);
            Some((drained, idle, report.refused, report.leaked))
        })
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if self.origin.is_here() {
            return;
        }
        // Queues, registrations and threads are the parent's: a forked child that ended them would end them for the parent.
        std::mem::forget((taken(&self.team), taken(&self.meeting)));
    }
}

fn taken<T>(held: &Mutex<Option<T>>) -> Option<T> {
    let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
    held.take()
}

/// Returns how many ranks have begun the team.
fn members_of(team: &warpverbs::team::Team) -> u32 {
    let count = team.config().members().iter().count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Returns whether kernels of `team` run on the CPU, where callers have no streams.
pub(crate) fn runs_on_cpu(team: &warpverbs::team::Team) -> bool {
    team.gpu().label().starts_with("simt")
}

/// A time that Python gives in seconds.
pub(crate) fn seconds_of(py: Python<'_>, name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        let words = format!(
            "{name} is {seconds} seconds; it must be a positive number that fits in 64 bits"
        );
        raise(py, "Refused", words)
    })
}
