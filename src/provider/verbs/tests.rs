//! Tests of lanes on a software HCA, which libibverbs and its libmlx5 drive without DevX.

use std::sync::Arc;
use std::time::{Duration, Instant};

use softhca::Hca;

use super::{VerbsLane, VerbsPair, VerbsRail, VerbsReaper, VerbsRegistration};
use crate::config::{GidChoice, PathConfig};
use crate::fabric::PortRecord;
use crate::provider::mlx5::Mlx5Rail;
use crate::provider::rc::RcOffer;
use crate::provider::shape::RailShape;
use crate::provider::{
    AnyMemory, Cause, Chain, Completed, Completion, HostMemory, Lane, LocalRange, Posted,
    ProviderError, Reaper, Stop, Tag, Verb, Wake,
};
use crate::verbs::{Access, Context, DeviceSelector, KeyRange, PlainContext, SendAttr, VerbsError};

/// A bound on waits: no test takes so long.
const HANG: Duration = Duration::from_secs(60);

/// Two QPs of one HCA that are each other's peer. One end posts.
struct Rig {
    lane: VerbsLane,
    reaper: VerbsReaper,
    other: VerbsLane,
    pairs: [VerbsPair; 2],
    memory: Arc<HostMemory>,
    keys: VerbsRegistration,
    rail: VerbsRail,
    _hca: Hca,
}

const BYTES: u64 = 1 << 16;
/// log2 of the receive WQEs of a QP.
const LOG_RECEIVES: u8 = 4;
const RECEIVES: u32 = 1 << LOG_RECEIVES;

fn shape(log_depth: u8) -> RailShape {
    RailShape {
        log_depth,
        log_receives: LOG_RECEIVES,
        log_entries: log_depth + 1,
        workers: 1,
        shares_cqs: false,
        pkey: None,
        lag_port: 0,
        ranges: 4,
        inline: 28,
    }
}

fn open(hca: &Hca) -> Arc<PlainContext> {
    PlainContext::open(hca.name(), None, &GidChoice::Auto).unwrap()
}

/// Two QPs that are each other's peer, and their lanes, which carry no bytes inline.
fn connected(rail: &VerbsRail) -> ([VerbsPair; 2], [VerbsLane; 2]) {
    let config = PathConfig::default();
    let port = PortRecord::of(rail.context().own_port(), &config).unwrap();
    let path = port.path(&port, &config, 0, 0);
    let [a, b] = [7, 9].map(|psn| rail.pair(0, psn).unwrap());
    let [to_a, to_b] = [&a, &b].map(|pair| pair.offer().unwrap());
    let a = a.receive(&path, &to_b).unwrap();
    let b = b.receive(&path, &to_a).unwrap();
    let attr = SendAttr::new(0).with_timeout(17);
    let (a, lane) = a.send(&attr).unwrap();
    let (b, other) = b.send(&attr).unwrap();
    (
        [a, b],
        [lane, other].map(|lane| lane.unwrap().with_inline(0)),
    )
}

impl Rig {
    fn new(log_depth: u8) -> Self {
        let hca = Hca::new().unwrap();
        let rail = VerbsRail::new(&open(&hca), &shape(log_depth)).unwrap();
        let (pairs, [lane, other]) = connected(&rail);
        let memory = Arc::new(HostMemory::new(BYTES).unwrap());
        Self {
            lane,
            reaper: rail.reaper(0).unwrap(),
            other,
            pairs,
            keys: rail.register(&AnyMemory::from(&memory)).unwrap(),
            memory,
            rail,
            _hca: hca,
        }
    }

    /// Returns a chain of `count` WQEs of 8 bytes from the first half to the second, over `ranges` ranges each. Their tags count from
    /// `tag`.
    fn chain(&self, count: u32, ranges: u32, tag: u32, rkey: u32) -> Chain {
        let mut chain = Chain::default();
        for nth in tag..tag + count {
            let at = u64::from(nth % 64) * 256;
            let to = (self.memory.address() + BYTES / 2 + at, rkey);
            let tag = Tag {
                slot: 0,
                slice: nth,
            };
            let range = |range| LocalRange {
                address: self.memory.address() + at + 16 * u64::from(range),
                key: self.keys.lkey(),
                bytes: 8,
            };
            chain.push(Verb::Write, tag, to.0, to.1, (0..ranges).map(range));
        }
        chain
    }

