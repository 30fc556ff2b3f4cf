//! Two or more ranks of a team that the doctor makes. They show what only a team shows, and what their kernels can move.

// UNSAFETY: launches the doctor's kernel on a window of its team.
#![expect(unsafe_code, reason = "launch of the doctor's kernel")]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::abi::DoctorPutParams;
use super::kernels::KERNELS;
use bytemuck::bytes_of;
use warpverbs::abi::{DevicePtr, Status, Window};
use warpverbs::config::QpModes;
use warpverbs::error::ThreadPanicked;
use warpverbs::gpu::{Gpu, GpuError, Launch};
use warpverbs::team::{JoinOptions, MemoryStore, Store, Team, TeamConfig, TeamError};
use warpverbs::verbs::{Context, Rung};

/// The longest wait of a rank for the other, and of a kernel. The doctor's own limit of the check is shorter.
const PATIENCE: Duration = Duration::from_secs(4);
/// How much longer than the deadline of a kernel the host waits for its end.
const GRACE: Duration = Duration::from_secs(1);

const PUT: &str = "wv_doctor_put";

/// A rank, with a window.
pub(super) struct Member {
    pub(super) team: Arc<Team>,
    pub(super) window: Window,
}

/// Joins two ranks of this process on one NIC and one GPU. The NIC reaches the GPU's memory by `rung`, or by the first way that works.
/// `bytes` is the length of their windows.
pub(super) fn join(
    context: &Arc<Context>,
    gpu: &Arc<dyn Gpu>,
    (modes, rung): (&QpModes, Option<Rung>),
    bytes: u64,
) -> Result<[Member; 2], String> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let rank = |rank: u32| {
        let mut config = TeamConfig::new(rank, 2)
            .with_qps_per_peer(1)
            .with_join_timeout(PATIENCE)
            .with_deadline(PATIENCE)
            .with_modes(*modes);
        config.set_rung(rung);
        let store = Arc::clone(&store);
        let joined = ThreadPanicked::catch("rank of the doctor", move || {
            let team = JoinOptions::new(config)
                .with_contexts([context])
                .with_gpu(gpu)
                .with_store(store)
                .join()?;
            let window = team.window(bytes)?;
            Ok::<_, TeamError>(Member { team, window })
        });
        match joined {
            Ok(Ok(member)) => Ok(member),
            Ok(Err(error)) => Err((error.is_remote(), error.to_string())),
            Err(panicked) => Err((false, panicked.to_string())),
        }
    };
    let both = thread::scope(|scope| {
        let other = scope.spawn(|| rank(1));
        let own = rank(0);
        let lost = || (false, "the thread of rank 1 is lost".to_owned());
        [own, other.join().unwrap_or_else(|_| Err(lost()))]
    });
    match both {
        [Ok(zero), Ok(one)] => Ok([zero, one]),
        [zero, one] => {
            let failed = [zero, one].into_iter().filter_map(Result::err);
            // A rank's own error is smaller than an error that another rank caused, so the cause is returned.
            Err(failed.min().expect("one of them").1)
        }
    }
}

/// A move of bytes by a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) peer: u32,
    /// The index of the QP to the peer.
    pub(super) qp: u32,
    /// The offsets in the windows of this rank and of the peer.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) bytes: u64,
    /// The number of lanes that share the bytes.
    pub(super) lanes: u32,
}

impl Member {
    /// Lets a kernel move bytes to a peer, and waits for its end.
    pub(super) fn put(&self, what: &Transfer) -> Result<(), String> {
        let status = self.launch(what).map_err(|error| error.to_string())?;
        match status {
            Status::OK => Ok(()),
            failed => Err(format!("{failed:?}")),
        }
    }

    fn launch(&self, what: &Transfer) -> Result<Status, GpuError> {
        let gpu = self.team.gpu();
        gpu.add_kernels(&KERNELS)?;
        let outcome = gpu.alloc(size_of::<Status>(), 8)?;
        gpu.write(outcome.addr(), bytes_of(&Status::TIMEOUT))?;
        let params = DoctorPutParams {
            team: DevicePtr::new(self.team.context_addr()),
            window: self.window,
            from: what.from,
            to: what.to,
            bytes: what.bytes,
            outcome: DevicePtr::new(outcome.addr()),
            deadline_ns: u64::try_from(PATIENCE.as_nanos()).expect("seconds"),
            peer: what.peer,
            qp: what.qp,
            lanes: what.lanes,
            reserved: 0,
        };
        let launch = Launch::new(PUT, 1, 32);
        // SAFETY: the window and the team live as long as `self`, and `outcome` until the kernel has ended or the process does. No
        // other code uses the bytes meanwhile.
        let event = unsafe { gpu.launch(&launch, bytes_of(&params)) }?;
        if let Err(error) = gpu.wait(&event, PATIENCE + GRACE) {
            std::mem::forget(outcome);
            return Err(error);
        }
        let mut status = Status::TIMEOUT;
        gpu.read(outcome.addr(), bytemuck::bytes_of_mut(&mut status))?;
        Ok(status)
    }

    /// Writes `bytes` to the window of this rank at `at`.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        let gpu = self.team.gpu();
        gpu.write(self.window.base + at, bytes)
            .map_err(|error| error.to_string())
    }

    /// Reads `bytes` from the window of this rank at `at`.
    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), String> {
        let gpu = self.team.gpu();
        gpu.read(self.window.base + at, bytes)
            .map_err(|error| error.to_string())
    }
}
