//! What an engine has on one HCA: the protection domain, what the QPs of each worker are made of, and registrations.

// UNSAFETY: gives memory that the rail or the caller owns to the HCA.
#![expect(unsafe_code, reason = "registered memory")]

use std::sync::Arc;

use super::hub::Hub;
use super::pair::Pair;
use super::reaper::Mlx5Reaper;
use super::stock::{Piece, Stock};
use crate::provider::gpu_memory::dmabuf_of;
use crate::provider::shape::RailShape;
use crate::provider::{AnyMemory, HostMemory, ProviderError};
use crate::verbs::{
    Access, Context, ControlHeap, Dmabuf, Export, HeapRegion, KeyRange, Mr, Pd, QpConfig, RangeKey,
    SharedCq, VerbsError,
};

/// What an engine has on one HCA.
#[derive(Debug)]
pub(crate) struct Mlx5Rail {
    /// The stock of each worker, or one stock for all.
    stocks: Vec<Arc<Stock>>,
    /// What the workers share, if they share their CQs.
    hub: Option<Arc<Hub>>,
    workers: usize,
    pd: Arc<Pd>,
    config: QpConfig,
}

/// The bytes that a doorbell record takes, as the heap rounds.
const LINE: u64 = 512;
/// The bytes of a receive WQE: one data segment.
const RECV_WQE_BYTES: u64 = 16;

impl Piece {
    /// Makes a CQ of `1 << shape.log_entries` entries for sends, a CQ for receives, and memory for as many QPs as the first CQ has room
    /// for. Their events come by the channel of `beside`, if that is given.
    pub(super) fn new(
        context: &Arc<Context>,
        shape: &RailShape,
        beside: Option<&SharedCq>,
    ) -> Result<Self, ProviderError> {
        let entries = 1u64 << shape.log_entries;
        let depth = 1u64 << shape.log_depth;
        let count = (entries / depth).max(1);
        // The CQ for receives has room for as many QPs, with an entry for each receive WQE.
        let log_receives =
            shape.log_entries - shape.log_depth.min(shape.log_entries) + shape.log_receives;
        let receives = 1u64 << log_receives;
        let queues = count * (depth * 64 + LINE) + receives * RECV_WQE_BYTES + count * LINE;
        let cqs = (entries + receives) * 64 + 2 * LINE;
        let memory = HostMemory::new((cqs + queues + 4096).next_multiple_of(4096))?;
        let address = memory.address();
        let length = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
        let region = HeapRegion::host(address, address, length);
        // SAFETY: the heap keeps the memory as its owner; no code has a reference into it except to atomics.
        let heap = unsafe { ControlHeap::over(context, &region, Some(Box::new(memory))) }?;
        let sends = match beside {
            Some(other) => other.beside(&heap, shape.log_entries)?,
            None => SharedCq::create(&heap, shape.log_entries)?,
        };
        let receives = sends.beside(&heap, log_receives)?;
        let cqs = [sends, receives];
        Ok(Self { cqs, heap })
    }
}

impl Mlx5Rail {
    pub(crate) fn new(context: &Arc<Context>, shape: &RailShape) -> Result<Self, ProviderError> {
        let pd = Pd::new(context)?;
        let stocks = if shape.shares_cqs { 1 } else { shape.workers };
        let stocks = (0..stocks).map(|_| Stock::new(context, shape).map(Arc::new));
        let stocks = stocks.collect::<Result<Vec<_>, _>>()?;
        let hub = stocks.first().filter(|_| shape.shares_cqs);
        let hub = hub.map(|stock| Hub::new(stock, shape.workers).map(Arc::new));
        Ok(Self {
            hub: hub.transpose()?,
            stocks,
            workers: shape.workers as usize,
            pd,
            config: QpConfig::default()
                .with_log_depth(shape.log_depth)
                .with_log_recv_depth(Some(shape.log_receives))
                .with_pkey(shape.pkey)
                .with_lag_port(shape.lag_port),
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.pd.context()
    }

    /// Returns the reaper of worker `number` of this rail, if the rail has so many workers.
    pub(crate) fn reaper(&self, number: usize) -> Option<Mlx5Reaper> {
        match &self.hub {
            Some(hub) if number < self.workers => Some(Mlx5Reaper::shared(hub, number)),
            Some(_) => None,
            None => Some(Mlx5Reaper::alone(self.stocks.get(number)?)),
        }
    }

    /// Makes a QP in Init whose completions go to worker `number` of this rail, and which sends packets from number `psn` on. Among the QPs
    /// to a peer it has index `place`.
    pub(crate) fn pair(&self, number: usize, place: u32, psn: u32) -> Result<Pair, ProviderError> {
        let at = if self.hub.is_some() { 0 } else { number };
        let stock = self.stocks.get(at).filter(|_| number < self.workers);
        let stock = stock.ok_or_else(|| {
            let limit = format!("less than {}", self.workers);
            VerbsError::argument("number of a worker", number, limit)
        })?;
        let config = self.config.with_place(Some(place));
        let qp = stock.qp(&self.pd, &config)?;
        if let Some(hub) = &self.hub {
            hub.give(qp.qpn(), number)?;
        }
        Ok(Pair::new(qp, psn)?)
    }

    /// Returns the bytes of memory that QPs and CQs are made in.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.stocks.iter().map(|stock| stock.bytes()).sum()
    }

    /// Registers all of `memory` for this side and for peers.
    pub(crate) fn register(&self, memory: &AnyMemory) -> Result<Registration, ProviderError> {
        let (address, bytes) = (memory.address(), memory.bytes());
        let offered = memory.gpu().map(|memory| memory.dmabufs()).transpose()?;
        let dmabufs: Vec<Dmabuf<'_>> = offered.iter().flatten().map(dmabuf_of).collect();
        // SAFETY: the registration keeps the memory, to which no Rust reference exists but to atomics. What is offered is this memory.
        let mr = unsafe { Mr::exported(&self.pd, address, bytes, Access::ALL, &dmabufs) }?;
        if memory.gpu().is_some() {
            let device = self.context().name();
            tracing::debug!("{memory:?} is registered on {device}: {}", mr.export());
        }
        Ok(Registration {
            mr,
            _memory: memory.clone(),
        })
    }

    /// Makes a key for peers over part of a registration, by one command. The registration stays as long as the key exists.
    pub(crate) fn key(
        &self,
        range: &KeyRange,
        access: Access,
        tag: u8,
    ) -> Result<RangeKey, VerbsError> {
        RangeKey::create(&self.pd, range, access, tag)
    }
}

/// Memory that is registered with the HCA.
#[derive(Debug)]
pub(crate) struct Registration {
    mr: Mr,
    /// The memory, which is dropped after `mr`.
    _memory: AnyMemory,
}

impl Registration {
    pub(crate) fn lkey(&self) -> u32 {
        self.mr.lkey()
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.mr.rkey()
    }

    /// Returns how the memory was exported to the HCA, and which ways were refused.
    pub(crate) fn export(&self) -> &Export {
        self.mr.export()
    }

    /// Takes the keys away. After a failure it can be called again.
    pub(crate) fn deregister(&mut self) -> Result<(), VerbsError> {
        self.mr.deregister()
    }
}
