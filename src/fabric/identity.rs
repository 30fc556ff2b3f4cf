//! The process, machine and device of a rank. They decide how kernels of other ranks reach its windows, and whether an earlier rank of its
//! slot can still reach theirs.
//!
//! Ranks of one process and device reach each other's windows by load and store at the owner's addresses. Ranks of one machine and user
//! open the windows by a name that the owner publishes. A QP in Err and an ended key fence packets, but nothing fences such stores. So a
//! generation that could make them is over only when its process is, or when that process says that the team is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rendezvous::Process;
use serde::{Deserialize, Serialize};

use crate::gpu::Gpu;

/// The living teams of this process.
static LIVING: Mutex<BTreeMap<u64, Living>> = Mutex::new(BTreeMap::new());

/// A living team.
#[derive(Debug, Default)]
struct Living {
    /// The device of the team's kernels. Empty until the team has published it.
    device: String,
    /// The windows of the team, by number.
    windows: BTreeMap<u32, Place>,
}

/// The address and the length of a window.
#[derive(Clone, Copy, Debug)]
struct Place {
    base: u64,
    bytes: u64,
}

/// Process and device of a rank, as other ranks compare it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The rank reaches others by load and store, and lets others do so.
    direct: bool,
    process: Process,
    user: u32,
    /// Two ranks of a process with the same value may load from and store to each other's device memory.
    device: String,
    /// A number drawn for each team that a process joins.
    team: u64,
    /// The teams of the process that lived when this identity was written.
    living: Vec<u64>,
}

/// How kernels of one rank reach the windows of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// By QPs only.
    #[default]
    Hca,
    /// By load and store, at the addresses that the other rank uses: both ranks are in one process, with one device.
    Process,
    /// By load and store, in memory that the other rank names and this rank maps: both processes are on one machine.
    Machine,
}

/// A team of this process. It counts as living until this is dropped.
#[derive(Debug)]
pub(crate) struct LiveTeam(u64);

impl LiveTeam {
    pub(crate) fn new() -> Self {
        let team = fastrand::Rng::new().u64(..);
        living().insert(team, Living::default());
        Self(team)
    }

    /// Notes where window `id` of the team is. Ranks of this process use this, and not a record.
    pub(crate) fn register(&self, id: u32, base: u64, bytes: u64) -> RegisteredWindow {
        if let Some(team) = living().get_mut(&self.0) {
            team.windows.insert(id, Place { base, bytes });
        }
        RegisteredWindow { team: self.0, id }
    }

    /// Returns the identity that the team publishes to others, with kernels on `gpu`.
    pub(crate) fn identity(&self, gpu: &dyn Gpu, direct: bool) -> Identity {
        let device = gpu.device_id();
        if let Some(team) = living().get_mut(&self.0) {
            team.device.clone_from(&device);
        }
        Identity {
            direct,
            process: Process::this(),
            user: fs::metadata("/proc/self").map_or(u32::MAX, |of| of.uid()),
            device,
            team: self.0,
            living: living().keys().copied().collect(),
        }
    }
}

impl Drop for LiveTeam {
    fn drop(&mut self) {
        living().remove(&self.0);
    }
}

/// The entry of a window among the living teams of this process. It stands as long as the window's memory.
#[derive(Debug)]
pub(crate) struct RegisteredWindow {
    team: u64,
    id: u32,
}

impl Drop for RegisteredWindow {
    fn drop(&mut self) {
        if let Some(team) = living().get_mut(&self.team) {
            team.windows.remove(&self.id);
        }
    }
}

impl Identity {
    /// Returns this identity with the teams of this process that live now.
    pub(crate) fn renewed(&self) -> Self {
        Self {
            living: living().keys().copied().collect(),
            ..self.clone()
        }
    }

    /// Returns the address of window `id` of this team. Returns None if the team is not of this process, has not registered the window, or
    /// the window does not have `bytes` bytes.
    pub(crate) fn window(&self, id: u32, bytes: u64) -> Option<u64> {
        if self.process != Process::this() {
            return None;
        }
        let place = *living().get(&self.team)?.windows.get(&id)?;
        (place.bytes == bytes).then_some(place.base)
    }