    /// Reaps until all WQEs are accounted for. Returns the slices in their order, with the cause of each that failed.
    fn settle(&mut self) -> Vec<(u32, Option<Cause>)> {
        let (mut found, mut all) = (Vec::<Completion>::new(), Vec::new());
        let wake = Wake::new().unwrap();
        let end = Instant::now() + HANG;
        while self.lane.in_flight() > 0 {
            assert!(Instant::now() < end, "{} left", self.lane.in_flight());
            self.reaper.reap(&mut found, 16);
            if found.is_empty() {
                wake.begin();
                self.reaper.sleep(&wake, Some(HANG)).unwrap();
                wake.end();
            }
            for completion in found.drain(..) {
                assert_eq!(completion.lane, self.lane.number());
                self.lane
                    .retire(&completion, |tag, cause| all.push((tag.slice, cause)));
            }
        }
        all
    }
}

fn done(slices: std::ops::Range<u32>) -> Vec<(u32, Option<Cause>)> {
    slices.map(|slice| (slice, None)).collect()
}

#[test]
fn a_lane_moves_bytes_and_goes_on_behind_index_65536() {
    let mut rig = Rig::new(8);
    let rkey = rig.keys.rkey();
    let mut tag = 0u32;
    // 500 rounds of 100 and 50 WQEs, of one range and of three, pass index 65536.
    for round in 0..500u32 {
        let value = u64::from(round) << 32 | 0x5eed;
        for at in 0..64 {
            rig.memory.write(at * 256, &value.to_le_bytes()).unwrap();
        }
        for (count, ranges) in [(100, 1), (50, 3)] {
            let chain = rig.chain(count, ranges, tag, rkey);
            let posted = rig.lane.post(&chain, 0..chain.len());
            assert_eq!((posted.count, posted.stop), (count as usize, None));
            rig.lane.ring();
            assert_eq!(rig.settle(), done(tag..tag + count), "round {round}");
            tag += count;
        }
        let mut there = [0; 8];
        rig.memory.read(BYTES / 2 + 256, &mut there).unwrap();
        assert_eq!(u64::from_le_bytes(there), value, "round {round}");
    }
    assert!(tag > 65_536, "the index has not wrapped: {tag} WQEs");
}

#[test]
fn a_write_of_few_bytes_is_carried_and_a_read_never_is() {
    for inline in [0, 23, 24, 28, u32::MAX] {
        let mut rig = Rig::new(8);
        let ([_a, _b], [_, _other]) = connected(&rig.rail);
        let (pairs, lane) = with_inline(&rig.rail, inline);
        rig.lane = lane;
        let rkey = rig.keys.rkey();
        for at in 0..64 {
            rig.memory.write(at * 8, &at.to_le_bytes()).unwrap();
        }
        // The WQE has three ranges of 8 bytes.
        let chain = rig.chain(1, 3, 0, rkey);
        assert_eq!(rig.lane.post(&chain, 0..chain.len()).count, 1);
        rig.lane.ring();
        assert_eq!(rig.settle(), done(0..1));
        for word in 0..3 {
            let mut there = [0; 8];
            rig.memory.read(BYTES / 2 + 8 * word, &mut there).unwrap();
            assert_eq!(u64::from_le_bytes(there), 2 * word, "{inline}");
        }
        let mut chain = Chain::default();
        let to = rig.memory.address() + BYTES / 2 + 8;
        let range = LocalRange {
            address: rig.memory.address() + BYTES / 4,
            key: rig.keys.lkey(),
            bytes: 8,
        };
        chain.push(Verb::Read, Tag::default(), to, rkey, [range]);
        assert_eq!(rig.lane.post(&chain, 0..chain.len()).count, 1);
        rig.lane.ring();
        assert_eq!(rig.settle(), done(0..1));
        let mut here = [0; 8];
        rig.memory.read(BYTES / 4, &mut here).unwrap();
        assert_eq!(u64::from_le_bytes(here), 2);
        drop(pairs);
    }
}

