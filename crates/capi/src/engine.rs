//! Host engines: a program on the CPU moves memory. Regions, descriptors, and connections between engines.

// UNSAFETY: functions with C names, and pointers and memory from C.
#![expect(unsafe_code, reason = "the C ABI")]

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use warpverbs::config::{EngineConfig, Reader};
use warpverbs::engine::{
    DESCRIPTOR_BYTES, Descriptor, Engine, EngineAddress, EngineError, HostError, HostMemory,
    Mappings, Peer, PeerPath, ProviderError, RegionId,
};

use crate::handle::{Handle, handle};
use crate::settings::settings_of;
use crate::sized::{place, read, sized};
use crate::status::{Failure, array, guard, put, room, room_of, text, wv_status};
use crate::team::{fixed, millis};

/// Bytes of a descriptor. The size is part of the ABI.
pub const WV_DESCRIPTOR_BYTES: usize = 72;

const _: () = assert!(WV_DESCRIPTOR_BYTES == DESCRIPTOR_BYTES);

/// How a host engine works. Needs WV_INIT first, then `name`. What is 0 or NULL is taken from the environment (WARPVERBS_ENGINE_*,
/// WARPVERBS_PROVIDER, WARPVERBS_DEVICE, WARPVERBS_GPU and the variables of packets), else from the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_engine_config {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// By which peers know it, 1 to 255 bytes.
    pub name: *const c_char,
    /// RDMA device, several with commas between them, or "auto", which takes as many as the setting `rails` says.
    pub device: *const c_char,
    /// More settings: `field=value`, several of them separated by semicolons, as "qps=8; mtu=1024". A field is a variable of
    /// docs/configuration.md that an engine reads, without WARPVERBS_ENGINE_ or WARPVERBS_, in small letters. They outrank the
    /// environment, `device` and `provider`. NULL: none.
    pub settings: *const c_char,
    /// Longest wait for running transfers when a connection or the engine is closed, ms. 0: 5 s.
    pub drain_ms: u32,
    /// 1: wv_engine_listen also takes addresses that are not loopback without a key. The settings `key_file` and `allow` restrict
    /// which engines may connect.
    pub insecure: u32,
    /// What drives the NICs: "mlx5", "verbs", "ofi", "ofi:NAME" with the name of a provider of libfabric, or "auto", the first of
    /// these that can drive them. A name with a semicolon, as "ofi:tcp;ofi_rxm", cannot stand in `settings`.
    pub provider: *const c_char,
}

sized!(wv_engine_config {
    name,
    device,
    settings,
    drain_ms,
    insecure,
    provider
});

/// The properties of an engine. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_engine_info {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Number of this life of the engine, which its descriptors carry.
    pub incarnation: u64,
    /// Transfers that were submitted and not released.
    pub in_use: u64,
    /// Rails: ports of RDMA devices, see wv_engine_get_rail.
    pub rails: u64,
}

sized!(wv_engine_info {
    incarnation,
    in_use,
    rails
});

/// The result of closing an engine. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_engine_end {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// Transfers that still ran when the time for them was over, and so have failed.
    pub cut_off: u64,
    /// Transfers that were done since the engine was made.
    pub done: u64,
    /// Transfers that failed since the engine was made.
    pub failed: u64,
    /// Transfers that were cancelled since the engine was made.
    pub cancelled: u64,
    /// Transfers that ran into their deadline since the engine was made.
    pub timed_out: u64,
}

sized!(wv_engine_end {
    cut_off,
    done,
    failed,
    cancelled,
    timed_out
});

/// A region of a peer, as its descriptor says. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_remote_region {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// First byte, as the peer addresses it: what operations name.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
}

sized!(wv_remote_region { address, bytes });

/// Memory of the program, in a list. It stays so, and has no size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_memory_range {
    /// First byte.
    pub address: *mut c_void,
    /// Number of bytes.
    pub bytes: usize,
}

