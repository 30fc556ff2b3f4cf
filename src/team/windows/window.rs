//! Symmetric windows: each rank has the same number of bytes, which every rank may write.
//!
//! A window is registered once for each peer and rail. So each peer has its own keys, which can be taken from it alone.

// UNSAFETY: registers device memory, which this module owns, with the HCA.
#![expect(unsafe_code, reason = "registration of memory that the window owns")]

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::shown::{ALIGN, Shown, WindowOffer, WindowShape, check_handle};
use crate::abi::{PeerEntry, Window};
use crate::fabric::{
    FabricError, Identity, LiveTeam, Offered, Rail, Reach, RegisteredWindow, memory_on,
};
use crate::gpu::{DeviceMemory, Gpu, MemoryHandle};
use crate::team::config::TeamConfig;
use crate::team::error::TeamError;
use crate::team::meeting::exchange::Exchange;
use crate::verbs::{Access, Export, Mr, Pd, Rung, VerbsError};

/// Most bytes of a window.
const MAX_WINDOW_BYTES: u64 = 1 << 40;

/// The purpose of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::team) enum Purpose {
    /// Anything, also signals: writes become visible in the order in which they come.
    Any,
    /// Data that kernels read after a signal in another window: its writes may overtake each other on PCIe.
    Data,
    /// Memory that this rank sends from: no peer gets a key.
    Send,
}

impl Purpose {
    fn access(self) -> Access {
        match self {
            Self::Any => Access::ALL,
            Self::Data => Access::ALL | Access::RELAXED_ORDERING,
            Self::Send => Access::LOCAL_WRITE,
        }
    }
}

/// The memory that a window lies in.
#[derive(Clone, Debug)]
pub(in crate::team) enum Place {
    /// Memory that is made for the window.
    New,
    /// Memory that the caller has given.
    Given(Arc<DeviceMemory>),
}

impl Place {
    /// Alignment of memory that is given: kernels load and store vectors, and copy whole cache lines.
    const ALIGN: u64 = 128;

    /// Refuses memory whose address kernels of the library cannot use.
    fn check(&self) -> Result<(), TeamError> {
        match self {
            Self::Given(memory) if !memory.addr().is_multiple_of(Self::ALIGN) => {
                let addr = format!("{:#x}", memory.addr());
                let limit = format!("at a multiple of {}", Self::ALIGN);
                Err(TeamError::limit("address of a window", addr, limit))
            }
            Self::New | Self::Given(_) => Ok(()),
        }
    }
}

/// The devices and settings that a window is made with.
#[derive(Clone, Copy, Debug)]
pub(in crate::team) struct Site<'a> {
    pub(in crate::team) gpu: &'a dyn Gpu,
    pub(in crate::team) team: &'a LiveTeam,
    pub(in crate::team) rails: &'a [Rail],
    pub(in crate::team) config: &'a TeamConfig,
}

/// The place, length and purpose of a window that is to be made.
#[derive(Debug)]
pub(in crate::team) struct Plan {
    place: Place,
    bytes: usize,
    purpose: Purpose,
}