/// Returns two more connected QPs, and a lane whose WQEs carry up to `most` bytes.
fn with_inline(rail: &VerbsRail, most: u32) -> ([VerbsPair; 2], VerbsLane) {
    let config = PathConfig::default();
    let port = PortRecord::of(rail.context().own_port(), &config).unwrap();
    let path = port.path(&port, &config, 0, 0);
    let [a, b] = [17, 19].map(|psn| rail.pair(0, psn).unwrap());
    let [to_a, to_b] = [&a, &b].map(|pair| pair.offer().unwrap());
    let a = a.receive(&path, &to_b).unwrap();
    let b = b.receive(&path, &to_a).unwrap();
    let attr = SendAttr::new(0).with_timeout(17);
    let (a, lane) = a.send(&attr).unwrap();
    let (b, _) = b.send(&attr).unwrap();
    ([a, b], lane.unwrap().with_inline(most))
}

#[test]
fn a_full_lane_takes_a_prefix_and_the_rest_later() {
    let mut rig = Rig::new(8);
    let rkey = rig.keys.rkey();
    assert_eq!((rig.lane.room(1), rig.lane.room(4)), (256, 256));
    let chain = rig.chain(300, 1, 0, rkey);
    let first = rig.lane.post(&chain, 0..chain.len());
    let stop = Some(Stop::Full);
    assert_eq!(first, Posted { count: 256, stop });
    assert_eq!(rig.lane.room(1), 0);
    let none = rig.lane.post(&chain, 256..chain.len());
    assert_eq!(none, Posted { count: 0, stop });
    rig.lane.ring();
    assert_eq!(rig.settle(), done(0..256));
    let rest = rig.lane.post(&chain, 256..chain.len());
    let stop = None;
    assert_eq!(rest, Posted { count: 44, stop });
    rig.lane.ring();
    assert_eq!(rig.settle(), done(256..300));
}

#[test]
fn in_error_every_wqe_is_accounted_for_signalled_or_not() {
    let mut rig = Rig::new(8);
    let rkey = rig.keys.rkey();
    // A chain of 5 good WQEs, one with an unknown key, and 6 more. Only the last is signalled.
    let mut chain = rig.chain(5, 1, 0, rkey);
    let range = LocalRange {
        address: rig.memory.address(),
        key: rig.keys.lkey(),
        bytes: 8,
    };
    let tag = |slice| Tag { slot: 0, slice };
    let to = rig.memory.address() + BYTES / 2;
    chain.push(Verb::Write, tag(5), to, 0xdead_beef, [range]);
    for slice in 6..12 {
        chain.push(Verb::Write, tag(slice), to, rkey, [range]);
    }
    assert_eq!(rig.lane.post(&chain, 0..chain.len()).count, 12);
    rig.lane.ring();
    let all = rig.settle();
    assert_eq!(all[..5], done(0..5));
    let (slice, cause) = all[5];
    // 0x13 is a remote access error.
    assert_eq!((slice, cause.unwrap().syndrome), (5, 0x13));
    for (slice, (found, cause)) in (6..12).zip(&all[6..]) {
        assert_eq!(*found, slice);
        assert!(cause.unwrap().is_flush(), "{slice}: {cause:?}");
    }
    assert_eq!(all.len(), 12);
    let refused = rig.lane.post(&chain, 0..chain.len());
    assert_eq!(
        refused,
        Posted {
            count: 0,
            stop: Some(Stop::Failed)
        }
    );
}

