//! Teams, and device memory for programs that have no other way to it.

// UNSAFETY: functions with C names, and pointers from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::collections::BTreeMap;
use std::ffi::{OsString, c_char, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use warpverbs::abi::Window;
use warpverbs::config::{Config, Reader};
use warpverbs::deadline::Looks;
use warpverbs::gpu::{DeviceMemory, Gpu, GpuError, Stream};
use warpverbs::membership::{newest_view, next_generation};
use warpverbs::team::{CloseReport, JoinOptions, RankSet, Store, Team, TeamConfig};

use crate::handle::{Handle, handle};
use crate::settings::settings_of;
use crate::sized::{place, read, sized};
use crate::status::{Failure, array, guard, put, room, text, wv_status};

/// How this process takes part in a team. Needs WV_INIT first. A field that is 0 or NULL is taken from the environment (WARPVERBS_*, or
/// the variables of torchrun, mpirun and srun), else from the defaults. A program that sets `ranks` needs no variables. The HCA
/// carries all payload. With WARPVERBS_DIRECT=1 at both, ranks of one machine load from and store to each other's memory instead.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_team_config {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Ranks of the team. 0: rank and ranks from the environment.
    pub ranks: u32,
    /// This rank, below `ranks`.
    pub rank: u32,
    /// Where the ranks meet: "file://DIRECTORY" or "etcd://HOST:PORT/PREFIX". A team of one needs none.
    pub store: *const c_char,
    /// Separates runs that use the same store: ranks meet only ranks with the same text.
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
    /// Ranks 0 to `founders` - 1 meet in wv_team_open; the others come later, by wv_team_join. 0: all ranks found the team.
    pub founders: u32,
    /// wv_team_join: the generation of this rank, which no process has had before. 0: the next one, drawn from the store.
    pub generation: u32,
    /// wv_team_join: the present members of the team: `[member_count]`. NULL: those of the newest view of the group.
    pub members: *const u32,
    /// Number of `members`.
    pub member_count: u32,
    /// Zero.
    pub reserved: u32,
    /// More settings: `field=value`, several of them separated by semicolons, as "mtu=1024; ack_timeout=15". A field is a variable
    /// of docs/configuration.md that a rank reads, without WARPVERBS_, in small letters. They outrank the environment and the fields above. NULL: none.
    pub settings: *const c_char,
}

sized!(wv_team_config {
    ranks,
    rank,
    store,
    run_id,
    device,
    gpu,
    join_timeout_ms,
    deadline_ms,
    qps_per_peer,
    log_depth,
    founders,
    generation,
    members,
    member_count,
    reserved,
    settings,
});

/// The properties of a team. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_team_info {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// The rank of this process, from 0 on.
    pub rank: u32,
    /// Ranks of the team, members or not.
    pub ranks: u32,
    /// Which process of this rank this is: 1 is the first.
    pub generation: u32,
    /// HCAs of each rank.
    pub rails: u32,
    /// QPs to each peer.
    pub qps_per_peer: u32,
    /// Windows that wv_window_create has made. Layers have windows of their own, which are not counted.
    pub windows: u32,
    /// Longest wait of a device call, ns.
    pub deadline_ns: u64,
    /// Device address of the `wv::TeamContext` (warpverbs/abi.h), from which kernels find QPs, windows and guards of all peers. It
    /// stays the same while the team lives.
    pub context: *mut c_void,
}

sized!(wv_team_info {
    rank,
    ranks,
    generation,
    rails,
    qps_per_peer,
    windows,
    deadline_ns,
    context
});

/// The result of closing a team. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_team_end {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// QPs that were connected, went to Err, and have nothing left to send.
    pub drained: u32,
    /// QPs that were not connected.
    pub idle: u32,
    /// QPs that the HCA did not move to Err, or that had not drained within the deadline.
    pub refused: u32,
    /// QPs that the HCA did not destroy, and keys of windows that it did not take back. Their memory stays until the process ends.
    pub leaked: u32,
    /// The refusals of the HCA and the resources leaked, in words, with a NUL. Cut to its length.
    pub words: [c_char; 512],
}

sized!(wv_team_end {
    drained,
    idle,
    refused,
    leaked,
    words
});

/// Longest sleep between two looks into the store.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes that a copy to the host holds at a time beside the caller's.
const CHUNK: usize = 1 << 20;

/// The ranks of a team, from the view of this one.
#[derive(Debug)]
pub struct wv_team {
    pub(crate) team: Arc<Team>,
    /// Those that the program has made.
    pub(crate) windows: Mutex<Vec<(u32, Window)>>,
    memory: Mutex<BTreeMap<usize, DeviceMemory>>,
}

