//! What an engine has on one domain.

use std::sync::Arc;

use super::choice::OfiDevice;
use super::cq::Cq;
use super::domain::Domain;
use super::facts::Facts;
use super::lanes::Lanes;
use super::memory::{OfiKey, OfiRegistration, Registrar};
use super::offer::OfiPort;
use super::pair::OfiPair;
use super::reaper::OfiReaper;
use crate::provider::shape::RailShape;
use crate::provider::{AnyMemory, ProviderError};
use crate::verbs::{Access, KeyRange, VerbsError};

/// What an engine has on one domain.
#[derive(Debug)]
pub(crate) struct OfiRail {
    cqs: Vec<Arc<Cq>>,
    lanes: Arc<Lanes>,
    registrar: Arc<Registrar>,
    domain: Arc<Domain>,
}

impl OfiRail {
    /// Opens a domain, with what its workers need. Of the shape it takes the depth of lanes, the entries of queues and the number of workers.
    pub(crate) fn new(device: &OfiDevice, shape: &RailShape) -> Result<Self, ProviderError> {
        if shape.shares_cqs {
            let limit = format!("worker for {}, which libfabric drives", device.name());
            return Err(VerbsError::argument("WARPVERBS_ENGINE_CQ", "nic", limit).into());
        }
        let domain = Arc::new(Domain::open(device)?);
        let registrar = Arc::new(Registrar::new(&domain)?);
        let entries = 1u32 << shape.log_entries.min(22);
        let cqs = (0..shape.workers).map(|_| Cq::open(&domain, entries).map(Arc::new));
        let facts = domain.facts();
        let most = u16::try_from(facts.depth).unwrap_or(u16::MAX);
        let depth = 1u16 << shape.log_depth.clamp(1, 15);
        Ok(Self {
            cqs: cqs.collect::<Result<_, _>>()?,
            lanes: Arc::new(Lanes::new(
                &domain,
                &registrar,
                if most == 0 { depth } else { depth.min(most) },
            )?),
            registrar,
            domain,
        })
    }

    /// Returns the name of the domain.
    pub(crate) fn name(&self) -> &str {
        self.domain.name()
    }

    /// Returns what the library says of the domain.
    pub(crate) fn facts(&self) -> &Facts {
        self.domain.facts()
    }

    /// Returns the NUMA node of the NIC, if the library and the system tell it.
    pub(crate) fn numa_node(&self) -> Option<u32> {
        self.facts().of_pci("numa_node")?.parse().ok()
    }

    /// Returns what peers must know of the domain.
    pub(crate) fn port(&self) -> OfiPort {
        OfiPort::of(self.domain.facts())
    }

    /// Returns the reaper of worker `number` of this rail, if the rail has so many workers.
    pub(crate) fn reaper(&self, number: usize) -> Option<OfiReaper> {
        self.cqs.get(number).map(OfiReaper::new)
    }

    /// Returns how often the provider has refused a post of this rail for now.
    pub(crate) fn refusals(&self) -> u64 {
        self.cqs.iter().map(|cq| cq.refusals()).sum()
    }

    /// Returns on what a worker sleeps that has a connection and nothing to do, in words.
    pub(crate) fn sleeps_on(&self) -> &'static str {
        if self.cqs.iter().all(|cq| cq.has_descriptor()) {
            "the descriptor of its completion queue (FI_WAIT_FD)"
        } else {
            "no descriptor, and looks every 50 us"
        }
    }

    /// Makes this side's end of a lane, whose completions go to worker `number` of this rail.
    pub(crate) fn pair(&self, number: usize) -> Result<OfiPair, ProviderError> {
        let cq = self.cqs.get(number).ok_or_else(|| {
            let limit = format!("less than {}", self.cqs.len());
            VerbsError::argument("number of a worker", number, limit)
        })?;
        Ok(OfiPair::new(&self.lanes, cq)?)
    }

    /// Registers all of `memory` for this side and for peers.
    pub(crate) fn register(&self, memory: &AnyMemory) -> Result<OfiRegistration, ProviderError> {
        self.registrar.register(memory)
    }

    /// Makes a key for peers over part of a registration: a registration of its own.
    pub(crate) fn key(&self, range: &KeyRange, access: Access) -> Result<OfiKey, ProviderError> {
        self.registrar.key(range, access)
    }
}