impl Plan {
    /// Returns the plan. Refuses a length, or a place, that no window may have.
    pub(in crate::team) fn new(
        place: Place,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<Self, TeamError> {
        let bytes = length(bytes)?;
        place.check()?;
        Ok(Self {
            place,
            bytes,
            purpose,
        })
    }
}

/// Returns the length of a window as `usize`. Refuses lengths outside the limits.
fn length(bytes: u64) -> Result<usize, TeamError> {
    if !(1..=MAX_WINDOW_BYTES).contains(&bytes) {
        let limit = format!("1 to {MAX_WINDOW_BYTES} bytes");
        return Err(TeamError::limit("window", bytes, limit));
    }
    usize::try_from(bytes).map_err(|_| TeamError::limit("window", bytes, usize::MAX))
}

/// One window of this rank.
#[derive(Debug)]
pub(in crate::team) struct OwnedWindow {
    keys: Keys,
    _registered: RegisteredWindow,
    /// Stands after the keys and the registration among the windows of this process, so that a drop frees it after them.
    memory: Arc<DeviceMemory>,
    offered: Offered,
    window: Window,
    purpose: Purpose,
    /// The mappings of peers' memory.
    shown: Shown,
}

/// The registrations of a window.
#[derive(Debug)]
struct Keys {
    /// The keys of this rank itself, by rail.
    own: Vec<Mr>,
    /// `[peer][rail]`: the keys of peers; empty for this rank, and for a window that no peer writes.
    peers: Vec<Vec<PeerKey>>,
}

/// The key that one peer has of a window on one rail.
#[derive(Debug)]
struct PeerKey {
    mr: Mr,
    /// The key before this one, until it has been taken back.
    old: Option<Mr>,
    /// The life of the QPs to the peer that the key was made for.
    life: u32,
}

/// The record of a founder about a window.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::team) struct WindowRecord {
    bytes: u64,
    base: u64,
    /// `[rail][peer]`: the keys; 0 where there is no key.
    rkeys: Vec<Vec<u32>>,
    /// The handle by which other processes of the machine open the window; none if they cannot.
    handle: Option<MemoryHandle>,
}

impl WindowRecord {
    /// Compares the record of `rank` about window `id` with `own`, the record of this rank.
    pub(in crate::team) fn check(
        &self,
        own: &Self,
        id: u32,
        ranks: u32,
        rank: u32,
        exchange: &Exchange,
    ) -> Result<(), TeamError> {
        let topic = format!("window-{id}");
        let (ranks, rails, bytes) = (ranks as usize, own.rkeys.len(), own.bytes);
        let shape: Vec<usize> = self.rkeys.iter().map(Vec::len).collect();
        if shape != vec![ranks; rails] {
            let reason = format!("{shape:?} keys by rail; the team has {rails} rails of {ranks}");
            return Err(exchange.record(rank, &topic, &reason));
        }
        if self.bytes == bytes {
            let checked = check_handle(self.handle.as_ref(), bytes);
            return checked.map_err(|reason| exchange.record(rank, &topic, &reason));
        }
        let what = format!("bytes of window {id}");
        Err(exchange.mismatch(&what, bytes.to_string(), rank, self.bytes.to_string()))
    }
}

impl OwnedWindow {
    /// Makes window `id`, which no other rank knows yet, in memory that the HCAs reach as `rung` says.
    pub(in crate::team) fn new(
        site: &Site<'_>,
        plan: &Plan,
        id: u32,
        rung: Rung,
    ) -> Result<Self, FabricError> {
        let Site {
            gpu, team, config, ..
        } = *site;
        let (place, bytes, purpose) = (&plan.place, plan.bytes, plan.purpose);
        let is_new = matches!(place, Place::New);
        let shared = config.modes.direct && purpose != Purpose::Send && is_new;
        let memory = match place {
            Place::New => Arc::new(memory_on(gpu, rung, bytes, ALIGN, shared)?),
            Place::Given(memory) => Arc::clone(memory),
        };
        let bytes = bytes as u64;
        let offered = Offered::on(&memory, rung)?;
        let keys = Keys::new(site, plan, &memory, &offered)?;
        Ok(Self {
            window: Window {
                id,
                lkey_be: keys.own[0].lkey().to_be(),
                base: memory.addr(),
                bytes,
            },
            keys,
            _registered: team.register(id, memory.addr(), bytes),
            shown: Shown::new(&memory, shared, config.ranks),
            memory,
            offered,
            purpose,
        })
    }

