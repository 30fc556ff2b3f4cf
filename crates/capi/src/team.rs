//! Teams, and device memory for programs that have no other way to it.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use warpverbs::config::Config;
use warpverbs::gpu::{DeviceMemory, Gpu, GpuError, Stream};
use warpverbs::team::Team;

use crate::status::{Failure, array, given, guard, put, room, text, wv_status};

/// How this process takes part in a team. What is 0 or NULL is taken from the environment (WARPVERBS_*, or the variables of
/// torchrun, mpirun and srun), else from the defaults; a program that sets `ranks` needs no variables. The HCA carries all
/// payload; with WARPVERBS_DIRECT=1 at both, ranks of one machine load from and store to each other's memory instead.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_team_config {
    /// Ranks of the team. 0: rank and ranks from the environment.
    pub ranks: u32,
    /// This rank, below `ranks`.
    pub rank: u32,
    /// Where the ranks meet: "file://DIRECTORY".
    pub store: *const c_char,
    /// Tells runs apart that might meet in one store.
    pub run_id: *const c_char,
    /// RDMA device, or "auto"; several, one per rail, separated by commas.
    pub device: *const c_char,
    /// "auto", "simt" (kernels on the CPU) or the number of a GPU.
    pub gpu: *const c_char,
    /// Longest wait for other ranks while something is made together, ms.
    pub join_timeout_ms: u32,
    /// Longest wait of a device call, ms.
    pub deadline_ms: u32,
    /// QPs to each peer.
    pub qps_per_peer: u32,
    /// log2 of the send queue's WQEBBs.
    pub log_depth: u32,
}

/// Bytes that a copy to the host holds at a time beside the caller's.
const CHUNK: usize = 1 << 20;

/// Ranks that have found each other.
#[derive(Debug)]
pub struct wv_team {
    pub(crate) team: Arc<Team>,
    memory: Mutex<BTreeMap<usize, DeviceMemory>>,
}

impl wv_team {
    /// The stream that C names so.
    ///
    /// # Safety
    /// As [`warpverbs::gpu::Gpu::wrap_stream`].
    pub(crate) unsafe fn stream(team: &Team, raw: *mut c_void) -> Result<Stream, Failure> {
        // SAFETY: the caller's promise.
        Ok(unsafe { team.gpu().wrap_stream(raw) }?)
    }
}

impl wv_team_config {
    /// # Safety
    /// The texts are null or end with a NUL.
    unsafe fn read(&self) -> Result<Config, Failure> {
        let variable = |name: &str| std::env::var(name).ok();
        let given_ranks = |name: &str| match (self.ranks, name) {
            (0, _) => variable(name),
            (ranks, "WARPVERBS_RANKS") => Some(ranks.to_string()),
            (_, "WARPVERBS_RANK") => Some(self.rank.to_string()),
            _ => variable(name),
        };
        if self.ranks != 0 && self.rank >= self.ranks {
            let limit = format!("below ranks, which is {}", self.ranks);
            return Err(Failure::argument("rank", self.rank, &limit));
        }
        // SAFETY: the caller's promise, for each text.
        let texts = unsafe {
            [
                ("WARPVERBS_STORE", text("store", self.store)?),
                ("WARPVERBS_RUN_ID", text("run_id", self.run_id)?),
                ("WARPVERBS_DEVICE", text("device", self.device)?),
                ("WARPVERBS_GPU", text("gpu", self.gpu)?),
            ]
        };
        let numbers = [
            ("WARPVERBS_JOIN_TIMEOUT_MS", self.join_timeout_ms),
            ("WARPVERBS_DEADLINE_MS", self.deadline_ms),
            ("WARPVERBS_QPS_PER_PEER", self.qps_per_peer),
            ("WARPVERBS_LOG_DEPTH", self.log_depth),
        ];
        // The struct speaks the language of the variables, so that both go through one check.
        let source = |name: &str| {
            let text = texts.iter().find(|(known, _)| *known == name);
            if let Some((_, Some(text))) = text {
                return Some(text.clone());
            }
            match numbers.iter().find(|(known, _)| *known == name) {
                Some((_, number)) if *number != 0 => Some(number.to_string()),
                _ => given_ranks(name),
            }
        };
        Config::from_variables(source).map_err(Failure::config)
    }
}

/// Opens HCA and GPU and meets the other ranks. Collective. `config` NULL: all from the environment.
///
/// # Safety
/// `config` is null or a struct whose texts end with a NUL; `team` is where the handle goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_team_open(
    config: *const wv_team_config,
    team: *mut *mut wv_team,
) -> wv_status {
    guard(|| {
        room("team", team)?;
        let config = if config.is_null() {
            Config::from_env().map_err(Failure::config)?
        } else {
            // SAFETY: the caller's promise.
            unsafe { given("config", config)?.read() }?
        };
        let opened = wv_team {
            team: Team::start(&config)?,
            memory: Mutex::default(),
        };
        // SAFETY: checked above.
        unsafe { put("team", team, Box::into_raw(Box::new(opened))) }
    })
}

/// Gives a team back, and the device memory that is still allocated. NULL is allowed.
///
/// # Safety
/// `team` is null or of `wv_team_open` and used no more; no kernel uses its memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_team_close(team: *mut wv_team) -> wv_status {
    guard(|| {
        if !team.is_null() {
            // SAFETY: the caller's promise: it came from `Box::into_raw` and comes back once.
            drop(unsafe { Box::from_raw(team) });
        }
        Ok(())
    })
}