handle!(wv_team);

impl wv_team {
    fn new(team: Arc<Team>) -> Self {
        Self {
            team,
            windows: Mutex::default(),
            memory: Mutex::default(),
        }
    }

    /// Ends it, unless something else holds the team.
    fn close(self) -> Result<CloseReport, Self> {
        let Self {
            team,
            windows,
            memory,
        } = self;
        team.close().map_err(|team| Self {
            team,
            windows,
            memory,
        })
    }

    /// The stream that C names so.
    ///
    /// # Safety
    /// As [`warpverbs::gpu::Gpu::wrap_stream`].
    pub(crate) unsafe fn stream(team: &Team, raw: *mut c_void) -> Result<Stream, Failure> {
        // SAFETY: the caller's promise.
        Ok(unsafe { team.gpu().wrap_stream(raw) }?)
    }
}

impl wv_team_end {
    fn of(report: &CloseReport) -> Self {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let all = report.refused.iter().chain(&report.leaked);
        let all: Vec<&str> = all.map(String::as_str).collect();
        Self {
            size: 0,
            drained: count(report.drained),
            idle: count(report.idle),
            refused: count(report.refused.len()),
            leaked: count(report.leaked.len()),
            words: fixed(&all.join("; ")),
        }
    }
}

impl wv_team_config {
    /// # Safety
    /// The texts are null or end with a NUL.
    unsafe fn read(&self) -> Result<Config, Failure> {
        if self.reserved != 0 {
            return Err(Failure::argument("reserved", self.reserved, "0"));
        }
        let given_ranks = |name: &str| match (self.ranks, name) {
            (ranks, "WARPVERBS_RANKS") if ranks != 0 => Some(ranks.to_string().into()),
            (ranks, "WARPVERBS_RANK") if ranks != 0 => Some(self.rank.to_string().into()),
            _ => std::env::var_os(name),
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
        // SAFETY: the caller's promise.
        let settings = unsafe { text("settings", self.settings) }?;
        let settings = settings_of(Reader::Rank, settings.as_deref().unwrap_or_default())?;
        // The struct speaks the language of the variables, so that both go through one check.
        let source = |name: &str| {
            if let Some((_, value)) = settings.iter().find(|(known, _)| *known == name) {
                return Some(OsString::from(value));
            }
            let text = texts.iter().find(|(known, _)| *known == name);
            if let Some((_, Some(text))) = text {
                return Some(text.into());
            }
            match numbers.iter().find(|(known, _)| *known == name) {
                Some((_, number)) if *number != 0 => Some(number.to_string().into()),
                _ => given_ranks(name),
            }
        };
        let config = Config::from_variables(source)?;
        if self.founders > config.ranks {
            let limit = format!("at most ranks, which is {}", config.ranks);
            return Err(Failure::argument("founders", self.founders, &limit));
        }
        Ok(config)
    }

    /// As one of the founders.
    fn founding(&self, team: TeamConfig) -> Result<TeamConfig, Failure> {
        if self.generation != 0 || self.member_count != 0 || !self.members.is_null() {
            let what = "generation or members";
            return Err(Failure::argument(
                what,
                "given",
                "zero, except for wv_team_join",
            ));
        }
        if self.founders == 0 {
            return Ok(team);
        }
        if team.rank >= self.founders {
            let limit = format!(
                "below founders, which is {}; others call wv_team_join",
                self.founders
            );
            return Err(Failure::argument("rank", team.rank, &limit));
        }
        let mut team = team;
        team.members = Some(RankSet::first(self.founders));
        Ok(team)
    }

    /// As one that comes later, and waits until `until` for a group to come to.
    ///
    /// # Safety
    /// The array is as said above.
    unsafe fn joining(
        &self,
        team: TeamConfig,
        store: &Arc<dyn Store>,
        until: Instant,
    ) -> Result<TeamConfig, Failure> {
        let members: RankSet = if self.members.is_null() {
            if self.member_count != 0 {
                return Err(Failure::argument(
                    "members",
                    "null",
                    "the address of an array",
                ));
            }
            let mut looks = Looks::until(until);
            let view = loop {
                let Some(left) = looks.next() else {
                    let words = "no group meets in the store, so this rank can join none";
                    return Err(Failure::new(wv_status::WV_TIMEOUT, words));
                };
                if let Some(view) = newest_view(store, team.ranks)? {
                    break view;
                }
                if !left.is_zero() {
                    store.wait_for_change(left.min(LOOK));
                }
            };
            view.members.into_keys().collect()
        } else {
            // SAFETY: the caller's promise.
            let members = unsafe { array("members", self.members, self.member_count as usize) }?;
            if let Some(rank) = members.iter().find(|rank| **rank >= team.ranks) {
                let limit = format!("ranks below {}", team.ranks);
                return Err(Failure::argument("members", rank, &limit));
            }
            members.iter().copied().collect()
        };
        let generation = match self.generation {
            0 => next_generation(store.as_ref(), team.rank)?,
            generation => generation,
        };
        Ok(team.joining(generation, members))
    }
}

/// Opens HCA and GPU and meets the other founders, at most for `join_timeout_ms`. Collective between them. `config` NULL: all from
/// the environment.
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
        let opened = if config.is_null() {
            let config = Config::from_env()?;
            let options = JoinOptions::new(TeamConfig::of(&config));
            options.with_config(&config).join()?
        } else {
            // SAFETY: the caller's promise.
            let given = unsafe { read("config", config) }?;
            // SAFETY: the caller's promise.
            let config = unsafe { given.read() }?;
            let store = Team::open_store(&config)?;
            let options = JoinOptions::new(given.founding(TeamConfig::of(&config))?);
            options.with_config(&config).with_store(store).join()?
        };
        // SAFETY: checked above.
        unsafe { put("team", team, wv_team::new(opened).hand_out()) }
    })
}

