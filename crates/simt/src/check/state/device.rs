//! The accesses of the process's devices, and what doorbells have published to the devices.
//!
//! All devices count as one, which does everything in order. The device knows what threads had fenced before they stored to a register, or
//! to a word that the device loaded (a doorbell record).

use std::sync::Arc;

use super::{History, State, other_place, other_side};
use crate::check::access::Scope;
use crate::check::agent::{Agent, DEVICE, Published};
use crate::check::clock::Clock;
use crate::check::finding::Finding;
use crate::check::report::Side;
use crate::check::shadow::{Cell, Granule, Word, granules};

impl State {
    pub(in crate::check) fn map_host(&mut self, addr: u64, host: u64, bytes: u64) {
        self.host_mapped.insert(addr, addr + bytes);
        if host != addr {
            self.host_views.insert(host, (host + bytes, addr));
        }
    }

    pub(in crate::check) fn unmap(&mut self, addr: u64, bytes: u64) {
        let gone = addr..addr + bytes;
        self.host_mapped.retain(|start, _| !gone.contains(start));
        self.host_views
            .retain(|_, (_, mapped_at)| !gone.contains(mapped_at));
        self.forget(addr, bytes);
    }

    /// Returns the address at which kernels reach what the host has at `addr`, if that is another address.
    pub(super) fn of_host_view(&self, addr: u64) -> Option<u64> {
        let (start, (end, mapped_at)) = self.host_views.range(..=addr).next_back()?;
        (addr < *end).then_some(mapped_at + (addr - start))
    }

    fn is_host(&self, addr: u64) -> bool {
        let below = self.host_mapped.range(..=addr).next_back();
        below.is_some_and(|(_, end)| addr < *end)
    }

    /// Returns the scope at which a device sees this memory.
    pub(super) fn device_scope(&self, addr: u64) -> Scope {
        if self.is_host(addr) {
            Scope::System
        } else {
            Scope::Gpu
        }
    }

    /// Notes a store to a device's register: the device now knows what was fenced before.
    pub(in crate::check) fn doorbell(&mut self, slot: u32) {
        self.tell(slot, &[Scope::Gpu, Scope::System]);
    }

    pub(super) fn tell(&mut self, slot: u32, scopes: &[Scope; 2]) {
        let Some(agent) = &self.agents[slot as usize] else {
            return;
        };
        for (told, scope) in self.told.iter_mut().zip(scopes) {
            if let Some(known) = &agent.fenced[*scope as usize]
                && told.join(known)
            {
                self.told_shared = None;
            }
        }
    }

    /// Checks an access of a device, which addresses memory as the host does. The device reports the access before it makes it.
    pub(in crate::check) fn device(&mut self, addr: u64, bytes: u64, writes: bool) {
        let addr = self.of_host_view(addr).unwrap_or(addr);
        self.device_epoch += 1;
        let epoch = self.device_epoch;
        let knows = {
            let told = &self.told[0];
            Arc::clone(
                self.told_shared
                    .get_or_insert_with(|| Arc::new(told.clone())),
            )
        };
        let scope = self.device_scope(addr);
        let told = usize::from(scope == Scope::System);
        for (granule, mask) in granules(addr, bytes) {
            let cell = Cell {
                slot: DEVICE,
                epoch,
                mask,
                writes,
                strong: Some(Scope::System),
                pc: 0,
            };
            let entry = self.shadow.entry(granule).or_default();
            if !writes && bytes <= 8 {
                // The word is a doorbell record, which also publishes what was fenced before its store.
                for half in Granule::halves(mask) {
                    if let Some(word) = &entry.words[half]
                        && tell_by(&word.published, &mut self.told)
                    {
                        self.told_shared = None;
                    }
                }
            }
            for old in &entry.cells {
                let conflict = old.slot != DEVICE && old.mask & mask != 0 && (old.writes || writes);
                let strong = old.strong.is_some_and(|reach| reach >= scope);
                if conflict && !strong && !self.told[told].knows(old.slot, old.epoch) {
                    let agents = &self.agents;
                    let finding = untold(&self.history, agents, granule << 3, writes, scope, old);
                    let place = other_place(&self.history, old);
                    let launch = place.map_or(0, |place| place.launch);
                    self.findings.add(finding, launch, [0, old.pc]);
                }
            }
            let told = &self.told[told];
            entry.add(cell, |old| {
                old.slot == DEVICE || told.knows(old.slot, old.epoch)
            });
            if writes {
                self.versions += 1;
                let word = Arc::new(Word {
                    version: self.versions,
                    published: Published::Device {
                        knows: Arc::clone(&knows),
                        epoch,
                    },
                });
                for half in Granule::halves(mask) {
                    entry.words[half] = Some(Arc::clone(&word));
                }
            }
        }
    }
}

/// Notes that a device has loaded a word that carries `published`. Returns true if the device learnt something.
fn tell_by(published: &Published, told: &mut [Clock; 2]) -> bool {
    let Published::Thread {
        fenced, observed, ..
    } = published
    else {
        return false;
    };
    let mut changed = false;
    for (at, told) in told.iter_mut().enumerate() {
        changed |= fenced[at + 1]
            .as_ref()
            .is_some_and(|known| told.join(known));
        changed |= told.join(&observed.performed[at]);
    }
    changed
}

/// Returns the finding that a device touches what a thread touched before, and no doorbell has published that.
fn untold(
    history: &History,
    agents: &[Option<Agent>],
    addr: u64,
    writes: bool,
    scope: Scope,
    old: &Cell,
) -> Finding {
    let device = Side::device(
        addr + u64::from(old.mask.trailing_zeros()),
        u64::from(old.mask.count_ones()),
        writes,
    );
    let other = other_side(history, addr, old);
    let writer = agents[old.slot as usize].as_ref();
    Finding::untold(&device, &other, writer, old, scope)
}
