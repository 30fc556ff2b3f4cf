//! What an engine has on one HCA: domain, control heap in host memory, CQs, QPs, registrations.

// UNSAFETY: gives memory that the rail or the caller owns to the HCA.
#![expect(unsafe_code, reason = "registered memory")]

use std::sync::Arc;

use super::pair::Pair;
use super::reaper::Mlx5Reaper;
use crate::provider::{HostMemory, ProviderError};
use crate::verbs::{
    Access, Context, ControlHeap, HeapRegion, KeyRange, Mr, Pd, Qp, QpConfig, RangeKey, SharedCq,
    VerbsError,
};

/// What a rail has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RailShape {
    /// log2 of the WQEBBs of a QP.
    pub(crate) log_depth: u8,
    /// log2 of the receive WQEs of a QP: at least 4, and less than that of its WQEBBs.
    pub(crate) log_receives: u8,
    /// log2 of the entries of a CQ of sends.
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
    /// For sends and for receives.
    cqs: Vec<[Arc<SharedCq>; 2]>,
    heap: Arc<ControlHeap>,
    pd: Arc<Pd>,
    config: QpConfig,
}

/// Bytes of a line with records, as the heap rounds.
const LINE: u64 = 512;
/// Of a receive WQE: one data segment.
const RECV_WQE_BYTES: u64 = 16;

impl Mlx5Rail {
    pub(crate) fn new(context: &Arc<Context>, shape: &RailShape) -> Result<Self, ProviderError> {
        let pd = Pd::new(context)?;
        let entries = 1u64 << shape.log_entries;
        // Each CQ, and as many QPs as have a share of it.
        let depth = 1u64 << shape.log_depth;
        let count = (entries / depth).max(1);
        // As many QPs have a share of the other CQ, with an entry for each receive WQE.
        let log_receives =
            shape.log_entries - shape.log_depth.min(shape.log_entries) + shape.log_receives;
        let receives = 1u64 << log_receives;
        let queues = count * (depth * 64 + LINE) + receives * RECV_WQE_BYTES + count * LINE;
        let cqs = (entries + receives) * 64 + 2 * LINE;
        let bytes = u64::from(shape.cqs) * (cqs + queues) + 4096;
        let memory = HostMemory::new(bytes.next_multiple_of(4096))?;
        let address = memory.address();
        let length = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
        let region = HeapRegion::host(address, address, length);
        // SAFETY: the heap keeps the memory as its owner; no code has a reference into it except to atomics.
        let heap = unsafe { ControlHeap::over(context, &region, Some(Box::new(memory))) }?;
        let cqs = (0..shape.cqs).map(|_| {
            let sends = SharedCq::create(&heap, shape.log_entries)?;
            let receives = sends.beside(&heap, log_receives)?;
            Ok::<_, VerbsError>([sends, receives])
        });
        Ok(Self {
            cqs: cqs.collect::<Result<_, _>>()?,
            heap,
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

    /// The consumer of the CQs with this number, which have one.
    pub(crate) fn reaper(&self, number: usize) -> Option<Mlx5Reaper> {
        Some(Mlx5Reaper::new(self.cqs.get(number)?.clone()))
    }

    /// A QP in Init that completes in the CQs of index `number` and sends packets from `psn` on. Among the QPs to a peer it has
    /// index `place`.
    pub(crate) fn pair(&self, number: usize, place: u32, psn: u32) -> Result<Pair, VerbsError> {
        let [sends, receives] = self.cqs.get(number).ok_or_else(|| {
            let limit = format!("less than {}", self.cqs.len());
            VerbsError::argument("number of a CQ", number, limit)
        })?;
        let config = self.config.with_place(Some(place));
        Pair::new(
            Qp::create_on(&self.pd, &self.heap, [sends, receives], &config)?,
            psn,
        )
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

    /// A key for peers over part of a registration, by one command. The registration stays as long as the key exists.
    pub(crate) fn key(
        &self,
        range: &KeyRange,
        access: Access,
        tag: u8,
    ) -> Result<RangeKey, VerbsError> {
        RangeKey::create(&self.pd, range, access, tag)
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