/// Path of a peer: transfers to it go by the NIC.
pub const WV_PATH_NIC: u32 = 0;
/// Path of a peer: by copies within this process.
pub const WV_PATH_PROCESS: u32 = 1;
/// Path of a peer: by copies between two processes of this machine and user.
pub const WV_PATH_MACHINE: u32 = 2;

fn path_code(path: PeerPath) -> u64 {
    match path {
        PeerPath::Process => WV_PATH_PROCESS.into(),
        PeerPath::Machine => WV_PATH_MACHINE.into(),
        _ => WV_PATH_NIC.into(),
    }
}

/// The state of a connection. Needs WV_INIT first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct wv_engine_peer_info {
    /// sizeof: WV_INIT.
    pub size: usize,
    /// QPs, the smaller number of both ends.
    pub qps: u32,
    /// 1: it takes transfers.
    pub open: u32,
    /// Of the peer, with a NUL.
    pub name: [c_char; 256],
    /// WV_PATH_...: how transfers go to it now.
    pub path: u64,
}

sized!(wv_engine_peer_info {
    qps,
    open,
    name,
    path
});

/// A host engine.
#[derive(Debug)]
pub struct wv_engine {
    pub(crate) engine: Engine,
}

/// A connection of a host engine to another.
#[derive(Debug)]
pub struct wv_engine_peer {
    pub(crate) peer: Peer,
}

handle!(wv_engine);
handle!(wv_engine_peer);

impl wv_engine_config {
    /// # Safety
    /// The texts are null or end with a NUL.
    unsafe fn read(&self) -> Result<EngineConfig, Failure> {
        // SAFETY: the caller's promise, for each text.
        let (name, settings, fields) = unsafe {
            (
                text("name", self.name)?,
                text("settings", self.settings)?,
                [
                    ("WARPVERBS_DEVICE", text("device", self.device)?),
                    ("WARPVERBS_PROVIDER", text("provider", self.provider)?),
                ],
            )
        };
        if self.insecure > 1 {
            return Err(Failure::argument("insecure", self.insecure, "0 or 1"));
        }
        let name = name.ok_or_else(|| Failure::argument("name", "null", "a text"))?;
        let settings = settings_of(Reader::Engine, settings.as_deref().unwrap_or_default())?;
        // The struct speaks the language of the variables, so that both go through one check.
        let config = EngineConfig::from_variables(&name, |variable| {
            let set = settings.iter().find(|(known, _)| *known == variable);
            let field = fields.iter().find(|(known, _)| *known == variable);
            match (set, field) {
                (Some((_, value)), _) | (None, Some((_, Some(value)))) => Some(value.into()),
                _ => std::env::var_os(variable),
            }
        })?;
        let config = config.with_insecure(self.insecure == 1);
        Ok(match self.drain_ms {
            0 => config,
            drain => config.with_drain(millis(drain)),
        })
    }
}

/// Opens the HCA and starts an engine on it. Waits for no other process.
///
/// # Safety
/// `config` is a struct whose texts end with a NUL; `engine` is where the handle goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_open(
    config: *const wv_engine_config,
    engine: *mut *mut wv_engine,
) -> wv_status {
    guard(|| {
        room("engine", engine)?;
        // SAFETY: the caller's promise.
        let given = unsafe { read("config", config) }?;
        // SAFETY: the caller's promise.
        let config = unsafe { given.read() }?;
        let opened = Engine::start(config)?;
        // SAFETY: checked above.
        unsafe { put("engine", engine, wv_engine { engine: opened }.hand_out()) }
    })
}

