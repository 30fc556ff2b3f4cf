//! What an engine has on one HCA: domain, control heap in host memory, CQs, QPs, registrations.

// UNSAFETY: gives memory that the rail or the caller owns to the HCA.
#![expect(unsafe_code, reason = "registered memory")]

use std::sync::Arc;

use super::pair::Pair;
use super::reaper::Mlx5Reaper;
use crate::provider::{HostMemory, ProviderError};
use crate::verbs::{
    Access, Context, ControlHeap, HeapRegion, Mr, Pd, Qp, QpConfig, SharedCq, VerbsError,
};

/// What a rail has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RailShape {
    /// log2 of the WQEBBs of a QP.
    pub(crate) log_depth: u8,
    /// log2 of the entries of a CQ.
    pub(crate) log_entries: u8,
    /// CQs.
    pub(crate) cqs: u32,
    /// Partition key; none: the port's first.
    pub(crate) pkey: Option<u16>,
    /// Port of a bond; 0: the QPs to a peer leave by each in turn.
    pub(crate) lag_port: u8,
}

/// One HCA.
#[derive(Debug)]
pub(crate) struct Mlx5Rail {
    cqs: Vec<Arc<SharedCq>>,
    heap: Arc<ControlHeap>,
    pd: Arc<Pd>,
    config: QpConfig,
}

/// Bytes of a line with records, as the heap rounds.
const LINE: u64 = 512;

impl Mlx5Rail {
    pub(crate) fn new(context: &Arc<Context>, shape: &RailShape) -> Result<Self, ProviderError> {
        let pd = Pd::new(context)?;
        let entries = 1u64 << shape.log_entries;
        // Each CQ, and as many QPs as have a share of it.
        let depth = 1u64 << shape.log_depth;
        let queues = (entries / depth).max(1) * (depth * 64 + LINE);
        let bytes = u64::from(shape.cqs) * (entries * 64 + LINE + queues) + 4096;
        let memory = HostMemory::new(bytes.next_multiple_of(4096))?;
        let address = memory.address();
        let length = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
        let region = HeapRegion::host(address, address, length);
        // SAFETY: the heap keeps the memory as its owner; nobody has a reference into it but to atomics.
        let heap = unsafe { ControlHeap::over(context, &region, Some(Box::new(memory))) }?;
        let cqs = (0..shape.cqs).map(|_| SharedCq::create(&heap, shape.log_entries));
        Ok(Self {
            cqs: cqs.collect::<Result<_, _>>()?,
            heap,
            pd,
            config: QpConfig::default()
                .with_log_depth(shape.log_depth)
                .with_pkey(shape.pkey)
                .with_lag_port(shape.lag_port),
        })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.pd.context()
    }

    /// The consumer of CQ `number`, which has one.
    pub(crate) fn reaper(&self, number: usize) -> Option<Mlx5Reaper> {
        Some(Mlx5Reaper::new(Arc::clone(self.cqs.get(number)?)))
    }

    /// A QP in Init that completes in CQ `number` and sends packets from `psn` on, the one with this place among those to a peer.
    pub(crate) fn pair(&self, number: usize, place: u32, psn: u32) -> Result<Pair, VerbsError> {
        let cq = self.cqs.get(number).ok_or_else(|| {
            let limit = format!("less than {}", self.cqs.len());
            VerbsError::argument("number of a CQ", number, limit)
        })?;
        let config = self.config.with_lag_port(self.lag_port(place));
        Pair::new(Qp::create_on(&self.pd, &self.heap, cq, &config)?, psn)
    }

    fn lag_port(&self, place: u32) -> u8 {
        match self.config.lag_port {
            0 => self.context().caps().lag_port_in_turn(place as usize),
            named => named,
        }
    }

    /// Registers all of `memory` for this side and for peers.
    pub(crate) fn register(&self, memory: &Arc<HostMemory>) -> Result<Registration, VerbsError> {
        let (address, bytes) = (memory.address(), memory.bytes());
        // SAFETY: the registration keeps the memory, to which no Rust reference exists but to atomics.
        let mr = unsafe { Mr::register(&self.pd, address, bytes, Access::ALL) }?;
        Ok(Registration {
            mr,
            _memory: Arc::clone(memory),
        })
    }
}

/// Memory that the HCA has.
#[derive(Debug)]
pub(crate) struct Registration {
    mr: Mr,
    /// Goes last.
    _memory: Arc<HostMemory>,
}

impl Registration {
    pub(crate) fn lkey(&self) -> u32 {
        self.mr.lkey()
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.mr.rkey()
    }

    /// Takes the keys away. It can be called again after it has failed.
    pub(crate) fn deregister(&mut self) -> Result<(), VerbsError> {
        self.mr.deregister()
    }
}
