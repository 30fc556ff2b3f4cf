//! The NICs of an engine, its rails: which worker serves which, and the keys that a registration has on each.
//!
//! Every region is registered on every rail. Lane `n` of a connection leaves by rail `n` modulo the rails here, and enters by rail
//! `n` modulo the rails at the peer. If an end asks for rails near the memory, all rails of both ends meet instead. The QPs of a
//! rail complete at the workers of that rail alone. A worker pulls slices when it has room, so a slow rail takes fewer.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::engine::error::{EngineError, HostError};
use crate::engine::ledger::tally::SliceCounts;
use crate::engine::limits::MOST_RAILS;
use crate::engine::route::crossing::{Crossing, NO_RAIL};
use crate::engine::route::rest::Rest;
use crate::provider::mlx5::{Mlx5Rail, Mlx5Reaper, RailShape, Registration};
use crate::provider::{AnyMemory, ProviderError};
use crate::verbs::{Access, Context, KeyRange, RangeKey, VerbsError};

/// Keys of one range of memory, by rail of the engine that has the memory. 0 where it has no such rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailKeys {
    keys: [u32; MOST_RAILS],
    near: u8,
    is_of_gpu: bool,
}

const _: () = assert!(MOST_RAILS == u8::BITS as usize);

/// What a rail of an engine has done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RailStatus {
    /// Its RDMA device.
    pub device: String,
    /// The port of it, from 1 on.
    pub port: u8,
    /// Whether its QPs are connected.
    pub state: RailState,
    /// How often it was given a rest, since its QPs failed.
    pub rests: u64,
    /// What its workers have done with slices by its QPs.
    pub slices: SliceCounts,
}

/// Whether QPs of a rail that have failed are connected again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RailState {
    /// They are.
    #[default]
    Works,
    /// It has failed often: none is while another rail carries slices.
    Rests,
    /// It has rested: one of its QPs is connected, and the others if that one does not fail.
    Probes,
}

impl fmt::Display for RailState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Works => "works",
            Self::Rests => "rests",
            Self::Probes => "probes",
        })
    }
}

/// The NICs of an engine.
#[derive(Debug)]
pub(in crate::engine) struct Rails {
    rails: Vec<Mlx5Rail>,
    /// Of each rail.
    workers: u32,
    rests: Mutex<Vec<Rest>>,
}

/// Memory that every rail has.
#[derive(Debug)]
pub(in crate::engine) struct Registrations {
    /// By rail; those that are gone are left out from the end on.
    registrations: Vec<Registration>,
    keys: [RailKeys; 2],
}

/// A range of memory of this side for which keys are made.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct GrantedRange {
    pub(in crate::engine) lkeys: RailKeys,
    pub(in crate::engine) address: u64,
    pub(in crate::engine) bytes: u64,
    /// By which peers name the first byte.
    pub(in crate::engine) named: u64,
}

/// Why memory is still registered.
#[derive(Debug)]
pub(in crate::engine) struct Kept {
    pub(in crate::engine) error: VerbsError,
    /// No rail has lost it.
    pub(in crate::engine) is_whole: bool,
}

impl RailKeys {
    /// All of them.
    #[must_use]
    pub const fn all(&self) -> &[u32; MOST_RAILS] {
        &self.keys
    }

    /// A bit for each rail that is near the memory; 0: that is not known.
    #[must_use]
    pub const fn near(&self) -> u8 {
        self.near
    }

    /// The same, where these rails are near the memory.
    #[must_use]
    pub const fn with_near(self, near: u8) -> Self {
        Self { near, ..self }
    }

    /// Returns whether the memory is a GPU's: no thread of a process copies it.
    #[must_use]
    pub const fn is_of_gpu(&self) -> bool {
        self.is_of_gpu
    }

    /// The same, of memory of a GPU or of the host.
    #[must_use]
    pub const fn with_gpu(self, is_of_gpu: bool) -> Self {
        Self { is_of_gpu, ..self }
    }

    /// That of a rail.
    #[must_use]
    pub fn of(&self, rail: usize) -> u32 {
        self.keys.get(rail).copied().unwrap_or(0)
    }
}

impl From<[u32; MOST_RAILS]> for RailKeys {
    fn from(keys: [u32; MOST_RAILS]) -> Self {
        Self {
            keys,
            near: 0,
            is_of_gpu: false,
        }
    }
}