    /// Returns two tables for kernels. The first is `entries[rail][peer]`: address and key, from what the other founders have
    /// published. For a rank that joins later the entries hold no peer's window. The second holds for each peer the address for
    /// load and store, 0 if kernels cannot; `peers` says how each peer is reached.
    pub(in crate::team) fn entries(
        &mut self,
        gpu: &dyn Gpu,
        config: &TeamConfig,
        records: Vec<(u32, WindowRecord)>,
        peers: &[(Reach, Option<Identity>)],
    ) -> (Vec<PeerEntry>, Vec<u64>) {
        let (rank, ranks, rails) = (config.rank, config.ranks as usize, self.keys.own.len());
        let mut entries = vec![PeerEntry::default(); rails * ranks];
        let mut direct = vec![0; ranks];
        let mut set = |rail: usize, peer: u32, base: u64, rkey: u32| {
            entries[rail * ranks + peer as usize] = PeerEntry {
                base,
                rkey_be: rkey.to_be(),
                rail_life: 0,
            };
        };
        for (peer, record) in records {
            if self.purpose == Purpose::Send {
                continue;
            }
            for (rail, keys) in record.rkeys.iter().enumerate() {
                set(rail, peer, record.base, keys[rank as usize]);
            }
            let (reach, identity) = &peers[peer as usize];
            let (id, bytes) = (self.window.id, self.window.bytes);
            let here = identity.as_ref().and_then(|of| of.window(id, bytes));
            let handle = record.handle.as_ref();
            direct[peer as usize] = self.shown.open(gpu, peer, *reach, here, handle);
        }
        for (rail, mr) in self.keys.own.iter().enumerate() {
            set(rail, rank, self.window.base, mr.rkey());
        }
        direct[rank as usize] = if config.modes.direct {
            self.window.base
        } else {
            0
        };
        (entries, direct)
    }

    /// Returns the record of this founder about the window.
    pub(in crate::team) fn record(&self) -> WindowRecord {
        let rails = self.keys.own.len();
        let key = |rail: usize, keys: &Vec<PeerKey>| keys.get(rail).map_or(0, |key| key.mr.rkey());
        let of_rail = |rail| self.keys.peers.iter().map(|keys| key(rail, keys)).collect();
        WindowRecord {
            bytes: self.window.bytes,
            base: self.window.base,
            rkeys: (0..rails).map(of_rail).collect(),
            handle: self.shown.handle().cloned(),
        }
    }

    /// Returns the window as kernels and callers name it.
    pub(in crate::team) fn window(&self) -> Window {
        self.window
    }

    /// Returns how the HCA reaches the window, by rail.
    pub(in crate::team) fn exports(&self) -> Vec<Export> {
        self.keys.own.iter().map(|mr| mr.export().clone()).collect()
    }

    /// Returns the local keys by rail, big-endian.
    pub(in crate::team) fn lkeys_be(&self) -> Vec<u32> {
        self.keys.own.iter().map(|mr| mr.lkey().to_be()).collect()
    }

    /// Returns the properties of the window that are the same at all ranks.
    pub(in crate::team) fn shape(&self) -> WindowShape {
        WindowShape {
            bytes: self.window.bytes,
            purpose: format!("{:?}", self.purpose),
        }
    }

    /// Returns what this rank offers `peer` of the window.
    pub(in crate::team) fn offer(&self, peer: u32) -> WindowOffer {
        let keys = self.keys.peers.get(peer as usize).into_iter().flatten();
        WindowOffer {
            shape: self.shape(),
            base: self.window.base,
            rkeys: keys.map(|key| key.mr.rkey()).collect(),
            handle: self.shown.handle().cloned(),
        }
    }

    /// Returns how many keys `peer` has of the window.
    pub(in crate::team) fn keys_of(&self, peer: u32) -> usize {
        self.keys.peers.get(peer as usize).map_or(0, Vec::len)
    }

    /// Gives `peer` new keys for `life` and takes the old ones back. The keys of other peers stay untouched. After a failure a call
    /// for the same life goes on from where the last one ended.
    pub(in crate::team) fn renew(
        &mut self,
        rails: &[Rail],
        peer: u32,
        life: u32,
    ) -> Result<(), VerbsError> {
        let keys = self.keys.peers.get_mut(peer as usize);
        for (key, rail) in keys.into_iter().flatten().zip(rails) {
            key.take_back()?;
            if key.life != life {
                // The new key is made first, so that it cannot get the number of the old one.
                let new = register(rail.pd(), &self.memory, &self.offered, self.purpose)?;
                key.old = Some(std::mem::replace(&mut key.mr, new));
                key.life = life;
            }
            key.take_back()?;
        }
        Ok(())
    }

