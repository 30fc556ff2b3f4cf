//! The NICs of an engine, called its rails: which workers serve each rail, and the keys that a registration has on each.
//!
//! Every region is registered on every rail. Lane `n` of a connection leaves by rail `n` modulo the number of rails of this end, and enters
//! by rail `n` modulo the number of rails of the peer. If an end asks for rails near the memory, every rail of one end meets every rail of
//! the other. Only the workers of a rail reap its QPs. A worker pulls slices when it has room, so a slow rail takes fewer.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::engine::error::{EngineError, HostError};
use crate::engine::ledger::tally::SliceCounts;
use crate::engine::limits::MOST_RAILS;
use crate::engine::route::rest::{RailState, Rest};
use crate::provider::shape::RailShape;
use crate::provider::{
    AnyMemory, EngineDevice, HostKey, HostRail, HostReaper, HostRegistration, Naming, ProviderError,
};
use crate::verbs::{Access, KeyRange};

/// The keys of one range of memory, by rail of the engine that has the memory. The key of a rail that the engine lacks is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailKeys {
    keys: [u32; MOST_RAILS],
    near: u8,
    is_of_gpu: bool,
    /// What a request by these keys names for the first byte. None: its address.
    base: Option<u64>,
}

const _: () = assert!(MOST_RAILS == u8::BITS as usize);

/// The status of a rail of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RailStatus {
    /// The RDMA device of the rail.
    pub device: String,
    /// The port of the device, from 1 on.
    pub port: u8,
    /// The state of the rail, which decides when its failed QPs are connected again.
    pub state: RailState,
    /// How often the rail has begun to rest because its QPs failed.
    pub rests: u64,
    /// What the workers of the rail have done with slices by its QPs.
    pub slices: SliceCounts,
    /// How often the provider has refused an operation for now. Each was tried again. An HCA refuses none.
    pub refusals: u64,
}

/// The NICs of an engine.
#[derive(Debug)]
pub(in crate::engine) struct Rails {
    rails: Vec<HostRail>,
    /// The number of workers of each rail.
    workers: u32,
    rests: Mutex<Vec<Rest>>,
}

/// Memory that is registered on every rail.
#[derive(Debug)]
pub(in crate::engine) struct Registrations {
    /// The registrations by rail. Those that are gone are missing; the last rail loses its own first.
    registrations: Vec<HostRegistration>,
    keys: [RailKeys; 2],
}

/// A range of memory of this side for which keys are made.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct GrantedRange {
    pub(in crate::engine) lkeys: RailKeys,
    pub(in crate::engine) address: u64,
    pub(in crate::engine) bytes: u64,
    /// The address by which peers name the first byte.
    pub(in crate::engine) named: u64,
}

/// Why memory is still registered.
#[derive(Debug)]
pub(in crate::engine) struct Kept {
    pub(in crate::engine) error: ProviderError,
    /// True if every rail still has its registration.
    pub(in crate::engine) is_whole: bool,
}

impl RailKeys {
    /// Returns the keys of all rails.
    #[must_use]
    pub const fn all(&self) -> &[u32; MOST_RAILS] {
        &self.keys
    }

    /// Returns a bit for each rail that is near the memory. 0: no rail is known to be near.
    #[must_use]
    pub const fn near(&self) -> u8 {
        self.near
    }

    /// Returns the keys of memory that these rails are near: a bit for each.
    #[must_use]
    pub const fn with_near(self, near: u8) -> Self {
        Self { near, ..self }
    }

    /// Returns whether the memory is a GPU's, so that no thread of a process copies it.
    #[must_use]
    pub const fn is_of_gpu(&self) -> bool {
        self.is_of_gpu
    }

    /// Returns the keys of memory of a GPU, or of the host.
    #[must_use]
    pub const fn with_gpu(self, is_of_gpu: bool) -> Self {
        Self { is_of_gpu, ..self }
    }

    /// Returns what a request names for the byte at `address` of memory that begins at `first`.
    #[must_use]
    pub(in crate::engine) fn named(&self, first: u64, address: u64) -> u64 {
        match self.base {
            None => address,
            Some(base) => base.wrapping_add(address.wrapping_sub(first)),
        }
    }

    /// Returns what a request names for the first byte. None: its address, as peers know it.
    #[must_use]
    pub const fn base(&self) -> Option<u64> {
        self.base
    }

