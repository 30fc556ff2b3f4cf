//! What an engine has on one NIC: the protection domain, what the QPs of each worker complete in, and registrations.

use std::sync::Arc;

use super::pair::VerbsPair;
use super::reaper::VerbsReaper;
use super::registration::{Registered, VerbsKey, VerbsRegistration};
use super::stock::Stock;
use crate::provider::shape::RailShape;
use crate::provider::{AnyMemory, ProviderError};
use crate::verbs::{Access, KeyRange, PlainContext, PlainPd, PlainQpShape, VerbsError};

/// What an engine has on one NIC.
#[derive(Debug)]
pub(crate) struct VerbsRail {
    /// The stock of each worker.
    stocks: Vec<Arc<Stock>>,
    registered: Arc<Registered>,
    pd: Arc<PlainPd>,
    /// The QP of a lane. Its send queue has room for one request more than the lane takes.
    shape: PlainQpShape,
}

impl VerbsRail {
    /// Makes a rail. Its workers share no CQs, and QPs of a bond choose their ports themselves.
    pub(crate) fn new(
        context: &Arc<PlainContext>,
        shape: &RailShape,
    ) -> Result<Self, ProviderError> {
        if shape.shares_cqs {
            let limit = format!("worker for {}, which libibverbs drives", context.name());
            return Err(VerbsError::argument("WARPVERBS_ENGINE_CQ", "nic", limit).into());
        }
        if shape.lag_port != 0 {
            let limit = format!("0 for {}, which libibverbs drives", context.name());
            return Err(VerbsError::argument("port of a bond", shape.lag_port, limit).into());
        }
        let pd = PlainPd::new(context)?;
        let qps = 1u32 << shape.log_entries.saturating_sub(shape.log_depth).min(31);
        let qp = PlainQpShape {
            sends: (1 << shape.log_depth) + 1,
            receives: 1 << shape.log_receives,
            ranges: shape.ranges,
            inline: shape.inline,
            pkey: shape.pkey,
        };
        let stocks = (0..shape.workers).map(|_| Stock::new(context, qps, &qp).map(Arc::new));
        Ok(Self {
            stocks: stocks.collect::<Result<_, _>>()?,
            registered: Arc::default(),
            pd,
            shape: qp,
        })
    }

    pub(crate) fn context(&self) -> &Arc<PlainContext> {
        self.pd.context()
    }

    /// Returns the reaper of worker `number` of this rail, if the rail has so many workers.
    pub(crate) fn reaper(&self, number: usize) -> Option<VerbsReaper> {
        self.stocks.get(number).map(VerbsReaper::new)
    }

    /// Makes a QP in Init whose completions go to worker `number` of this rail, and which sends packets from number `psn` on.
    pub(crate) fn pair(&self, number: usize, psn: u32) -> Result<VerbsPair, ProviderError> {
        let stock = self.stocks.get(number).ok_or_else(|| {
            let limit = format!("less than {}", self.stocks.len());
            VerbsError::argument("number of a worker", number, limit)
        })?;
        let qp = stock.qp(&self.pd, &self.shape)?;
        let (depth, receives) = (self.shape.sends - 1, self.shape.receives);
        Ok(VerbsPair::new(qp, psn, depth, receives)?)
    }

    /// Registers all of `memory` for this side and for peers.
    pub(crate) fn register(&self, memory: &AnyMemory) -> Result<VerbsRegistration, ProviderError> {
        VerbsRegistration::new(&self.pd, &self.registered, memory)
    }

    /// Makes a key for peers over part of a registration: a registration of its own.
    pub(crate) fn key(&self, range: &KeyRange, access: Access) -> Result<VerbsKey, ProviderError> {
        VerbsKey::new(&self.pd, &self.registered, range, access)
    }
}