/// This rank and the number of ranks. Either may be NULL.
///
/// # Safety
/// `team` is a live handle; the others are null or variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_team_rank(
    team: *const wv_team,
    rank: *mut u32,
    ranks: *mut u32,
) -> wv_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let team = unsafe { given("team", team) }?;
        for (name, place, value) in [
            ("rank", rank, team.team.rank()),
            ("ranks", ranks, team.team.ranks()),
        ] {
            if !place.is_null() {
                // SAFETY: the caller's promise.
                unsafe { put(name, place, value) }?;
            }
        }
        Ok(())
    })
}

/// Waits until all ranks have come here with the same `name`, which is used once. Host only: streams go on.
///
/// # Safety
/// `team` is a live handle, `name` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_team_barrier(team: *const wv_team, name: *const c_char) -> wv_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (team, name) = unsafe { (given("team", team)?, text("name", name)?) };
        let name = name.ok_or_else(|| Failure::argument("name", "null", "a text"))?;
        Ok(team.team.barrier(&name)?)
    })
}

/// Waits until everything in `stream` has ended, at most `timeout_ms`: WV_TIMEOUT if it has not. For programs without the
/// CUDA runtime.
///
/// # Safety
/// `team` is a live handle, `stream` a stream of its device or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_stream_synchronize(
    team: *const wv_team,
    stream: *mut c_void,
    timeout_ms: u32,
) -> wv_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let team = unsafe { given("team", team) }?;
        // SAFETY: the caller's promise.
        let stream = unsafe { wv_team::stream(&team.team, stream) }?;
        let end = stream.record()?;
        match end.wait(Duration::from_millis(timeout_ms.into())) {
            Err(GpuError::Timeout { waited, .. }) => Err(Failure {
                status: wv_status::WV_TIMEOUT,
                words: format!("the stream is not idle after {waited:?}"),
            }),
            ended => Ok(ended?),
        }
    })
}

/// Allocates device memory, aligned for any array of this header and filled with zeros. A GPU program may use its own
/// allocator instead.
///
/// # Safety
/// `team` is a live handle, `address` where the address goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_device_alloc(
    team: *const wv_team,
    bytes: usize,
    address: *mut *mut c_void,
) -> wv_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let team = unsafe { given("team", team) }?;
        room("address", address)?;
        let memory = team.team.gpu().alloc(bytes, 256)?;
        let at = place(memory.addr())?;
        let mut all = team.memory.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(at, memory);
        // SAFETY: checked above. The address is the device's; only kernels and the copies below use it.
        unsafe { put("address", address, ptr::with_exposed_provenance_mut(at)) }
    })
}

/// Gives memory of `wv_device_alloc` back. NULL is allowed.
///
/// # Safety
/// `team` is a live handle; no kernel uses the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_device_free(team: *const wv_team, address: *mut c_void) -> wv_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let team = unsafe { given("team", team) }?;
        if address.is_null() {
            return Ok(());
        }
        let mut all = team.memory.lock().unwrap_or_else(PoisonError::into_inner);
        match all.remove(&address.addr()) {
            Some(_) => Ok(()),
            None => Err(Failure::argument(
                "address",
                format!("{address:p}"),
                "one that wv_device_alloc has given and that is not free",
            )),
        }
    })
}

/// Copies `bytes` from the host to device memory of `wv_device_alloc`. Does not wait for streams.
///
/// # Safety
/// `team` is a live handle; `from` holds `bytes` bytes; no kernel uses the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_device_write(
    team: *const wv_team,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> wv_status {
    // SAFETY: the caller's promise, here and in the body; any byte is a `u8`.
    unsafe {
        copy(team, bytes, |gpu| {
            let to = to.addr() as u64;
            gpu.check_range(to, bytes)?;
            let source = array("from", from.cast::<u8>(), bytes)?;
            Ok(gpu.write(to, source)?)
        })
    }
}

/// Copies `bytes` of device memory of `wv_device_alloc` to the host. Does not wait for streams.
///
/// # Safety
/// `team` is a live handle; `to` has room for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_device_read(
    team: *const wv_team,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
) -> wv_status {
    // SAFETY: the caller's promise, here and in the body; a fresh vector overlaps nothing.
    unsafe {
        copy(team, bytes, |gpu| {
            room("to", to.cast::<u8>())?;
            let from = from.addr() as u64;
            gpu.check_range(from, bytes)?;
            let mut part = vec![0u8; bytes.min(CHUNK)];
            for at in (0..bytes).step_by(CHUNK) {
                let part = &mut part[..CHUNK.min(bytes - at)];
                gpu.read(from + at as u64, part)?;
                ptr::copy_nonoverlapping(part.as_ptr(), to.cast::<u8>().add(at), part.len());
            }
            Ok(())
        })
    }
}

/// A copy of `bytes` bytes from or to the device of `team`. Nothing is looked at if they are none.
///
/// # Safety
/// `team` is null or a live handle.
unsafe fn copy(
    team: *const wv_team,
    bytes: usize,
    body: impl FnOnce(&dyn Gpu) -> Result<(), Failure>,
) -> wv_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let team = unsafe { given("team", team) }?;
        match bytes {
            0 => Ok(()),
            _ => body(team.team.gpu().as_ref()),
        }
    })
}

fn place(address: u64) -> Result<usize, Failure> {
    usize::try_from(address).map_err(|_| Failure::argument("address", address, "a pointer"))
}