/// Those of the first rails, in their order.
impl FromIterator<u32> for RailKeys {
    fn from_iter<I: IntoIterator<Item = u32>>(keys: I) -> Self {
        let mut all = [0; MOST_RAILS];
        for (place, key) in all.iter_mut().zip(keys) {
            *place = key;
        }
        all.into()
    }
}

impl Crossing {
    /// What speaks against a lane with this crossing, for a slice that has failed by those of `failed`. At most one rail of each end may
    /// be dead: first how many such pairs of rails, of those by which the slice has been, explain all failures and concern this
    /// lane; then how many rails it shares with those lanes.
    pub(in crate::engine) fn doubts(self, failed: &[Self]) -> (usize, usize) {
        let tried = |rail: fn(&Self) -> usize| {
            let rails = (0..=NO_RAIL).filter(move |it| failed.iter().any(|lane| rail(lane) == *it));
            rails.map(Some).chain([None])
        };
        let pairs = tried(|it| it.own)
            .flat_map(|own| tried(|it| it.theirs).map(move |theirs| (own, theirs)));
        let explains = |pair: &(Option<usize>, Option<usize>)| {
            failed.iter().all(|lane| lane.goes_by(*pair)) && self.goes_by(*pair)
        };
        let shares = |lane: &Self| {
            let (own, theirs) = (Some(lane.own), Some(lane.theirs));
            let rails =
                [(own, None), (None, theirs)].map(|rail| self.goes_by(rail) && lane.goes_by(rail));
            rails.into_iter().filter(|is_shared| *is_shared).count() + usize::from(self == *lane)
        };
        (
            pairs.filter(explains).count(),
            failed.iter().map(shares).sum(),
        )
    }

    /// Returns whether the lane leaves by the one rail or enters by the other. Copies enter by none.
    fn goes_by(self, (own, theirs): (Option<usize>, Option<usize>)) -> bool {
        own == Some(self.own) || self.own != NO_RAIL && theirs == Some(self.theirs)
    }

    /// That of lane `lane` between engines with so many rails.
    pub(in crate::engine) fn of_lane(lane: usize, (own, theirs): (usize, usize)) -> Self {
        Self {
            own: lane % own.max(1),
            theirs: lane % theirs.max(1),
        }
    }

    /// As [`Crossing::of_lane`], if all rails of one end meet all rails of the other, as far as lanes suffice. Both ends compute
    /// the same: `is_first` is the end that has connected.
    pub(in crate::engine) fn of_near_lane(
        lane: usize,
        (own, theirs): (usize, usize),
        is_first: bool,
    ) -> Self {
        let (firsts, seconds) = match is_first {
            true => (own.max(1), theirs.max(1)),
            false => (theirs.max(1), own.max(1)),
        };
        let first = lane % firsts;
        let second = (first + lane / firsts) % seconds;
        match is_first {
            true => Self {
                own: first,
                theirs: second,
            },
            false => Self {
                own: second,
                theirs: first,
            },
        }
    }
}

impl Rails {
    /// What an engine has on each of these devices, with `shape.workers` workers for each.
    pub(in crate::engine) fn new(
        contexts: &[Arc<Context>],
        shape: &RailShape,
    ) -> Result<Self, HostError> {
        let count = contexts.len();
        if !(1..=MOST_RAILS).contains(&count) {
            return Err(EngineError::Devices { count }.into());
        }
        let mut ports = HashSet::new();
        for context in contexts {
            let name = &context.info().name;
            if !ports.insert((name, context.port().number)) {
                let name = name.clone();
                return Err(EngineError::SameDevice { name }.into());
            }
        }
        let rails = contexts.iter();
        let rails = rails.map(|context| Mlx5Rail::new(context, shape));
        Ok(Self {
            rails: rails.collect::<Result<_, _>>()?,
            workers: shape.workers,
            rests: Mutex::new(vec![Rest::default(); count]),
        })
    }

    pub(in crate::engine) fn all(&self) -> &[Mlx5Rail] {
        &self.rails
    }

    /// The device of a rail.
    pub(in crate::engine) fn name(&self, rail: usize) -> Option<String> {
        let rail = self.rails.get(rail)?;
        Some(rail.context().info().name.clone())
    }

    /// Where the lanes of each worker complete, by worker.
    pub(in crate::engine) fn reapers(&self) -> Vec<Mlx5Reaper> {
        let rails = self.rails.iter();
        let all =
            rails.flat_map(|rail| (0..self.workers as usize).filter_map(|nth| rail.reaper(nth)));
        all.collect()
    }