#[test]
fn a_qp_that_was_ended_is_used_again_with_the_end_of_its_lane() {
    let mut rig = Rig::new(8);
    let rkey = rig.keys.rkey();
    let Rig {
        pairs: [own, theirs],
        ..
    } = rig;
    own.end().unwrap();
    assert!(own.has_failed() && !theirs.has_failed());
    rig.pairs = [own, theirs];
    let chain = rig.chain(16, 1, 0, rkey);
    // The HCA takes no more WQEs of this QP: they complete in error all the same.
    assert_eq!(rig.lane.post(&chain, 0..chain.len()).count, 16);
    let all = rig.settle();
    assert_eq!(all.len(), 16);
    let is_flushed = |(_, cause): &(u32, Option<Cause>)| cause.is_some_and(Cause::is_flush);
    assert!(all.iter().all(is_flushed));
    let Rig {
        lane,
        other,
        pairs: [own, theirs],
        reaper,
        memory,
        keys,
        rail,
        _hca,
    } = rig;
    theirs.end().unwrap();
    let number = lane.number();
    drop((lane, other));
    let [own, theirs] = [own, theirs].map(|pair| pair.renew().unwrap());
    let [to_own, to_theirs] = [&own, &theirs].map(|pair| pair.offer().unwrap());
    assert_eq!((to_own.qpn, to_own.ece), (number, 0));
    assert!(to_own.psn.abs_diff(7) > 1 << 16, "{to_own:?}");
    let config = PathConfig::default();
    let port = PortRecord::of(rail.context().own_port(), &config).unwrap();
    let path = port.path(&port, &config, 0, 0);
    let attr = SendAttr::new(0).with_timeout(17);
    let own = own.receive(&path, &to_theirs).unwrap();
    let theirs = theirs.receive(&path, &to_own).unwrap();
    let (own, lane) = own.send(&attr).unwrap();
    let (theirs, other) = theirs.send(&attr).unwrap();
    let mut rig = Rig {
        lane: lane.unwrap(),
        other: other.unwrap(),
        pairs: [own, theirs],
        reaper,
        memory,
        keys,
        rail,
        _hca,
    };
    let chain = rig.chain(200, 2, 0, rkey);
    assert_eq!(rig.lane.post(&chain, 0..chain.len()).count, 200);
    assert_eq!(rig.settle(), done(0..200));
}

#[test]
fn a_qp_is_not_reset_before_its_lane_is_dropped() {
    let rig = Rig::new(8);
    let [own, _theirs] = rig.pairs;
    let refused = own.into_reset().unwrap_err().to_string();
    assert!(refused.contains("lanes of a QP that is reset"), "{refused}");
}

/// Returns the number of CQs.
fn cqs(hca: &Hca) -> usize {
    hca.live_objects().cq
}

#[test]
fn qps_beyond_those_of_the_first_cq_get_more_cqs_which_stay() {
    let rig = Rig::new(8);
    // The first CQ has room for two QPs.
    assert_eq!(cqs(&rig._hca), 1);
    let mut further = Vec::new();
    // A new CQ has room for as many QPs as the NIC has already.
    for (qps, expected) in [(1, 2), (2, 2), (3, 3), (6, 3), (7, 4), (14, 4)] {
        while further.len() < qps {
            further.push(rig.rail.pair(0, 1).unwrap());
        }
        assert_eq!(cqs(&rig._hca), expected, "{qps} more QPs");
    }
    // New QPs take the places of those that have gone, whatever the order.
    for at in [0, 5, 9, 0, 2] {
        further.remove(at);
    }
    for _ in 0..5 {
        further.push(rig.rail.pair(0, 1).unwrap());
    }
    further.clear();
    for _ in 0..14 {
        further.push(rig.rail.pair(0, 1).unwrap());
    }
    assert_eq!(cqs(&rig._hca), 4);
}

#[test]
fn a_reaper_takes_what_completes_in_cqs_that_were_made_behind_it() {
    let mut rig = Rig::new(8);
    let mut found = Vec::new();
    rig.reaper.reap(&mut found, 1);
    let (pairs, [lane, other]) = connected(&rig.rail);
    assert_eq!(cqs(&rig._hca), 2);
    let rkey = rig.keys.rkey();
    let run = |rig: &mut Rig| {
        // The reaper sleeps in between, so both CQs raise events in the one channel.
        for _ in 0..3 {
            let chain = rig.chain(20, 1, 0, rkey);
            assert_eq!(rig.lane.post(&chain, 0..chain.len()).count, 20);
            rig.lane.ring();
            assert_eq!(rig.settle(), done(0..20));
        }
    };
    run(&mut rig);
    let first = std::mem::replace(&mut rig.lane, lane);
    run(&mut rig);
    rig.lane = first;
    run(&mut rig);
    drop((pairs, other));
}