    /// Returns how kernels of this rank reach the windows of `other`.
    pub(crate) fn reach(&self, other: &Self) -> Reach {
        if !(self.direct && other.direct) {
            return Reach::Hca;
        }
        match self.process == other.process {
            true if self.device == other.device => Reach::Process,
            false if self.user == other.user && self.process.is_beside(&other.process) => {
                Reach::Machine
            }
            _ => Reach::Hca,
        }
    }

    /// Returns whether this generation surely stores nothing any more, as far as its successor and this process know.
    pub(crate) fn is_over(&self, successor: &Self) -> bool {
        if self.process == successor.process {
            return !successor.living.contains(&self.team);
        }
        if self.process == Process::this() {
            return !living().contains_key(&self.team);
        }
        self.process.has_ended()
    }

    /// Returns the process of this generation of the rank.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }
}

/// Returns the number of living teams of this process that run their kernels on `device`.
pub(crate) fn teams_on(device: &str) -> u32 {
    let teams = living();
    let count = teams.values().filter(|team| team.device == device).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn living() -> MutexGuard<'static, BTreeMap<u64, Living>> {
    LIVING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::gpu::simt::SimtGpu;

    fn identity(team: &LiveTeam) -> Identity {
        team.identity(SimtGpu::open().unwrap().as_ref(), true)
    }

    #[test]
    fn ranks_reach_each_other_by_where_they_are_and_what_both_want() {
        let teams = [LiveTeam::new(), LiveTeam::new()];
        let [own, same] = teams.each_ref().map(identity);
        assert_eq!(own.reach(&same), Reach::Process);
        let cuda = Identity {
            device: "cuda0".to_owned(),
            ..same.clone()
        };
        assert_eq!(own.reach(&cuda), Reach::Hca);
        let off = Identity {
            direct: false,
            ..same.clone()
        };
        assert_eq!((own.reach(&off), off.reach(&own)), (Reach::Hca, Reach::Hca));
        let other = Identity {
            process: Process::of(1),
            ..same
        };
        assert_eq!(own.reach(&other), Reach::Machine);
        let user = Identity {
            user: own.user + 1,
            ..other
        };
        assert_eq!(own.reach(&user), Reach::Hca);
    }

    #[test]
    fn a_dropped_team_of_this_process_is_over_once_its_successor_says_so() {
        let (old, new) = (LiveTeam::new(), LiveTeam::new());
        let (was, mut next) = (identity(&old), identity(&new));
        assert!(!was.is_over(&next));
        drop(old);
        assert!(!was.is_over(&next), "it was published before");
        next = next.renewed();
        assert!(was.is_over(&next));
    }

    #[test]
    fn where_a_window_of_this_process_is_says_its_team_and_no_record() {
        let team = LiveTeam::new();
        let own = identity(&team);
        assert_eq!(own.window(0, 64), None, "not registered yet");
        let window = team.register(0, 0x1000, 64);
        assert_eq!(own.window(0, 64), Some(0x1000));
        assert_eq!((own.window(1, 64), own.window(0, 65)), (None, None));
        let stranger = Identity {
            process: Process::of(1),
            ..own.clone()
        };
        assert_eq!(stranger.window(0, 64), None);
        let unknown = Identity {
            team: own.team ^ 1,
            ..own.clone()
        };
        assert_eq!(unknown.window(0, 64), None);
        drop(window);
        assert_eq!(own.window(0, 64), None, "its memory is gone");
        let _window = team.register(0, 0x2000, 64);
        drop(team);
        assert_eq!(own.window(0, 64), None, "its team is gone");
    }

    #[test]
    fn a_generation_of_another_process_is_over_when_that_has_ended() {
        let team = LiveTeam::new();
        let own = identity(&team);
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let was = Identity {
            process: Process::of(child.id()),
            ..own.clone()
        };
        assert!(!was.is_over(&own));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(was.is_over(&own));
    }
}
