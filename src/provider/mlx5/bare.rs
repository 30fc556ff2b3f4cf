//! QPs between two HCAs to which one thread posts WRITEs, without an engine. The rate of an engine is compared with theirs.

use std::sync::Arc;
use std::thread;

use super::lane::Mlx5Lane;
use super::pair::Pair;
use super::rail::{Mlx5Rail, Registration};
use super::reaper::Mlx5Reaper;
use crate::config::PathConfig;
use crate::fabric::PortRecord;
use crate::provider::shape::RailShape;
use crate::provider::{
    Cause, Chain, Completion, HostMemory, Lane, LocalRange, ProviderError, Reaper, Tag, Verb,
};
use crate::verbs::{Context, SendAttr, VerbsError};

/// The most completions that are taken at a time.
const REAP: usize = 64;
/// log2 of the receive WQEs of a QP. They are never used.
const LOG_RECEIVES: u8 = 4;

/// QPs without an engine, and the memory of both ends.
pub struct BareLanes {
    lanes: Vec<Mlx5Lane>,
    reaper: Mlx5Reaper,
    chain: Chain,
    found: Vec<Completion>,
    /// These fields are dropped in this order, after the lanes.
    _others: Vec<Mlx5Lane>,
    _pairs: Vec<Pair>,
    keys: [Registration; 2],
    _rails: [Mlx5Rail; 2],
}

/// A WRITE of `BareLanes`.
#[derive(Clone, Copy, Debug)]
pub struct BareWrite {
    /// Address of the first byte at this end.
    pub local: u64,
    /// Address of the first byte at the other end.
    pub remote: u64,
    /// Number of bytes.
    pub bytes: u32,
}

impl BareLanes {
    /// Makes `qps` QPs of `1 << log_depth` WQEBBs from the first to the second of two open devices. The WQEs of WRITEs of at most `inline`
    /// bytes carry the bytes.
    ///
    /// # Errors
    /// An error of an HCA.
    pub fn new(
        contexts: [&Arc<Context>; 2],
        memories: [&Arc<HostMemory>; 2],
        qps: u32,
        log_depth: u8,
        inline: u32,
    ) -> Result<Self, ProviderError> {
        let shape = shape(qps, log_depth);
        let config = PathConfig::default();
        let [here, there] = contexts.map(|context| Mlx5Rail::new(context, &shape));
        let rails = [here?, there?];
        let [here, there] =
            [0, 1].map(|end: usize| PortRecord::of(contexts[end].own_port(), &config));
        let (here, there) = (here?, there?);
        let paths = [
            here.path(&there, &config, 0, 0),
            there.path(&here, &config, 0, 0),
        ];
        let (mut lanes, mut others, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
        for place in 0..qps {
            let [a, b] =
                [(0, 7), (1, 9)].map(|(end, psn): (usize, u32)| rails[end].pair(0, place, psn));
            let (a, b) = (a?, b?);
            let offers = (a.offer(), b.offer());
            let (Some(to_a), Some(to_b)) = offers else {
                return Err(VerbsError::argument("state of a new QP", "connected", "Init").into());
            };
            let a = a.receive(&paths[0], to_b)?;
            let b = b.receive(&paths[1], to_a)?;
            let attr = SendAttr::new(0).with_timeout(17);
            for (pair, lanes) in [(a, &mut lanes), (b, &mut others)] {
                let (pair, lane) = pair.send(&attr).map_err(|(_, error)| error)?;
                lanes.extend(lane.map(|lane| lane.with_inline(inline)));
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

    /// Posts all `writes` to the QPs in turn, up to `chain` of them for each doorbell, and takes their completions.
    ///
    /// # Errors
    /// The cause of the first WRITE that has failed. After it the QPs take no more WQEs.
    pub fn run(&mut self, writes: &[BareWrite], chain: usize) -> Result<(), Cause> {
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
            }
            self.reaper.reap(&mut self.found, REAP);
            if self.found.is_empty() {
                thread::yield_now();
            }
            for completion in self.found.drain(..) {
                let is_of = |lane: &&mut Mlx5Lane| lane.number() == completion.lane;
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
fn shape(qps: u32, log_depth: u8) -> RailShape {
    let log_qps = u8::try_from(qps.next_power_of_two().ilog2()).unwrap_or(u8::MAX);
    RailShape {
        log_depth,
        log_receives: LOG_RECEIVES,
        log_entries: log_depth.saturating_add(log_qps),
        workers: 1,
        shares_cqs: false,
        pkey: None,
        lag_port: 0,
        ranges: 4,
        inline: 0,
    }
}