/// Takes no new transfer, waits for running ones (`drain_ms`), ends all connections, takes all regions away, and gives the engine
/// back. After that nothing uses memory that was registered. `end`, which may be NULL, reports what was left. Waits of other
/// threads for its transfers end. Handles of its peers are given back by wv_engine_peer_close, before or after. NULL is allowed.
///
/// # Safety
/// `end` is null or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_close(
    engine: *mut wv_engine,
    end: *mut wv_engine_end,
) -> wv_status {
    guard(|| {
        if engine.is_null() {
            return Ok(());
        }
        let place = if end.is_null() {
            None
        } else {
            // SAFETY: the caller's promise.
            Some(unsafe { place("end", end) }?)
        };
        let held = wv_engine::behind("engine", engine)?;
        let report = held.engine.close();
        wv_engine::take_back("engine", engine)?;
        if let Some(place) = place {
            place.fill(wv_engine_end {
                size: 0,
                cut_off: report.cut_off.into(),
                done: report.done,
                failed: report.failed,
                cancelled: report.cancelled,
                timed_out: report.timed_out,
            });
        }
        Ok(())
    })
}

/// Gets the properties of an engine. Never waits.
///
/// # Safety
/// `info` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_get_info(
    engine: *const wv_engine,
    info: *mut wv_engine_info,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        // SAFETY: the caller's promise.
        let place = unsafe { place("info", info) }?;
        place.fill(wv_engine_info {
            size: 0,
            incarnation: engine.incarnation(),
            in_use: engine.in_use() as u64,
            rails: engine.devices().len() as u64,
        });
        Ok(())
    })
}

/// Registers `bytes` bytes of host memory of the program, for transfers of this engine and of those peers that get a descriptor.
/// Memory inside a region that is registered already shares its registration.
///
/// A mapping of a file is the caller's risk: whoever truncates the file takes its pages away. Copies by the processor then fail with a
/// cause. A hardware HCA goes on with pages that no file has. A driver that copies for a GPU, and the program's own loads and stores,
/// end the process with SIGBUS. A memfd with F_SEAL_SHRINK, or wv_shared_memory_create, has none of this.
///
/// # Safety
/// The memory stays, readable and writable, until wv_engine_deregister has taken this region and all regions inside it away, or
/// wv_engine_close has returned. `region` gets the number of the region, which says its engine too. No other region of this process
/// ever has the same, and none has 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_register(
    engine: *const wv_engine,
    address: *mut c_void,
    bytes: usize,
    region: *mut u64,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        room("region", region)?;
        // SAFETY: the caller's promise: a region that is gone has no user, and neither has any of an engine that is closed.
        let memory = unsafe { HostMemory::over(address.cast(), bytes as u64, None) };
        let made = engine.register(&Arc::new(memory?))?;
        // SAFETY: checked above.
        unsafe { put("region", region, made.number()) }
    })
}

/// Registers `count` ranges, as wv_engine_register does, or none of them: the error says which one cannot be, from 0 on, and why.
/// Ranges inside a region, or inside another of the list, share its registration. `regions` gets the number of each.
///
/// # Safety
/// `ranges` holds `count` of them, and the memory of each stays as for wv_engine_register; `regions` has room for `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_register_list(
    engine: *const wv_engine,
    ranges: *const wv_memory_range,
    count: usize,
    regions: *mut u64,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        // SAFETY: the caller's promise.
        let ranges = unsafe { array("ranges", ranges, count) }?;
        if count > 0 {
            room("regions", regions)?;
        }
        let mappings = Mappings::now();
        let memory = |(element, range): (usize, &wv_memory_range)| {
            let (first, bytes) = (range.address.cast(), range.bytes as u64);
            // SAFETY: as in wv_engine_register. The caller has mapped the ranges before it has called this.
            let memory = unsafe { HostMemory::over_mapped(&mappings, first, bytes, None) };
            let listed = |error: ProviderError| HostError::Listed {
                element,
                error: Box::new(error.into()),
            };
            memory.map(Arc::new).map_err(listed)
        };
        let memories = ranges.iter().enumerate().map(memory);
        let made = engine.register_all(&memories.collect::<Result<Vec<_>, _>>()?)?;
        for (nth, region) in made.into_iter().enumerate() {
            // SAFETY: the caller's promise: room for as many as there are ranges.
            unsafe { regions.add(nth).write(region.number()) };
        }
        Ok(())
    })
}

