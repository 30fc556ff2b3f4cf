//! A loop that writes from one NIC to another without an engine: one thread posts and takes completions. The rate of an engine is compared
//! with its rate.
//!
//! Over QPs it uses the lanes and the reaper of a worker: they write WQEs, ring and account, and do nothing else. A lane over libfabric does
//! more. It keeps operations that are refused, splits WQEs, and finds the endpoint of each completion. All that is a cost of the engine, so
//! over libfabric the loop calls the library itself.

use std::sync::Arc;
use std::thread;

use super::device::EngineDevice;
use super::lane::HostLane;
use super::memory::HostRegistration;
use super::pair::HostPair;
use super::rail::HostRail;
use super::reaper::HostReaper;
use crate::config::EngineConfig;
use crate::provider::ofi::BareFabric;
use crate::provider::shape::RailShape;
use crate::provider::{
    BareWrite, Cause, Chain, Completion, HostMemory, Lane, LocalRange, ProviderError, Reaper, Stop,
    Tag, Verb,
};
use crate::verbs::VerbsError;

/// The most completions that are taken at a time.
const REAP: usize = 64;
/// log2 of the receive WQEs of a QP. They are never used.
const LOG_RECEIVES: u8 = 4;

/// Queues from one NIC to another without an engine, and the memory of both ends.
pub struct BareLanes(Kind);

enum Kind {
    Queues(Box<Queues>),
    Fabric(Box<BareFabric>),
}

/// QPs without an engine.
struct Queues {
    lanes: Vec<HostLane>,
    reaper: HostReaper,
    chain: Chain,
    found: Vec<Completion>,
    /// These fields are dropped in this order, after the lanes.
    _others: Vec<HostLane>,
    _pairs: Vec<HostPair>,
    keys: [HostRegistration; 2],
    _rails: [HostRail; 2],
}

impl BareLanes {
    /// Makes `qps` queues of `1 << log_depth` WQEBBs, or operations, from the first to the second of two open devices, which one provider
    /// drives. The WQEs of WRITEs of at most `inline` bytes carry the bytes; operations of libfabric carry none.
    ///
    /// # Errors
    /// An error of a NIC or of libfabric.
    pub fn new(
        devices: [&EngineDevice; 2],
        memories: [&Arc<HostMemory>; 2],
        qps: u32,
        log_depth: u8,
        inline: u32,
    ) -> Result<Self, ProviderError> {
        if let [EngineDevice::Ofi(here), EngineDevice::Ofi(there)] = devices {
            let fabric = BareFabric::new([here, there], memories, qps, log_depth)?;
            return Ok(Self(Kind::Fabric(Box::new(fabric))));
        }
        let queues = Queues::new(devices, memories, qps, &shape(qps, log_depth, inline))?;
        Ok(Self(Kind::Queues(Box::new(queues))))
    }

    /// Posts all `writes` to the queues in turn, and takes their completions. A doorbell is for up to `chain` of them; libfabric has none.
    ///
    /// # Errors
    /// The cause of the first WRITE that has failed. After it the queues take no more WRITEs.
    pub fn run(&mut self, writes: &[BareWrite], chain: usize) -> Result<(), Cause> {
        match &mut self.0 {
            Kind::Queues(queues) => queues.run(writes, chain),
            Kind::Fabric(fabric) => fabric.run(writes),
        }
    }
}

impl Queues {
    fn new(
        devices: [&EngineDevice; 2],
        memories: [&Arc<HostMemory>; 2],
        qps: u32,
        shape: &RailShape,
    ) -> Result<Self, ProviderError> {
        let config = EngineConfig::new("bare").with_inline(shape.inline);
        let [here, there] = devices.map(|device| HostRail::new(device, shape));
        let rails = [here?, there?];
        let [here, there] = rails.each_ref().map(|rail| rail.described(&config.path));
        let (here, there) = (here?, there?);
        // The QPs have the settings of an engine's.
        let terms = [
            rails[0].terms(&here, &there, &config),
            rails[1].terms(&there, &here, &config),
        ];
        let (mut lanes, mut others, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
        for place in 0..qps {
            let [a, b] = rails.each_ref().map(|rail| rail.pair(0, place));
            let (a, b) = (a?, b?);
            let offers = (a.offer(), b.offer());
            let (Some(to_b), Some(to_a)) = offers else {
                return Err(VerbsError::argument("state of a new QP", "connected", "Init").into());
            };
            let a = a.receive(&terms[0], &to_a)?;
            let b = b.receive(&terms[1], &to_b)?;
            for (pair, terms, lanes) in [(a, &terms[0], &mut lanes), (b, &terms[1], &mut others)] {
                let (pair, lane) = pair.send(terms).map_err(|(_, error)| error)?;
                lanes.extend(lane);
                pairs.push(pair);
            }
        }
        let [a, b] = [0, 1].map(|end: usize| rails[end].register(&memories[end].into()));
        let reaper = rails[0].reaper(0);
        let reaper = reaper.ok_or_else(|| VerbsError::argument("workers", 0, "1"))?;
        Ok(Self {
            lanes,
            reaper,
            chain: Chain::default(),
            found: Vec::new(),
            _others: others,
            _pairs: pairs,
            keys: [a?, b?],
            _rails: rails,
        })
    }

    fn run(&mut self, writes: &[BareWrite], chain: usize) -> Result<(), Cause> {
        let (lkey, rkey) = (self.keys[0].lkey(), self.keys[1].rkey());
        let mut left = writes;
        while !left.is_empty() || self.lanes.iter().any(|lane| lane.in_flight() > 0) {
            for lane in &mut self.lanes {
                let room = usize::try_from(lane.room(1)).unwrap_or(usize::MAX);
                let (now, _) = left.split_at(room.min(chain).min(left.len()));
                if now.is_empty() {
                    continue;
                }
                self.chain.clear();
                for write in now {
                    let range = LocalRange {
                        address: write.local,
                        key: lkey,
                        bytes: write.bytes,
                    };
                    let tag = Tag::default();
                    let chain = &mut self.chain;
                    chain.push(Verb::Write, tag, write.remote, rkey, [range]);
                }
                let posted = lane.post(&self.chain, 0..self.chain.len());
                lane.ring();
                left = &left[posted.count..];
                // Nothing of this lane completes any more that could say why.
                if posted.stop == Some(Stop::Failed) && lane.in_flight() == 0 {
                    return Err(Cause::FLUSHED);
                }
            }
            self.reaper.reap(&mut self.found, REAP);
            if self.found.is_empty() {
                thread::yield_now();
            }
            for completion in self.found.drain(..) {
                let is_of = |lane: &&mut HostLane| lane.number() == completion.lane;
                let Some(lane) = self.lanes.iter_mut().find(is_of) else {
                    continue;
                };
                let mut failed = None;
                lane.retire(&completion, |_, cause| failed = failed.or(cause));
                if let Some(cause) = failed {
                    return Err(cause);
                }
            }
        }
        Ok(())
    }
}

/// Returns the sizes of a rail with so many QPs.
fn shape(qps: u32, log_depth: u8, inline: u32) -> RailShape {
    let log_qps = u8::try_from(qps.next_power_of_two().ilog2()).unwrap_or(u8::MAX);
    RailShape {
        log_depth,
        log_receives: LOG_RECEIVES,
        log_entries: log_depth.saturating_add(log_qps),
        workers: 1,
        shares_cqs: false,
        pkey: None,
        lag_port: 0,
        ranges: 1,
        inline,
    }
}