    /// Workers of all rails.
    pub(in crate::engine) fn workers(&self) -> u32 {
        self.workers * u32::try_from(self.rails.len()).unwrap_or(1)
    }

    /// Those of one rail.
    pub(in crate::engine) fn workers_of(&self, rail: usize) -> Range<u32> {
        let rail = u32::try_from(rail).unwrap_or(u32::MAX);
        let first = self.workers.saturating_mul(rail);
        first..first.saturating_add(self.workers)
    }

    /// Which worker of its rail has a lane.
    pub(in crate::engine) fn place_of(&self, lane: usize) -> usize {
        lane / self.rails.len() % self.workers as usize
    }

    /// Which worker has a lane that leaves by this rail.
    pub(in crate::engine) fn worker_of(&self, lane: usize, rail: usize) -> u32 {
        let worker = rail * self.workers as usize + self.place_of(lane);
        u32::try_from(worker).unwrap_or(0)
    }

    /// Registers all of `memory` on every rail, or on none.
    pub(in crate::engine) fn register(
        &self,
        memory: &AnyMemory,
    ) -> Result<Registrations, ProviderError> {
        let all = self.rails.iter().map(|rail| rail.register(memory));
        let registrations = all.collect::<Result<Vec<_>, _>>()?;
        let keys = [Registration::lkey, Registration::rkey];
        let near = self.near(memory);
        let keys = keys.map(|key| {
            let keys: RailKeys = registrations.iter().map(key).collect();
            keys.with_near(near).with_gpu(memory.gpu().is_some())
        });
        Ok(Registrations {
            registrations,
            keys,
        })
    }

    /// Refuses a region of more bytes than some rail takes.
    pub(in crate::engine) fn check_bytes(&self, bytes: u64) -> Result<(), EngineError> {
        for rail in &self.rails {
            let context = rail.context();
            let most = context.caps().max_mr_size();
            if bytes > most {
                let device = context.name().to_owned();
                return Err(EngineError::RegionBytes {
                    bytes,
                    most,
                    device,
                });
            }
        }
        Ok(())
    }

    /// A bit for each rail on the NUMA node of the memory, as far as the system says both.
    fn near(&self, memory: &AnyMemory) -> u8 {
        let nodes = self.rails.iter();
        let nodes = nodes.map(|rail| rail.context().info().numa_node());
        near(memory.numa_node(), nodes)
    }

    /// A key for peers over part of a registration, by one command of each rail.
    pub(in crate::engine) fn keys(
        &self,
        range: &GrantedRange,
        access: Access,
        tag: u8,
    ) -> Result<Vec<RangeKey>, VerbsError> {
        let keys = self.rails.iter().enumerate().map(|(nth, rail)| {
            let range = KeyRange {
                lkey: range.lkeys.of(nth),
                address: range.address,
                bytes: range.bytes,
                named: range.named,
            };
            rail.key(&range, access, tag)
        });
        keys.collect()
    }

    /// What is known of the failures of a rail, under the lock.
    pub(in crate::engine) fn rest<T>(
        &self,
        rail: usize,
        look: impl FnOnce(&mut Rest, Instant) -> T,
    ) -> Option<T> {
        // Each change is whole.
        let mut rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        rests.get_mut(rail).map(|rest| look(rest, Instant::now()))
    }
}

impl Registrations {
    pub(in crate::engine) fn lkeys(&self) -> RailKeys {
        self.keys[0]
    }

    pub(in crate::engine) fn rkeys(&self) -> RailKeys {
        self.keys[1]
    }

    /// How each rail has the memory, and which ways it refused.
    pub(in crate::engine) fn ways(&self) -> Vec<String> {
        let ways = self.registrations.iter().map(|it| it.export().to_string());
        ways.collect()
    }

    /// Takes the keys of all rails away. It can be called again after it has failed.
    pub(in crate::engine) fn deregister(&mut self) -> Result<(), Kept> {
        let whole = self.registrations.len();
        while let Some(last) = self.registrations.last_mut() {
            if let Err(error) = last.deregister() {
                let is_whole = self.registrations.len() == whole;
                return Err(Kept { error, is_whole });
            }
            self.registrations.pop();
        }
        Ok(())
    }
}

