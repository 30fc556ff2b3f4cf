//! The team as kernels read it: one block of device memory, whose address never moves, and one word per peer in host memory.

use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytemuck::Zeroable;

use super::config::TeamConfig;
use super::error::TeamError;
use super::rails::Carriers;
use crate::abi::{
    DeviceConfig, DevicePtr, PEER_DIRECT, PeerEntry, PeerGuard, QpContext, RAIL_SHIFT, TeamContext,
};
use crate::gpu::{DeviceMemory, Gpu, HostMapped};

const ALIGN: u64 = 128;
/// Mask of the bits of a life that `PeerEntry::rail_life` holds.
const LIFE_MASK: u32 = (1 << RAIL_SHIFT) - 1;

/// The tables of a team: context, settings, QP pointers, guards, keys and peer table in device memory, and the words in host memory
/// that close a peer.
#[derive(Debug)]
pub(in crate::team) struct Tables {
    gpu: Arc<dyn Gpu>,
    memory: DeviceMemory,
    closed: HostMapped,
    config: u64,
    qps: u64,
    guards: u64,
    lkeys: u64,
    peers: u64,
    direct: u64,
    ranks: u32,
    rails: u32,
    shadow: Mutex<Shadow>,
}

/// The values by which kernels post to a peer.
#[derive(Clone, Debug)]
pub(in crate::team) struct Posting {
    /// The number of the life of the QPs.
    pub(in crate::team) life: u32,
    pub(in crate::team) carriers: Carriers,
    /// Device addresses of the contexts of the QPs.
    pub(in crate::team) contexts: Vec<u64>,
}

/// The contents of the peer table, for rows that are written again.
#[derive(Debug)]
struct Shadow {
    /// The life of the QPs to each peer.
    lives: Vec<u32>,
    /// The rails that carry what is posted to each peer.
    carriers: Vec<Carriers>,
    /// `[window][rail][peer]`: the entries of the windows that exist, each with the key of its own rail.
    entries: Vec<PeerEntry>,
    /// `[window][peer]`: the address at which kernels of this rank load from and store to the window of the peer; 0 if they cannot.
    direct: Vec<u64>,
}

impl Tables {
    /// Makes the tables in new memory. `contexts` are the QP pointers, `[peer][qps_per_peer]`.
    pub(in crate::team) fn new(
        gpu: &Arc<dyn Gpu>,
        team: &TeamConfig,
        rails: u32,
        contexts: &[u64],
    ) -> Result<Self, TeamError> {
        let after = |at: u64, bytes: usize| (at + bytes as u64).next_multiple_of(ALIGN);
        let ranks = team.ranks as usize;
        let rows = (team.windows * rails) as usize;
        let config = after(0, size_of::<TeamContext>());
        let qps = after(config, size_of::<DeviceConfig>());
        let guards = after(qps, size_of_val(contexts));
        let lkeys = after(guards, ranks * size_of::<PeerGuard>());
        let peers = after(lkeys, rows * size_of::<u32>());
        let direct = after(peers, rows * ranks * size_of::<PeerEntry>());
        let bytes = direct + (team.windows as usize * ranks * size_of::<u64>()) as u64;
        let bytes =
            usize::try_from(bytes).expect("at most 1,024 windows of 1,024 ranks of 16 rails");
        let memory = gpu.alloc(bytes, 128)?;
        let base = memory.addr();
        let tables = Self {
            gpu: Arc::clone(gpu),
            memory,
            closed: gpu.map_host(ranks * size_of::<u32>())?,
            config: base + config,
            qps: base + qps,
            guards: base + guards,
            lkeys: base + lkeys,
            peers: base + peers,
            direct: base + direct,
            ranks: team.ranks,
            rails,
            shadow: Mutex::new(Shadow {
                lives: vec![0; ranks],
                carriers: vec![Carriers::default(); ranks],
                entries: Vec::new(),
                direct: Vec::new(),
            }),
        };
        gpu.write(tables.config, bytemuck::bytes_of(&DeviceConfig::zeroed()))?;
        tables.write_deadline(team.deadline)?;
        gpu.write(base + qps, bytemuck::cast_slice(contexts))?;
        let context = TeamContext {
            rank: team.rank,
            ranks: team.ranks,
            max_ranks: team.ranks,
            qps_per_peer: team.qps_per_peer,
            max_windows: team.windows,
            rails,
            qps: DevicePtr::<DevicePtr<QpContext>>::new(base + qps),
            peers: DevicePtr::new(tables.peers),
            config: DevicePtr::new(tables.config),
            guards: DevicePtr::new(tables.guards),
            closed: DevicePtr::new(tables.closed.addr()),
            lkeys: DevicePtr::new(tables.lkeys),
            direct: DevicePtr::new(tables.direct),
        };
        gpu.write(base, bytemuck::bytes_of(&context))?;
        Ok(tables)
    }