#[test]
fn no_event_is_lost_between_the_last_look_and_the_sleep() {
    let mut rig = Rig::new(8);
    let rkey = rig.keys.rkey();
    // Each WQE completes near the time at which the reaper goes to sleep.
    for nth in 0..2000 {
        let chain = rig.chain(1, 1, nth, rkey);
        assert_eq!(rig.lane.post(&chain, 0..1).count, 1);
        for _ in 0..nth % 50 * 20 {
            std::hint::spin_loop();
        }
        assert_eq!(rig.settle(), done(nth..nth + 1));
    }
}

#[test]
fn a_key_names_its_range_by_addresses_of_its_own_and_ends() {
    let mut rig = Rig::new(8);
    let regions = |rig: &Rig| rig._hca.live_objects().mr;
    let before = regions(&rig);
    let first = rig.memory.address() + BYTES / 2 + 64;
    let range = KeyRange {
        lkey: rig.keys.lkey(),
        address: first,
        bytes: 128,
        named: (1 << 62) + first % 4096,
    };
    let write = |rig: &mut Rig, to: u64, key: u32| {
        let mut chain = Chain::default();
        let local = LocalRange {
            address: rig.memory.address(),
            key: rig.keys.lkey(),
            bytes: 8,
        };
        chain.push(Verb::Write, Tag::default(), to, key, [local]);
        assert_eq!(rig.lane.post(&chain, 0..1).count, 1);
        rig.settle()[0].1
    };
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let mut key = rig.rail.key(&range, access).unwrap();
    assert_eq!(regions(&rig), before + 1);
    rig.memory.write(0, &[7; 8]).unwrap();
    let rkey = key.rkey();
    assert_eq!(write(&mut rig, range.named + 120, rkey), None);
    let mut there = [0; 8];
    rig.memory.read(BYTES / 2 + 64 + 120, &mut there).unwrap();
    assert_eq!(there, [7; 8]);
    rig._hca.set_faults(&"cmd=DESTROY_MKEY".parse().unwrap());
    let kept = key.destroy();
    rig._hca.set_faults(&softhca::device::FaultSpec::default());
    if kept.is_err() {
        assert_eq!(regions(&rig), before + 1);
        key.destroy().unwrap();
    }
    assert_eq!(regions(&rig), before);
    // A second `destroy` does nothing, and neither does the drop.
    key.destroy().unwrap();
    drop(key);
    // By the addresses of the memory the key has never named anything, and now it names nothing.
    let refused = write(&mut rig, range.named + 120, rkey).unwrap();
    assert!(refused.is_of_the_request(), "{refused}");
    let other = KeyRange { lkey: 1, ..range };
    let unknown = rig.rail.key(&other, access).unwrap_err().to_string();
    assert!(unknown.contains("lkey of a range"), "{unknown}");
}

#[test]
fn a_registration_that_has_gone_takes_no_row_of_another() {
    let rig = Rig::new(8);
    let memory = Arc::new(HostMemory::new(BYTES).unwrap());
    let mut first = rig.rail.register(&AnyMemory::from(&memory)).unwrap();
    first.deregister().unwrap();
    let other = rig.rail.register(&AnyMemory::from(&memory)).unwrap();
    drop(first);
    let range = KeyRange {
        lkey: other.lkey(),
        address: memory.address(),
        bytes: BYTES,
        named: 1 << 62,
    };
    rig.rail.key(&range, Access::REMOTE_READ).unwrap();
}