    /// Opens the window that `peer` offers as `told`. Returns the address at which kernels load and store from now on; 0 if they
    /// cannot.
    pub(super) fn open(
        &mut self,
        gpu: &dyn Gpu,
        peer: u32,
        reach: Reach,
        identity: &Identity,
        told: &WindowOffer,
    ) -> u64 {
        if told.rkeys.is_empty() {
            return 0;
        }
        let here = identity.window(self.window.id, self.window.bytes);
        self.shown
            .open(gpu, peer, reach, here, told.handle.as_ref())
    }

    /// Closes the window of `peer`: kernels do not reach it by load and store any more.
    pub(super) fn close(&mut self, peer: u32) {
        self.shown.close(peer);
    }

    /// Takes all keys back, then frees the memory. Returns in words the keys that the HCA does not take back: their memory stays,
    /// since peers may still write to it.
    pub(in crate::team) fn end(self) -> Vec<String> {
        let Keys { own, peers } = self.keys;
        let of_peers = peers.into_iter().flatten();
        let keys = of_peers.flat_map(|key| std::iter::once(key.mr).chain(key.old));
        let mut kept = Vec::new();
        for mut mr in own.into_iter().chain(keys) {
            if let Err(error) = mr.deregister() {
                let (id, rkey) = (self.window.id, mr.rkey());
                kept.push(format!("key {rkey:#x} of window {id}: {error}"));
                std::mem::forget((mr, Arc::clone(&self.memory)));
            }
        }
        kept
    }
}

impl Keys {
    /// Registers the window once for each rail, and once for each peer and rail unless no peer writes the window.
    fn new(
        site: &Site<'_>,
        plan: &Plan,
        memory: &DeviceMemory,
        offered: &Offered,
    ) -> Result<Self, FabricError> {
        let key = |rail: &Rail| {
            register(rail.pd(), memory, offered, plan.purpose).map_err(|error| {
                if error.is_refusal() {
                    FabricError::of_step(error)
                } else {
                    FabricError::Verbs(error)
                }
            })
        };
        let of_peer = |rail| {
            key(rail).map(|mr| PeerKey {
                mr,
                old: None,
                life: 0,
            })
        };
        let own: Vec<Mr> = site.rails.iter().map(key).collect::<Result<_, _>>()?;
        let peers = (0..site.config.ranks).map(|peer| {
            if peer == site.config.rank || plan.purpose == Purpose::Send {
                Ok(Vec::new())
            } else {
                site.rails.iter().map(of_peer).collect()
            }
        });
        Ok(Self {
            peers: peers.collect::<Result<_, FabricError>>()?,
            own,
        })
    }
}

impl PeerKey {
    /// Takes the former key, if any, back from the peer that has it.
    fn take_back(&mut self) -> Result<(), VerbsError> {
        if let Some(old) = &mut self.old {
            old.deregister()?;
            self.old = None;
        }
        Ok(())
    }
}

fn register(
    pd: &Arc<Pd>,
    memory: &DeviceMemory,
    offered: &Offered,
    purpose: Purpose,
) -> Result<Mr, VerbsError> {
    let (addr, bytes) = (memory.addr(), memory.bytes() as u64);
    let (access, rung, dmabuf) = (purpose.access(), offered.rung(), offered.dmabuf());
    // SAFETY: what is offered is this memory. It is device memory, to which no Rust reference exists. It is dropped after the
    // registrations: by the order of the fields, or in `OwnedWindow::new`, which drops the registrations first.
    unsafe { Mr::on(pd, addr, bytes, access, rung, dmabuf.as_ref()) }
}