    /// Returns the device address of the `TeamContext`.
    pub(in crate::team) fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Sets the deadline of device calls. A team that was aborted stays aborted.
    pub(in crate::team) fn write_deadline(&self, deadline: Duration) -> Result<(), TeamError> {
        let ns = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        let at = self.config + offset_of!(DeviceConfig, deadline_ns) as u64;
        Ok(self.gpu.write(at, bytemuck::bytes_of(&ns))?)
    }

    /// Ends device calls that run and all later ones.
    pub(in crate::team) fn write_abort(&self) -> Result<(), TeamError> {
        let at = self.config + offset_of!(DeviceConfig, abort) as u64;
        Ok(self.gpu.write(at, bytemuck::bytes_of(&1_u32))?)
    }

    /// Adds the rows of the next window: `entries[rail][peer]` holds address and key only. `direct` holds for each peer the address
    /// at which kernels of this rank load and store, 0 if they cannot. `lkeys_be` holds the local key of each rail, big-endian.
    pub(in crate::team) fn add_window(
        &self,
        entries: &[PeerEntry],
        direct: &[u64],
        lkeys_be: &[u32],
    ) -> Result<(), TeamError> {
        let mut shadow = self.shadow();
        let first = shadow.entries.len();
        let row = (shadow.direct.len() * size_of::<u64>()) as u64;
        shadow.direct.extend(direct);
        self.gpu
            .write(self.direct + row, bytemuck::cast_slice(direct))?;
        let window = first / (self.ranks * self.rails) as usize;
        shadow.entries.extend(entries);
        let row = (window * self.rails as usize * size_of::<u32>()) as u64;
        self.gpu
            .write(self.lkeys + row, bytemuck::cast_slice(lkeys_be))?;
        let at = self.peers + (first * size_of::<PeerEntry>()) as u64;
        let places = first..shadow.entries.len();
        let rows: Vec<PeerEntry> = places
            .map(|place| shadow.told(self.ranks, self.rails, place))
            .collect();
        Ok(self.gpu.write(at, bytemuck::cast_slice(&rows))?)
    }

    /// Writes into every entry of `peer` how kernels post to it. Call it only in the grace period of the peer.
    pub(in crate::team) fn set_life(&self, peer: u32, posts: &Posting) -> Result<(), TeamError> {
        let mut shadow = self.shadow();
        self.begin_life(&mut shadow, peer, posts)?;
        self.write_peer(&shadow, peer)
    }

    fn begin_life(&self, shadow: &mut Shadow, peer: u32, posts: &Posting) -> Result<(), TeamError> {
        shadow.lives[peer as usize] = posts.life;
        shadow.carriers[peer as usize] = posts.carriers;
        self.write_contexts(peer, &posts.contexts)
    }

    /// Returns for each window that `peer` has whether kernels of this rank reach it by load and store.
    pub(in crate::team) fn direct(&self, peer: u32) -> Vec<bool> {
        let shadow = self.shadow();
        let (ranks, peer) = (self.ranks as usize, peer as usize);
        let entries = shadow.entries.chunks(ranks * self.rails as usize);
        let rows = entries.zip(shadow.direct.chunks(ranks));
        rows.filter(|(entries, _)| entries[peer].base != 0)
            .map(|(_, direct)| direct[peer] != 0)
            .collect()
    }

    /// Ends the access of kernels to all windows of `peer` by load and store. Call it only in the grace period of the peer.
    pub(in crate::team) fn end_direct(&self, peer: u32) -> Result<(), TeamError> {
        let mut shadow = self.shadow();
        let none = vec![0; shadow.direct.len() / self.ranks as usize];
        self.write_direct(&mut shadow, peer, &none)?;
        self.write_peer(&shadow, peer)
    }

    /// Writes every entry of a new generation of `peer`: how kernels post to it, the address for load and store by window, and
    /// address and key (big-endian) by window and rail. Call it only in the grace period of the peer. It may be called again.
    pub(in crate::team) fn set_peer(
        &self,
        peer: u32,
        posts: &Posting,
        direct: &[u64],
        places: &[(u64, u32)],
    ) -> Result<(), TeamError> {
        let mut shadow = self.shadow();
        self.begin_life(&mut shadow, peer, posts)?;
        self.write_direct(&mut shadow, peer, direct)?;
        shadow.set_places(peer, self.ranks, places);
        self.write_peer(&shadow, peer)
    }

    /// Writes the address and key of each window of `peer`, by window and rail. Call it only in the grace period of the peer.
    pub(in crate::team) fn set_places(
        &self,
        peer: u32,
        places: &[(u64, u32)],
    ) -> Result<(), TeamError> {
        let mut shadow = self.shadow();
        shadow.set_places(peer, self.ranks, places);
        self.write_peer(&shadow, peer)
    }