#[test]
fn what_the_device_lacks_is_refused_with_value_and_limit() {
    let hca = Hca::new().unwrap();
    let context = open(&hca);
    let refused = |shape: &RailShape| match VerbsRail::new(&context, shape) {
        Err(ProviderError::Verbs(error)) => error,
        other => panic!("{other:?}"),
    };
    let shared = RailShape {
        shares_cqs: true,
        ..shape(8)
    };
    let text = refused(&shared).to_string();
    assert!(
        text.starts_with("WARPVERBS_ENGINE_CQ is nic; it must be worker"),
        "{text}"
    );
    let bond = RailShape {
        lag_port: 2,
        ..shape(8)
    };
    assert!(
        refused(&bond)
            .to_string()
            .starts_with("port of a bond is 2; ")
    );
    let most = context.limits().ranges;
    let wide = RailShape {
        ranges: most + 1,
        ..shape(8)
    };
    let rail = VerbsRail::new(&context, &wide).unwrap();
    let text = rail.pair(0, 1).unwrap_err().to_string();
    let expected = format!(
        "local ranges of a request is {}; it must be at most {most}",
        most + 1
    );
    assert!(text.starts_with(&expected), "{text}");
    let text = rail.pair(1, 1).unwrap_err().to_string();
    assert!(text.starts_with("number of a worker is 1; "), "{text}");
    let absent = PlainContext::open("nowhere_0", None, &GidChoice::Auto).unwrap_err();
    assert!(matches!(absent, VerbsError::NoDevice { .. }), "{absent}");
}

/// One end of a QP by DevX, and the other by libibverbs: the same numbers are all that they tell each other.
#[test]
fn a_qp_of_devx_and_one_of_verbs_are_peers() {
    let mut rig = Rig::new(8);
    let name = DeviceSelector::Name(rig._hca.name().to_owned());
    let context = Context::open(&name).unwrap();
    let devx = Mlx5Rail::new(&context, &shape(8)).unwrap();
    let config = PathConfig::default();
    let port = PortRecord::of(rig.rail.context().own_port(), &config).unwrap();
    assert_eq!(port, PortRecord::of(context.own_port(), &config).unwrap());
    let path = port.path(&port, &config, 0, 0);
    let (a, b) = (rig.rail.pair(0, 7).unwrap(), devx.pair(0, 0, 9).unwrap());
    let to_a: RcOffer = a.offer().unwrap();
    let a = a.receive(&path, &b.offer().unwrap()).unwrap();
    let b = b.receive(&path, to_a).unwrap();
    let attr = SendAttr::new(0).with_timeout(17);
    let (a, lane) = a.send(&attr).unwrap();
    let (b, other) = b.send(&attr).unwrap();
    let theirs = devx.register(&AnyMemory::from(&rig.memory)).unwrap();
    rig.lane = lane.unwrap();
    let chain = rig.chain(200, 2, 0, theirs.rkey());
    assert_eq!(rig.lane.post(&chain, 0..chain.len()).count, 200);
    assert_eq!(rig.settle(), done(0..200));
    // The other way: the QP of DevX writes by a key of verbs.
    let (mut other, mut reaper) = (other.unwrap(), devx.reaper(0).unwrap());
    let mut chain = Chain::default();
    let range = LocalRange {
        address: rig.memory.address(),
        key: theirs.lkey(),
        bytes: 8,
    };
    let to = rig.memory.address() + BYTES / 2;
    rig.memory.write(0, &[9; 8]).unwrap();
    chain.push(Verb::Write, Tag::default(), to, rig.keys.rkey(), [range]);
    other.post(&chain, 0..1);
    other.ring();
    let (mut found, end) = (Vec::new(), Instant::now() + HANG);
    while found.is_empty() {
        assert!(Instant::now() < end);
        reaper.reap(&mut found, 1);
    }
    assert_eq!(found[0].cause, None);
    let mut there = [0; 8];
    rig.memory.read(BYTES / 2, &mut there).unwrap();
    assert_eq!(there, [9; 8]);
    drop((a, b));
}

impl Rig {
    /// Returns a chain of `count` WRITEs of 8 bytes, each with its number as immediate.
    fn counting(&self, count: u32) -> Chain {
        let mut chain = Chain::default();
        for nth in 0..count {
            let to = (self.memory.address() + BYTES / 2, self.keys.rkey());
            let range = LocalRange {
                address: self.memory.address(),
                key: self.keys.lkey(),
                bytes: 8,
            };
            let tag = Tag {
                slot: 0,
                slice: nth,
            };
            chain.push(Verb::WriteImmediate(nth), tag, to.0, to.1, [range]);
        }
        chain
    }

