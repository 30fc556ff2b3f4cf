//! What lanes of a rail are made of.

use std::sync::Arc;

use super::cq::Cq;
use super::domain::Domain;
use super::endpoint::Endpoint;
use super::error::OfiError;
use super::lane::OfiLane;
use super::lkeys::LocalKeys;
use super::memory::{OfiRegistration, Registrar};
use super::offer::Greets;
use super::rkeys::Knower;
use super::split::Limits;
use crate::provider::{AnyMemory, HostMemory, LocalRange, ProviderError};

/// The bytes of a first write.
const GREETING: u32 = 8;
/// The offset of the bytes that peers write first. Those that this side writes from are before it.
const LANDING: u64 = 64;

/// What lanes of a rail are made of.
#[derive(Debug)]
pub(super) struct Lanes {
    depth: u16,
    limits: Limits,
    /// The bytes of first writes, which begin at this address.
    greetings: OfiRegistration,
    first: u64,
    registrar: Arc<Registrar>,
    domain: Arc<Domain>,
}

impl Lanes {
    pub(super) fn new(
        domain: &Arc<Domain>,
        registrar: &Arc<Registrar>,
        depth: u16,
    ) -> Result<Self, ProviderError> {
        let page = Arc::new(HostMemory::new(4096)?);
        let facts = domain.facts();
        let most_bytes = facts.most_bytes;
        #[cfg(test)]
        let most_bytes = domain.trial().most_bytes.unwrap_or(most_bytes);
        Ok(Self {
            depth,
            limits: Limits::new(most_bytes, facts.ranges),
            first: page.address(),
            greetings: registrar.register(&AnyMemory::from(&page))?,
            registrar: Arc::clone(registrar),
            domain: Arc::clone(domain),
        })
    }

    pub(super) fn endpoint(&self, cq: &Arc<Cq>) -> Result<Endpoint, OfiError> {
        Endpoint::new(&self.domain, cq, self.depth)
    }

    pub(super) fn lane(&self, endpoint: &Arc<Endpoint>) -> OfiLane {
        OfiLane::new(endpoint, self.keys(), self.depth, self.limits)
    }

    pub(super) fn keys(&self) -> &Arc<LocalKeys> {
        &self.registrar.lkeys
    }

    /// Returns a new connection, which may know all keys of its time.
    pub(super) fn knower(&self) -> Knower {
        Knower::new(&self.registrar.rkeys)
    }

    /// Returns the bytes that a first write of this side reads.
    pub(super) fn source(&self) -> LocalRange {
        LocalRange {
            address: self.first,
            key: self.greetings.lkey(),
            bytes: GREETING,
        }
    }

    /// Returns where the first write of the other end goes.
    pub(super) fn greets(&self) -> Greets {
        Greets {
            remote: self.registrar.place_of(self.first) + LANDING,
            key: self.greetings.rkey(),
        }
    }
}