/// Opens HCA and GPU as a rank that comes later, or comes back: a new process in a free place. The members take it in while their
/// calls go on. Waits for no rank, and up to `timeout_ms` until a group exists that it can join.
///
/// Then: create the same windows and layers, in the same order, as the others; wv_group_start; wv_group_wait for
/// WV_GROUP_SERVING; and only then the first call. Each time draws a new generation of the rank from the store, unless `config`
/// names one.
///
/// # Safety
/// `config` is a struct whose texts end with a NUL and whose array has `member_count` numbers; `team` is where the handle goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_team_join(
    config: *const wv_team_config,
    timeout_ms: u32,
    team: *mut *mut wv_team,
) -> wv_status {
    guard(|| {
        let until = Instant::now() + millis(timeout_ms);
        room("team", team)?;
        // SAFETY: the caller's promise.
        let given = unsafe { read("config", config) }?;
        // SAFETY: the caller's promise.
        let config = unsafe { given.read() }?;
        let store = Team::open_store(&config)?;
        // SAFETY: the caller's promise.
        let joining = unsafe { given.joining(TeamConfig::of(&config), &store, until) }?;
        let options = JoinOptions::new(joining).with_config(&config);
        let opened = options.with_store(store).join()?;
        // SAFETY: checked above.
        unsafe { put("team", team, wv_team::new(opened).hand_out()) }
    })
}

/// Gives a team back, and the device memory that is still allocated. `team` NULL is allowed. Windows and QPs go with the last layer
/// of the team.
///
/// With `end` the QPs of the team go to Err and drain, at most for the deadline of the team, and are destroyed. `end` reports how
/// they ended. WV_BUSY: a layer of the team is left, or another thread uses it; the team lives on. Without `end`, which may be
/// NULL, QPs are destroyed as they are.
///
/// # Safety
/// No kernel uses its memory; `end` is null or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_team_close(team: *mut wv_team, end: *mut wv_team_end) -> wv_status {
    guard(|| {
        if team.is_null() || end.is_null() {
            return wv_team::take_back("team", team);
        }
        // SAFETY: the caller's promise.
        let place = unsafe { place("end", end) }?;
        let report = wv_team::end_with("team", team, wv_team::close)?;
        let report = report.ok_or_else(|| {
            let words = "a layer of the team is left, or another thread uses the team";
            Failure::new(wv_status::WV_BUSY, words)
        })?;
        place.fill(wv_team_end::of(&report));
        Ok(())
    })
}

/// Gets the properties of a team, and the address of its context for kernels.
///
/// # Safety
/// `info` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_team_get_info(
    team: *const wv_team,
    info: *mut wv_team_info,
) -> wv_status {
    guard(|| {
        let held = wv_team::behind("team", team)?;
        // SAFETY: the caller's promise.
        let place = unsafe { place("info", info) }?;
        let (team, config) = (&held.team, held.team.config());
        let windows = held
            .windows
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len();
        place.fill(wv_team_info {
            size: 0,
            rank: team.rank(),
            ranks: team.ranks(),
            generation: config.generation,
            rails: u32::try_from(team.rails()).unwrap_or(u32::MAX),
            qps_per_peer: config.qps_per_peer,
            windows: u32::try_from(windows).unwrap_or(u32::MAX),
            deadline_ns: u64::try_from(config.deadline.as_nanos()).unwrap_or(u64::MAX),
            context: pointer(team.context_addr())?,
        });
        Ok(())
    })
}