    /// Reaps until `is_over` returns true for what was sent and what was received.
    fn reap_until(
        &mut self,
        sent: &mut Vec<(u32, Option<Cause>)>,
        received: &mut Vec<Completion>,
        is_over: impl Fn(&[(u32, Option<Cause>)], &[Completion]) -> bool,
    ) {
        let mut found = Vec::new();
        let wake = Wake::new().unwrap();
        let end = Instant::now() + HANG;
        while !is_over(sent, received) {
            assert!(
                Instant::now() < end,
                "{} sent, {} received",
                sent.len(),
                received.len()
            );
            self.reaper.reap(&mut found, 16);
            if found.is_empty() {
                wake.begin();
                self.reaper.sleep(&wake, Some(HANG)).unwrap();
                wake.end();
            }
            for completion in found.drain(..) {
                match completion.what {
                    Completed::Sends => self
                        .lane
                        .retire(&completion, |tag, cause| sent.push((tag.slice, cause))),
                    Completed::Receive(_) => received.push(completion),
                    Completed::Send => panic!("a QP of type RC completes in order"),
                }
            }
        }
    }
}

#[test]
fn a_write_that_meets_no_receive_wqe_waits_for_one_and_none_is_lost() {
    let mut rig = Rig::new(8);
    let chain = rig.counting(100);
    assert_eq!(rig.lane.post(&chain, 0..chain.len()).count, 100);
    rig.lane.ring();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    // The other end has not opened its lane: it has no receive WQE.
    std::thread::sleep(Duration::from_millis(5));
    rig.reaper.reap(&mut received, 16);
    assert!(received.is_empty(), "{received:?}");
    rig.other.open();
    assert_eq!(rig.other.receives(), RECEIVES);
    rig.reap_until(&mut sent, &mut received, |_, received| {
        received.len() == RECEIVES as usize
    });
    // The other end has not posted any receive WQE again, so its HCA has no more.
    rig.reaper.reap(&mut received, 32);
    assert_eq!(received.len(), RECEIVES as usize);
    assert_eq!(rig.lane.in_flight(), 100);
    let mut all = 0;
    while all < 100 {
        for completion in received.drain(..) {
            assert_eq!(completion.what, Completed::Receive(Some(all)));
            assert_eq!(
                (completion.lane, completion.cause),
                (rig.other.number(), None)
            );
            rig.other.receive(&completion);
            all += 1;
        }
        rig.reap_until(&mut sent, &mut received, |_, received| {
            all == 100 || !received.is_empty()
        });
    }
    rig.reap_until(&mut sent, &mut received, |sent, _| sent.len() == 100);
    assert_eq!(sent, done(0..100));
    assert_eq!(rig.other.receives(), RECEIVES);
}

#[test]
fn in_error_every_receive_wqe_is_accounted_for_behind_what_has_come() {
    let mut rig = Rig::new(8);
    rig.other.open();
    let chain = rig.counting(5);
    rig.lane.post(&chain, 0..chain.len());
    rig.lane.ring();
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    rig.reap_until(&mut sent, &mut received, |sent, received| {
        sent.len() == 5 && received.len() == 5
    });
    rig.pairs[1].end().unwrap();
    // The other end has not noticed the error, and posts after it.
    for completion in received.drain(..) {
        rig.other.receive(&completion);
    }
    assert!(!rig.other.flush(None), "only the HCA can");
    rig.reap_until(&mut sent, &mut received, |_, received| {
        received.len() == RECEIVES as usize
    });
    for completion in received.drain(..) {
        assert_eq!(completion.what, Completed::Receive(None));
        assert!(completion.cause.is_some_and(Cause::is_flush));
        rig.other.receive(&completion);
    }
    assert_eq!(rig.other.receives(), 0);
    // A CQE that the device repeats names no WQE that is under way.
    let again = Completion {
        lane: rig.other.number(),
        what: Completed::Receive(Some(0)),
        index: 3,
        cause: None,
    };
    rig.other.receive(&again);
    assert_eq!(rig.other.receives(), 0);
}