/// Takes a region away, from peers too. WV_BUSY while transfers of this engine or grants use it. WV_BAD_HANDLE, from each function
/// that takes a region: it is of another engine, was taken away before, or was never registered. Nothing was done then.
#[unsafe(no_mangle)]
pub extern "C" fn wv_engine_deregister(engine: *const wv_engine, region: u64) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        Ok(engine.deregister(RegionId::of_number(region))?)
    })
}

/// Gets the description of a region that a peer needs, as WV_DESCRIPTOR_BYTES bytes. The program carries it to the peer.
///
/// # Safety
/// `descriptor` has room for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_descriptor(
    engine: *const wv_engine,
    region: u64,
    descriptor: *mut u8,
    bytes: usize,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        room_of(
            ("descriptor", descriptor),
            ("bytes", bytes),
            WV_DESCRIPTOR_BYTES,
        )?;
        let made = engine.descriptor(RegionId::of_number(region))?;
        // SAFETY: the caller's promise, as long as checked.
        unsafe { put("descriptor", descriptor.cast(), made.to_bytes()) }
    })
}

/// Lets other engines connect at `address`, as "127.0.0.1:7000" or "unix:PATH"; port 0 takes any free port. All users of the machine
/// reach a port of loopback, and only this user a Unix socket, which goes with the engine. NULL: the address of its configuration
/// (WARPVERBS_ENGINE_LISTEN). `at`, which may be NULL, gets the address with its port, or with its path from the root on, with a NUL.
/// The path of a Unix socket has at most 107 bytes. `bytes` is at least 64 for a port, and 128 for a Unix socket.
///
/// # Safety
/// `address` is null or ends with a NUL; `at` is null or has room for `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_listen(
    engine: *const wv_engine,
    address: *const c_char,
    at: *mut c_char,
    bytes: usize,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        // SAFETY: the caller's promise.
        let wanted = match unsafe { text("address", address) }? {
            Some(address) => {
                let limit = "an IP address and a port, or unix:PATH";
                let parsed = address.parse::<EngineAddress>();
                Some(parsed.map_err(|_| Failure::argument("address", &address, limit))?)
            }
            None => None,
        };
        let wanted = wanted.unwrap_or_else(|| engine.configured_address().clone());
        let longest = match wanted {
            EngineAddress::Tcp(_) => LONGEST_TCP,
            EngineAddress::Unix(_) => LONGEST_UNIX,
        };
        if !at.is_null() && bytes < longest {
            let limit = format!("at least {longest}");
            return Err(Failure::argument("bytes", bytes, &limit));
        }
        let found = engine.listen(wanted)?.to_string();
        if !at.is_null() {
            // SAFETY: the caller's promise, and long enough for any address.
            unsafe { ptr::copy_nonoverlapping(found.as_ptr().cast(), at, found.len()) };
            // SAFETY: as above.
            unsafe { at.add(found.len()).write(0) };
        }
        Ok(())
    })
}

/// Longest text of an address and a port, with a NUL: IPv6 with a scope.
const LONGEST_TCP: usize = 64;
/// Of a Unix socket: "unix:", a path of 107 bytes, and a NUL are 113.
const LONGEST_UNIX: usize = 128;

/// Connects to the engine that listens at `at`, as "host:port" or "unix:PATH". Each step of it waits at most WARPVERBS_ENGINE_CONNECT_TIMEOUT_MS.
///
/// # Safety
/// `at` ends with a NUL; `peer` is where the handle goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_connect(
    engine: *const wv_engine,
    at: *const c_char,
    peer: *mut *mut wv_engine_peer,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        room("peer", peer)?;
        // SAFETY: the caller's promise.
        let at = unsafe { text("at", at) }?;
        let at = at.ok_or_else(|| Failure::argument("at", "null", "a text"))?;
        let connected = engine.connect(&at)?;
        // SAFETY: checked above.
        unsafe { put("peer", peer, wv_engine_peer { peer: connected }.hand_out()) }
    })
}