    /// Writes the addresses of the QP contexts by which kernels post to `peer`. Call it only in the grace period of the peer.
    fn write_contexts(&self, peer: u32, contexts: &[u64]) -> Result<(), TeamError> {
        let at = self.qps + u64::from(peer) * size_of_val(contexts) as u64;
        Ok(self.gpu.write(at, bytemuck::cast_slice(contexts))?)
    }

    /// Writes the address of each window of `peer` for load and store; 0 if kernels cannot. The caller then writes the entries,
    /// whose marks depend on it.
    fn write_direct(
        &self,
        shadow: &mut Shadow,
        peer: u32,
        direct: &[u64],
    ) -> Result<(), TeamError> {
        let places = (peer as usize..shadow.direct.len()).step_by(self.ranks as usize);
        for (place, addr) in places.zip(direct) {
            shadow.direct[place] = *addr;
            let at = self.direct + (place * size_of::<u64>()) as u64;
            self.gpu.write(at, bytemuck::bytes_of(addr))?;
        }
        Ok(())
    }

    /// Writes every entry of `peer`.
    fn write_peer(&self, shadow: &Shadow, peer: u32) -> Result<(), TeamError> {
        let rows = (peer as usize..shadow.entries.len()).step_by(self.ranks as usize);
        for place in rows {
            let entry = shadow.told(self.ranks, self.rails, place);
            let at = self.peers + (place * size_of::<PeerEntry>()) as u64;
            self.gpu.write(at, bytemuck::bytes_of(&entry))?;
        }
        Ok(())
    }

    /// Closes `peer`: from now on no kernel gets a guard of it.
    pub(in crate::team) fn close(&self, peer: u32) {
        self.closed_word(peer).store(1, Ordering::Relaxed);
        // Sequentially consistent. Pairs with the fence of `guard_enter`: either the kernel sees the word, or `readers`, read
        // after this, shows the kernel.
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Opens `peer`: kernels get guards of it again.
    pub(in crate::team) fn open(&self, peer: u32) {
        // Release. Pairs with the acquire fence of `guard_enter`: a kernel that finds the peer open sees everything written before.
        self.closed_word(peer).store(0, Ordering::Release);
    }

    /// Returns whether no kernel gets a guard of `peer`.
    pub(in crate::team) fn is_closed(&self, peer: u32) -> bool {
        self.closed_word(peer).load(Ordering::Relaxed) != 0
    }

    /// Returns how many guards of `peer` kernels hold now.
    pub(in crate::team) fn readers(&self, peer: u32) -> Result<u64, TeamError> {
        let at = self.guards + u64::from(peer) * size_of::<PeerGuard>() as u64;
        let mut readers = [0u64];
        self.gpu.read(
            at + std::mem::offset_of!(PeerGuard, readers) as u64,
            bytemuck::cast_slice_mut(&mut readers),
        )?;
        // Acquire. Pairs with the fence of `guard_drop`: what a kernel did under its guard comes before what follows here.
        std::sync::atomic::fence(Ordering::Acquire);
        Ok(readers[0])
    }

    fn closed_word(&self, peer: u32) -> &std::sync::atomic::AtomicU32 {
        self.closed.u32_at(peer as usize * size_of::<u32>())
    }

    fn shadow(&self) -> MutexGuard<'_, Shadow> {
        // Entries are pushed and changed whole, so a panic elsewhere under the lock has broken nothing.
        self.shadow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shadow {
    /// Sets address and key of each window and rail of a peer. `ranks` is the number of ranks of the team.
    fn set_places(&mut self, peer: u32, ranks: u32, places: &[(u64, u32)]) {
        let rows = (peer as usize..self.entries.len()).step_by(ranks as usize);
        for (at, (base, rkey_be)) in rows.zip(places.iter().copied()) {
            let entry = &mut self.entries[at];
            (entry.base, entry.rkey_be) = (base, rkey_be);
        }
    }

    /// Returns the entry at `place` as kernels read it: with the key of the rail that carries what is posted to the QPs of its row.
    fn told(&self, ranks: u32, rails: u32, place: usize) -> PeerEntry {
        let (ranks, rails) = (ranks as usize, rails as usize);
        let (row, peer) = (place / ranks, place % ranks);
        let (window, rail) = (row / rails, row % rails);
        let rail = u32::try_from(rail).expect("at most 16 rails");
        let carrier = self.carriers[peer].of(rail);
        let direct = match self.direct[window * ranks + peer] {
            0 => 0,
            _ => PEER_DIRECT,
        };
        PeerEntry {
            rail_life: direct | carrier << RAIL_SHIFT | self.lives[peer] & LIFE_MASK,
            ..self.entries[(window * rails + carrier as usize) * ranks + peer]
        }
    }
}
