//! Regions of this side: which registration each has, and who shares it.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::{EngineError, HostError};
use super::regions::{Descriptor, Mapped, Users};
use super::transfers::LocalTable;
use crate::provider::HostMemory;
use crate::provider::mlx5::{Mlx5Rail, Registration};

/// A registered region. No other of this engine ever has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(u64);

impl RegionId {
    /// Its number, for other languages.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// From its number. Any other number names a region that is unknown.
    #[must_use]
    pub const fn of_number(number: u64) -> Self {
        Self(number)
    }
}

/// Regions of this side.
#[derive(Default)]
pub(super) struct Registry {
    pub(super) table: Arc<LocalTable>,
    /// Each with the address of its registration, which several may share.
    regions: HashMap<u64, u64>,
    registrations: HashMap<u64, Shared>,
    next: u64,
}

struct Shared {
    registration: Registration,
    users: Arc<Users>,
    bytes: u64,
    regions: u32,
}

impl Registry {
    pub(super) fn register(
        &mut self,
        rail: &Mlx5Rail,
        memory: &Arc<HostMemory>,
    ) -> Result<RegionId, HostError> {
        let (address, bytes) = (memory.address(), memory.bytes());
        let known = self.table.covering(address, bytes);
        let first = match known.map(|region| region.address) {
            Some(first) => first,
            None => self.register_new(rail, memory)?,
        };
        let number = self.next;
        self.next += 1;
        self.regions.insert(number, first);
        if let Some(shared) = self.registrations.get_mut(&first) {
            shared.regions += 1;
        }
        Ok(RegionId(number))
    }

    fn register_new(
        &mut self,
        rail: &Mlx5Rail,
        memory: &Arc<HostMemory>,
    ) -> Result<u64, HostError> {
        let (address, bytes) = (memory.address(), memory.bytes());
        let registration = rail.register(memory)?;
        let users = Arc::new(Users::default());
        let mapped = Mapped {
            address,
            bytes,
            key: registration.lkey(),
            owner: Arc::clone(&users),
        };
        let table = self.table.with(mapped);
        let table = table.ok_or(EngineError::Overlap { address, bytes })?;
        self.table = Arc::new(table);
        self.registrations.insert(
            address,
            Shared {
                registration,
                users,
                bytes,
                regions: 0,
            },
        );
        Ok(address)
    }

    pub(super) fn deregister(&mut self, region: RegionId) -> Result<(), HostError> {
        let number = region.0;
        let unknown = EngineError::UnknownRegion { number };
        let first = *self.regions.get(&number).ok_or(unknown.clone())?;
        let shared = self.registrations.get_mut(&first).ok_or(unknown)?;
        if shared.regions > 1 {
            shared.regions -= 1;
            self.regions.remove(&number);
            return Ok(());
        }
        let busy = |users| EngineError::Busy { number, users };
        shared.users.close().map_err(busy)?;
        if let Err(error) = shared.registration.deregister() {
            shared.users.open();
            return Err(error.into());
        }
        self.regions.remove(&number);
        self.registrations.remove(&first);
        self.table = Arc::new(self.table.without(first));
        Ok(())
    }

    /// The descriptor of a region of the engine of this life.
    pub(super) fn descriptor(
        &self,
        region: RegionId,
        incarnation: u64,
    ) -> Result<Descriptor, HostError> {
        let number = region.0;
        let first = self.regions.get(&number);
        let shared = first.and_then(|first| Some((first, self.registrations.get(first)?)));
        let (first, shared) = shared.ok_or(EngineError::UnknownRegion { number })?;
        Ok(Descriptor {
            incarnation,
            address: *first,
            bytes: shared.bytes,
            rkey: shared.registration.rkey(),
        })
    }
}