/// Takes the next peer that has connected to this engine. WV_TIMEOUT: none has, for `timeout_ms`.
///
/// # Safety
/// `peer` is where the handle goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_accept(
    engine: *const wv_engine,
    timeout_ms: u32,
    peer: *mut *mut wv_engine_peer,
) -> wv_status {
    guard(|| {
        let engine = &wv_engine::behind("engine", engine)?.engine;
        room("peer", peer)?;
        let accepted = engine.accept(millis(timeout_ms)).ok_or_else(|| {
            if engine.is_closed() {
                return EngineError::Closing.into();
            }
            let words = format!("no engine has connected for {timeout_ms} ms");
            Failure::new(wv_status::WV_TIMEOUT, words)
        })?;
        // SAFETY: checked above.
        unsafe { put("peer", peer, wv_engine_peer { peer: accepted }.hand_out()) }
    })
}

/// Gets the state of a connection. Never waits.
///
/// # Safety
/// `info` is a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_peer_get_info(
    peer: *const wv_engine_peer,
    info: *mut wv_engine_peer_info,
) -> wv_status {
    guard(|| {
        let peer = &wv_engine_peer::behind("peer", peer)?.peer;
        // SAFETY: the caller's promise.
        let place = unsafe { place("info", info) }?;
        place.fill(wv_engine_peer_info {
            size: 0,
            qps: u32::try_from(peer.qps()).unwrap_or(u32::MAX),
            open: peer.is_open().into(),
            name: fixed(peer.name()),
            path: path_code(peer.path()),
        });
        Ok(())
    })
}

/// Imports a region of the peer, from the bytes of its descriptor, so that transfers can read and write it. `region`, which may be
/// NULL, gets its address and length. Importing the same region again does no harm.
///
/// # Safety
/// `descriptor` holds `bytes` bytes; `region` is null or a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_import(
    peer: *const wv_engine_peer,
    descriptor: *const u8,
    bytes: usize,
    region: *mut wv_remote_region,
) -> wv_status {
    guard(|| {
        let peer = &wv_engine_peer::behind("peer", peer)?.peer;
        let place = if region.is_null() {
            None
        } else {
            // SAFETY: the caller's promise.
            Some(unsafe { place("region", region) }?)
        };
        // SAFETY: the caller's promise.
        let descriptor =
            Descriptor::from_bytes(unsafe { array("descriptor", descriptor, bytes) }?)?;
        peer.import(&descriptor)?;
        if let Some(place) = place {
            place.fill(wv_remote_region {
                size: 0,
                address: descriptor.address,
                bytes: descriptor.bytes,
            });
        }
        Ok(())
    })
}

/// Waits for the transfers of a connection (`drain_ms`), and ends it. `cut_off`, which may be NULL, gets the number of transfers
/// that still ran. The handle stays.
///
/// # Safety
/// `cut_off` is null or a variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wv_engine_disconnect(
    peer: *const wv_engine_peer,
    cut_off: *mut u32,
) -> wv_status {
    guard(|| {
        let peer = &wv_engine_peer::behind("peer", peer)?.peer;
        let left = peer.close();
        if cut_off.is_null() {
            Ok(())
        } else {
            // SAFETY: the caller's promise.
            unsafe { put("cut_off", cut_off, left) }
        }
    })
}

/// Gives the handle of a peer back. The connection goes on, until either engine ends it. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn wv_engine_peer_close(peer: *mut wv_engine_peer) -> wv_status {
    guard(|| wv_engine_peer::take_back("peer", peer))
}