/// Checks the team: WV_PEER_FAILED if another rank has given up, WV_PANIC if a thread of this one has panicked. Never waits.
#[unsafe(no_mangle)]
pub extern "C" fn wv_team_check(team: *const wv_team) -> wv_status {
    guard(|| Ok(wv_team::behind("team", team)?.team.check_peers()?))
}

/// Gets this rank and the number of ranks. Either may be NULL.
///
/// # Safety
/// Both are null or variables.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_team_rank(
    team: *const wv_team,
    rank: *mut u32,
    ranks: *mut u32,
) -> wv_status {
    guard(|| {
        let team = wv_team::behind("team", team)?;
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

/// Waits until all ranks have called this with the same `name`, which is used once. A barrier of the hosts only: streams go on.
///
/// # Safety
/// `name` ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_team_barrier(team: *const wv_team, name: *const c_char) -> wv_status {
    guard(|| {
        let team = wv_team::behind("team", team)?;
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        let name = name.ok_or_else(|| Failure::argument("name", "null", "a text"))?;
        Ok(team.team.barrier(&name)?)
    })
}

/// Waits until everything in `stream` has ended, at most `timeout_ms`: WV_TIMEOUT if it has not. For programs without the
/// CUDA runtime.
///
/// # Safety
/// `stream` is a stream of the device of the team, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_stream_synchronize(
    team: *const wv_team,
    stream: *mut c_void,
    timeout_ms: u32,
) -> wv_status {
    guard(|| {
        let team = wv_team::behind("team", team)?;
        // SAFETY: the caller's promise.
        let stream = unsafe { wv_team::stream(&team.team, stream) }?;
        let end = stream.record()?;
        match end.wait(millis(timeout_ms)) {
            Err(GpuError::Timeout { waited, .. }) => {
                let words = format!("the stream is not idle after {waited:?}");
                Err(Failure::new(wv_status::WV_TIMEOUT, words))
            }
            ended => Ok(ended?),
        }
    })
}

/// Allocates device memory, aligned for any array of this header and filled with zeros. A GPU program may use its own
/// allocator instead.
///
/// # Safety
/// `address` is where the address goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_device_alloc(
    team: *const wv_team,
    bytes: usize,
    address: *mut *mut c_void,
) -> wv_status {
    guard(|| {
        let team = wv_team::behind("team", team)?;
        room("address", address)?;
        let memory = team.team.gpu().alloc(bytes, 256)?;
        let at = pointer(memory.addr())?;
        let mut all = team.memory.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(at.addr(), memory);
        // SAFETY: checked above. The address is the device's; only kernels and the copies below use it.
        unsafe { put("address", address, at) }
    })
}

/// Gives memory of `wv_device_alloc` back. NULL is allowed.
///
/// # Safety
/// No kernel uses the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_device_free(team: *const wv_team, address: *mut c_void) -> wv_status {
    guard(|| {
        let team = wv_team::behind("team", team)?;
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
/// `from` holds `bytes` bytes; no kernel uses the memory.
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
/// `to` has room for `bytes` bytes.
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
fn copy(
    team: *const wv_team,
    bytes: usize,
    body: impl FnOnce(&dyn Gpu) -> Result<(), Failure>,
) -> wv_status {
    guard(|| {
        let team = wv_team::behind("team", team)?;
        match bytes {
            0 => Ok(()),
            _ => body(team.team.gpu().as_ref()),
        }
    })
}

/// A device address as C holds it.
pub(crate) fn pointer(address: u64) -> Result<*mut c_void, Failure> {
    let at = usize::try_from(address);
    let at = at.map_err(|_| Failure::argument("address", address, "a pointer"))?;
    Ok(ptr::with_exposed_provenance_mut(at))
}

/// `text` as an array of C holds it: cut to its length, with a NUL.
pub(crate) fn fixed<const BYTES: usize>(text: &str) -> [c_char; BYTES] {
    let mut array = [0; BYTES];
    // The last byte stays a NUL.
    for (to, byte) in array[..BYTES - 1].iter_mut().zip(text.bytes()) {
        *to = c_char::from_ne_bytes([byte]);
    }
    array
}

/// A time of C.
pub(crate) fn millis(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}