    /// Returns the keys of memory whose first byte requests name so.
    #[must_use]
    pub const fn with_base(self, base: Option<u64>) -> Self {
        Self { base, ..self }
    }

    /// Returns the key of a rail.
    #[must_use]
    pub fn of(&self, rail: usize) -> u32 {
        self.keys.get(rail).copied().unwrap_or(0)
    }
}

impl From<[u32; MOST_RAILS]> for RailKeys {
    fn from(keys: [u32; MOST_RAILS]) -> Self {
        Self {
            keys,
            near: 0,
            is_of_gpu: false,
            base: None,
        }
    }
}

/// Takes the keys of the first rails, in order.
impl FromIterator<u32> for RailKeys {
    fn from_iter<I: IntoIterator<Item = u32>>(keys: I) -> Self {
        let mut all = [0; MOST_RAILS];
        for (place, key) in all.iter_mut().zip(keys) {
            *place = key;
        }
        all.into()
    }
}

impl Rails {
    /// Makes the rails of an engine on these devices, with `shape.workers` workers for each.
    pub(in crate::engine) fn new(
        devices: &[EngineDevice],
        shape: &RailShape,
    ) -> Result<Self, HostError> {
        let count = devices.len();
        if !(1..=MOST_RAILS).contains(&count) {
            return Err(EngineError::Devices { count }.into());
        }
        // Peers name memory of all rails alike, and a connection has one wire.
        let by_libfabric = devices.iter().filter_map(EngineDevice::domain).count();
        if ![0, count].contains(&by_libfabric) {
            return Err(EngineError::MixedWires {
                by_libfabric,
                count,
            }
            .into());
        }
        let mut ports = HashSet::new();
        for device in devices {
            let name = device.name();
            if !ports.insert((name, device.port())) {
                let name = name.to_owned();
                return Err(EngineError::SameDevice { name }.into());
            }
        }
        let rails = devices.iter();
        let rails = rails.map(|device| HostRail::new(device, shape));
        Ok(Self {
            rests: Mutex::new(vec![Rest::default(); count]),
            rails: rails.collect::<Result<_, _>>()?,
            workers: shape.workers,
        })
    }

    /// Returns the rails of an engine without a NIC.
    pub(in crate::engine) fn none() -> Self {
        Self {
            rails: Vec::new(),
            workers: 0,
            rests: Mutex::default(),
        }
    }

    pub(in crate::engine) fn all(&self) -> &[HostRail] {
        &self.rails
    }

    /// Returns the name of the device of a rail.
    pub(in crate::engine) fn name(&self, rail: usize) -> Option<String> {
        let rail = self.rails.get(rail)?;
        Some(rail.device().to_owned())
    }

    /// Returns the reapers of all workers, by worker.
    pub(in crate::engine) fn reapers(&self) -> Vec<HostReaper> {
        let rails = self.rails.iter();
        let all =
            rails.flat_map(|rail| (0..self.workers as usize).filter_map(|nth| rail.reaper(nth)));
        all.collect()
    }

    /// Returns the number of workers of all rails.
    pub(in crate::engine) fn workers(&self) -> u32 {
        self.workers * u32::try_from(self.rails.len()).unwrap_or(1)
    }

    /// Returns the numbers of the workers of one rail.
    pub(in crate::engine) fn workers_of(&self, rail: usize) -> Range<u32> {
        let rail = u32::try_from(rail).unwrap_or(u32::MAX);
        let first = self.workers.saturating_mul(rail);
        first..first.saturating_add(self.workers)
    }

    /// Returns the index of the worker that has a lane, among the workers of its rail.
    pub(in crate::engine) fn place_of(&self, lane: usize) -> usize {
        lane / self.rails.len() % self.workers as usize
    }

    /// Returns the number of the worker that has a lane which leaves by this rail.
    pub(in crate::engine) fn worker_of(&self, lane: usize, rail: usize) -> u32 {
        let worker = rail * self.workers as usize + self.place_of(lane);
        u32::try_from(worker).unwrap_or(0)
    }

    /// Registers all of `memory` on every rail, or on none.
    pub(in crate::engine) fn register(
        &self,
        memory: &AnyMemory,
    ) -> Result<Registrations, ProviderError> {
        let all = self.rails.iter().map(|rail| rail.register(memory));
        let registrations = all.collect::<Result<Vec<_>, _>>()?;
        let keys = [HostRegistration::lkey, HostRegistration::rkey];
        let near = self.near(memory);
        let base = self.naming().of_region();
        let keys = keys.map(|key| {
            let keys: RailKeys = registrations.iter().map(key).collect();
            let keys = keys.with_near(near).with_gpu(memory.gpu().is_some());
            keys.with_base(base)
        });
        Ok(Registrations {
            registrations,
            keys,
        })
    }