/// The number of a rail, unless it is none.
pub(in crate::engine) fn number_of(rail: usize) -> Option<u32> {
    let rail = u32::try_from(rail).ok()?;
    (rail as usize != NO_RAIL).then_some(rail)
}

/// A bit for each node that is that of the memory; none where that is not known.
fn near(memory: Option<u32>, nodes: impl Iterator<Item = Option<u32>>) -> u8 {
    let all = (0..MOST_RAILS).zip(nodes);
    let near = all.filter(|(_, node)| node.is_some() && *node == memory);
    near.fold(0, |all, (rail, _)| all | 1 << rail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::limits::MOST_QPS;

    #[test]
    fn where_an_end_asks_for_near_rails_all_of_both_ends_meet() {
        for (own, theirs) in [(1, 1), (2, 2), (2, 1), (1, 3), (2, 4), (4, 2)] {
            let lanes = |is_first, rails| -> Vec<(usize, usize)> {
                let lanes = 0..MOST_QPS;
                let lanes = lanes.map(|lane| Crossing::of_near_lane(lane, rails, is_first));
                lanes.map(|it| (it.own, it.theirs)).collect()
            };
            let here = lanes(true, (own, theirs));
            let there: Vec<_> = lanes(false, (theirs, own))
                .into_iter()
                .map(|(own, theirs)| (theirs, own))
                .collect();
            assert_eq!(here, there);
            let pairs: HashSet<_> = here.into_iter().collect();
            assert_eq!(pairs.len(), own * theirs);
        }
    }

    #[test]
    fn rails_are_near_where_both_nodes_are_known() {
        let nodes = [Some(0), Some(1), None, Some(1)];
        let of = |memory| near(memory, nodes.into_iter());
        assert_eq!(
            [of(Some(1)), of(Some(0)), of(Some(2)), of(None)],
            [0b1010, 1, 0, 0]
        );
    }

    #[test]
    fn lanes_go_round_the_rails_of_both_ends() {
        let crossings = |own, theirs| -> Vec<(usize, usize)> {
            let lanes = (0..4).map(|lane| Crossing::of_lane(lane, (own, theirs)));
            lanes.map(|it| (it.own, it.theirs)).collect()
        };
        assert_eq!(crossings(1, 1), [(0, 0); 4]);
        assert_eq!(crossings(2, 2), [(0, 0), (1, 1), (0, 0), (1, 1)]);
        assert_eq!(crossings(2, 1), [(0, 0), (1, 0), (0, 0), (1, 0)]);
        assert_eq!(crossings(2, 3), [(0, 0), (1, 1), (0, 2), (1, 0)]);
    }

    #[test]
    fn what_has_failed_speaks_against_lanes_by_the_same_rails() {
        let of = |own, theirs| Crossing { own, theirs };
        let copies = of(NO_RAIL, 0);
        let against = |lane: Crossing, failed: &[Crossing]| lane.doubts(failed);
        // One failure: either rail, or both.
        let failed = [of(0, 0)];
        let all = [of(1, 1), copies, of(0, 1), of(1, 0), of(0, 0)];
        let found = all.map(|lane| against(lane, &failed));
        assert_eq!(found, [(0, 0), (0, 0), (2, 1), (2, 1), (3, 3)]);
        // Two by one rail: it is that one.
        let failed = [of(0, 0), of(1, 0)];
        let found = [of(0, 1), of(1, 1), of(2, 0)].map(|lane| against(lane, &failed));
        assert_eq!(found, [(1, 1), (1, 1), (3, 2)]);
        assert_eq!(against(copies, &[copies]), (2, 2));
        // Nothing explains these: a lane has no rail in common with them, if there is one.
        let failed = [of(0, 0), of(1, 1), of(2, 2)];
        assert_eq!(
            [of(3, 3), of(3, 0)].map(|lane| against(lane, &failed)),
            [(0, 0), (0, 1)]
        );
    }

    #[test]
    fn a_rail_that_an_engine_lacks_has_key_0() {
        let keys = RailKeys::from_iter([7, 8]);
        assert_eq!([keys.of(0), keys.of(1), keys.of(2)], [7, 8, 0]);
        assert_eq!(keys.of(MOST_RAILS), 0);
        assert_eq!(RailKeys::from(*keys.all()), keys);
        assert_eq!(RailKeys::from_iter(1..100).of(MOST_RAILS - 1), 8);
    }
}