    /// Refuses a region of more bytes than some rail takes.
    pub(in crate::engine) fn check_bytes(&self, bytes: u64) -> Result<(), EngineError> {
        for rail in &self.rails {
            let most = rail.most_registered();
            if bytes > most {
                let device = rail.device().to_owned();
                return Err(EngineError::RegionBytes {
                    bytes,
                    most,
                    device,
                });
            }
        }
        Ok(())
    }

    /// Returns a bit for each rail on the NUMA node of the memory. A rail has no bit if either node is unknown.
    fn near(&self, memory: &AnyMemory) -> u8 {
        let nodes = self.rails.iter();
        let nodes = nodes.map(HostRail::numa_node);
        near(memory.numa_node(), nodes)
    }

    /// Returns how peers name memory of this engine: alike on all rails, whose provider is one.
    pub(in crate::engine) fn naming(&self) -> Naming {
        self.rails.first().map_or(Naming::Own, HostRail::naming)
    }

    /// Makes a key for peers over part of a registration, by one command of each rail.
    pub(in crate::engine) fn keys(
        &self,
        range: &GrantedRange,
        access: Access,
        tag: u8,
    ) -> Result<Vec<HostKey>, ProviderError> {
        let keys = self.rails.iter().enumerate().map(|(nth, rail)| {
            let range = KeyRange {
                lkey: range.lkeys.of(nth),
                address: range.address,
                bytes: range.bytes,
                named: range.named,
            };
            rail.key(&range, access, tag)
        });
        keys.collect()
    }

    /// Lets `look` read or change the failures that are known of a rail, under the lock.
    pub(in crate::engine) fn rest<T>(
        &self,
        rail: usize,
        look: impl FnOnce(&mut Rest, Instant) -> T,
    ) -> Option<T> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        let mut rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        rests.get_mut(rail).map(|rest| look(rest, Instant::now()))
    }
}

impl Registrations {
    pub(in crate::engine) fn lkeys(&self) -> RailKeys {
        self.keys[0]
    }

    pub(in crate::engine) fn rkeys(&self) -> RailKeys {
        self.keys[1]
    }

    /// Returns how each rail has registered the memory, and which ways it refused.
    pub(in crate::engine) fn ways(&self) -> Vec<String> {
        let ways = self.registrations.iter().map(HostRegistration::way);
        ways.collect()
    }

    /// Takes the keys of all rails away. After a failure it can be called again.
    pub(in crate::engine) fn deregister(&mut self) -> Result<(), Kept> {
        let whole = self.registrations.len();
        while let Some(last) = self.registrations.last_mut() {
            if let Err(error) = last.deregister() {
                let is_whole = self.registrations.len() == whole;
                return Err(Kept { error, is_whole });
            }
            self.registrations.pop();
        }
        Ok(())
    }
}

/// Returns a bit for each of `nodes` that is the node of the memory. Returns 0 if the node of the memory is not known.
fn near(memory: Option<u32>, nodes: impl Iterator<Item = Option<u32>>) -> u8 {
    let all = (0..MOST_RAILS).zip(nodes);
    let near = all.filter(|(_, node)| node.is_some() && *node == memory);
    near.fold(0, |all, (rail, _)| all | 1 << rail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rails_are_near_where_both_nodes_are_known() {
        let nodes = [Some(0), Some(1), None, Some(1)];
        let of = |memory| near(memory, nodes.into_iter());
        assert_eq!(
            [of(Some(1)), of(Some(0)), of(Some(2)), of(None)],
            [0b1010, 1, 0, 0]
        );
    }

    #[test]
    fn a_rail_that_an_engine_lacks_has_key_0() {
        let keys = RailKeys::from_iter([7, 8]);
        assert_eq!([keys.of(0), keys.of(1), keys.of(2)], [7, 8, 0]);
        assert_eq!(keys.of(MOST_RAILS), 0);
        assert_eq!(RailKeys::from(*keys.all()), keys);
        assert_eq!(RailKeys::from_iter(1..100).of(MOST_RAILS - 1), 8);
    }
}
