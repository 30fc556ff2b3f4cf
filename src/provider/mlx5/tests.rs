//! Tests of WQEs against those of libmlx5, and of lanes on a software HCA.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_prm::wqe::WQEBB_BYTES;
use serde_json::Value;
use softhca::Hca;
use test_basics::pyverbs;

use super::pair::Pair;
use super::rail::{Mlx5Rail, Registration};
use super::wqe::{Payload, Wqe};
use super::{Mlx5Lane, Mlx5Reaper};
use crate::fabric::PortRecord;
use crate::provider::shape::RailShape;
use crate::provider::{
    AnyMemory, Cause, Chain, Completed, Completion, HostMemory, Lane, LocalRange, Posted, Reaper,
    Stop, Tag, Verb, Wake,
};
use crate::verbs::{Access, Context, DeviceSelector, KeyRange, SendAttr};

/// A bound on waits: no test takes so long.
const HANG: Duration = Duration::from_secs(60);

/// Returns the output of the program that posts by libmlx5.
fn posted_by_libmlx5() -> Value {
    let runtime = tempfile::tempdir().unwrap();
    let library = std::env::current_exe()
        .unwrap()
        .with_file_name("libsofthca.so");
    assert!(library.exists(), "{} was not built", library.display());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine/wqe_poster.py");
    let output = Command::new(pyverbs::PYTHON)
        .arg(script)
        .arg("mlx5_0")
        .env("LD_PRELOAD", library)
        .env("XDG_RUNTIME_DIR", runtime.path())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A post of `wqe_poster.py`: its verb, whether it is signalled, its offset at the peer, its local pieces, and whether the WQE carries
/// them.
type Post = (Verb, bool, u64, &'static [(u64, u32)], bool);

const POSTS: [Post; 8] = [
    (Verb::Write, true, 1024, &[(0, 64)], false),
    (Verb::Read, true, 2048, &[(64, 128)], false),
    (
        Verb::WriteImmediate(0x0102_0304),
        true,
        3072,
        &[(0, 32)],
        false,
    ),
    (Verb::Write, false, 1536, &[(0, 16), (32, 16)], false),
    (
        Verb::Write,
        true,
        1600,
        &[(0, 16), (32, 16), (256, 8)],
        false,
    ),
    (Verb::Write, false, 1700, &[(3, 28)], true),
    (Verb::Write, false, 1800, &[(1, 8), (37, 5)], true),
    (Verb::Write, true, 1900, &[(9, 1)], true),
];

/// Returns the byte that the memory of `wqe_poster.py` has at `at`.
fn content(at: u64) -> u8 {
    u8::try_from(at % 251).unwrap()
}

/// No field is masked: with the same QP, keys and addresses all bytes are equal.
#[test]
fn a_wqe_has_the_bytes_that_libmlx5_posts() {
    if !pyverbs::is_installed("WQEs beside those of libmlx5") {
        return;
    }
    let theirs = posted_by_libmlx5();
    let number = |name: &str| u32::try_from(theirs[name].as_u64().unwrap()).unwrap();
    let address = theirs["addr"].as_u64().unwrap();
    let statuses: Vec<u64> = serde_json::from_value(theirs["statuses"].clone()).unwrap();
    assert_eq!(statuses, [0; 6], "all of them were executed");
    let mut index = 0;
    for ((verb, is_signalled, offset, pieces, is_carried), wqe) in
        POSTS.iter().zip(theirs["wqes"].as_array().unwrap())
    {
        let ranges = pieces.iter().map(|(start, bytes)| LocalRange {
            address: address + start,
            key: number("lkey"),
            bytes: *bytes,
        });
        let mut chain = Chain::default();
        let (remote, key) = (address + offset, number("rkey"));
        chain.push(*verb, Tag::default(), remote, key, ranges);
        let (work, ranges) = chain.from(0).next().unwrap();
        let carried = pieces.iter().flat_map(|(first, bytes)| {
            let all = *first..first + u64::from(*bytes);
            all.map(content)
        });
        let carried: Vec<u8> = carried.collect();
        // libmlx5 does not write the memory after the last byte.
        let (payload, used) = if *is_carried {
            (Payload::Inline(&carried), 2 * 16 + 4 + carried.len())
        } else {
            (Payload::Ranges(ranges), (2 + ranges.len()) * 16)
        };
        let ours = Wqe::new(work, payload, number("qpn"), index, *is_signalled);
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let ours_hex: String = hex(&ours.bytes()[..used]);
        let theirs_hex = wqe.as_str().expect("libmlx5 has written it");
        assert_eq!(ours_hex, theirs_hex[..2 * used], "{verb:?} {pieces:?}");
        index += u16::try_from(ours.bytes().len() / WQEBB_BYTES).unwrap();
    }
}

/// Two QPs of one HCA that are each other's peer. One end posts.
struct Rig {
    lane: Mlx5Lane,
    reaper: Mlx5Reaper,
    other: Mlx5Lane,
    pairs: [Pair; 2],
    memory: Arc<HostMemory>,
    keys: Registration,
    rail: Mlx5Rail,
    _hca: Hca,
}

const BYTES: u64 = 1 << 16;

/// Two QPs that are each other's peer, and their lanes.
fn connected(rail: &Mlx5Rail) -> ([Pair; 2], [Mlx5Lane; 2]) {
    let config = crate::config::PathConfig::default();
    let port = PortRecord::of(rail.context().own_port(), &config).unwrap();
    let path = port.path(&port, &config, 0, 0);
    let [a, b] = [7, 9].map(|psn| rail.pair(0, 0, psn).unwrap());
    let [to_a, to_b] = [&a, &b].map(|pair| pair.offer().unwrap());
    let a = a.receive(&path, to_b).unwrap();
    let b = b.receive(&path, to_a).unwrap();
    let attr = SendAttr::new(0).with_timeout(17);
    let (a, lane) = a.send(&attr).unwrap();
    let (b, other) = b.send(&attr).unwrap();
    ([a, b], [lane, other].map(Option::unwrap))
}

impl Rig {
    fn new(log_depth: u8) -> Self {
        let hca = Hca::new().unwrap();
        let context = Context::open(&DeviceSelector::Name(hca.name().to_owned())).unwrap();
        let shape = RailShape {
            log_depth,
            log_receives: LOG_RECEIVES,
            log_entries: log_depth + 1,
            workers: 1,
            shares_cqs: false,
            pkey: None,
            lag_port: 0,
            ranges: 4,
            inline: 0,
        };
        let rail = Mlx5Rail::new(&context, &shape).unwrap();
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
    let (mut tag, mut wqebbs) = (0u32, 0u32);
    // WQEs of one and of two WQEBBs, in chains that wrap at the ring's end. 400 rounds of 100 + 2 * 50 WQEBBs pass index 65536.
    for round in 0..400u32 {
        let value = u64::from(round) << 32 | 0x5eed;
        for at in 0..64 {
            rig.memory.write(at * 256, &value.to_le_bytes()).unwrap();
        }
        for (count, ranges, each) in [(100, 1, 1), (50, 3, 2)] {
            let chain = rig.chain(count, ranges, tag, rkey);
            let posted = rig.lane.post(&chain, 0..chain.len());
            assert_eq!((posted.count, posted.stop), (count as usize, None));
            rig.lane.ring();
            assert_eq!(rig.settle(), done(tag..tag + count), "round {round}");
            (tag, wqebbs) = (tag + count, wqebbs + each * count);
        }
        let mut there = [0; 8];
        rig.memory.read(BYTES / 2 + 256, &mut there).unwrap();
        assert_eq!(u64::from_le_bytes(there), value, "round {round}");
    }
    assert!(
        wqebbs > 65_536,
        "the index has not wrapped: {wqebbs} WQEBBs"
    );
}

#[test]
fn a_write_of_few_bytes_is_carried_as_it_is_when_it_is_posted() {
    for (inline, expected) in [(0, 2u64), (23, 2), (24, 1), (28, 1), (u32::MAX, 1)] {
        let mut rig = Rig::new(8);
        let ([_a, _b], [lane, _other]) = connected(&rig.rail);
        rig.lane = lane.with_inline(inline);
        let rkey = rig.keys.rkey();
        let fill = |value: u64| {
            for at in 0..64 {
                rig.memory.write(at * 8, &value.to_le_bytes()).unwrap();
            }
        };
        fill(1);
        // Each WQE has three ranges of 8 bytes: five segments if it names them, four if it carries the bytes.
        let chain = rig.chain(1, 3, 0, rkey);
        assert_eq!(rig.lane.post(&chain, 0..chain.len()).count, 1);
        fill(2);
        rig.lane.ring();
        assert_eq!(rig.settle(), done(0..1));
        for word in 0..3 {
            let mut there = [0; 8];
            rig.memory.read(BYTES / 2 + 8 * word, &mut there).unwrap();
            assert_eq!(u64::from_le_bytes(there), expected, "{inline}: word {word}");
        }
        // The WQE of a READ of as many bytes does not carry them.
        let mut chain = Chain::default();
        let to = rig.memory.address() + BYTES / 2;
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
        assert_eq!(u64::from_le_bytes(here), expected);
    }
}

#[test]
fn carried_writes_leave_room_for_as_many_as_there_are_wqebbs() {
    let mut rig = Rig::new(8);
    let ([_a, _b], [lane, _other]) = connected(&rig.rail);
    rig.lane = lane.with_inline(28);
    let rkey = rig.keys.rkey();
    // Each WQE has three ranges, which take two WQEBBs if the WQE names them.
    let chain = rig.chain(300, 3, 0, rkey);
    assert_eq!(rig.lane.post(&chain, 0..chain.len()).count, 256);
    rig.lane.ring();
    assert_eq!(rig.settle(), done(0..256));
}

#[test]
fn a_full_lane_takes_a_prefix_and_the_rest_later() {
    let mut rig = Rig::new(8);
    let rkey = rig.keys.rkey();
    assert_eq!((rig.lane.room(1), rig.lane.room(4)), (256, 128));
    let chain = rig.chain(300, 1, 0, rkey);
    let first = rig.lane.post(&chain, 0..chain.len());
    assert_eq!(
        first,
        Posted {
            count: 256,
            stop: Some(Stop::Full)
        }
    );
    assert_eq!(rig.lane.room(1), 0);
    let none = rig.lane.post(&chain, 256..chain.len());
    assert_eq!(
        none,
        Posted {
            count: 0,
            stop: Some(Stop::Full)
        }
    );
    rig.lane.ring();
    assert_eq!(rig.settle(), done(0..256));
    let rest = rig.lane.post(&chain, 256..chain.len());
    assert_eq!(
        rest,
        Posted {
            count: 44,
            stop: None
        }
    );
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
fn an_ended_qp_flushes_its_chain_and_is_reset_with_the_end_of_its_lane() {
    let mut rig = Rig::new(8);
    let rkey = rig.keys.rkey();
    let chain = rig.chain(16, 1, 0, rkey);
    rig.lane.post(&chain, 0..chain.len());
    rig.pairs[0].end().unwrap();
    // The HCA takes no more WQEs of this QP: they complete in error all the same.
    rig.lane.ring();
    let all = rig.settle();
    assert_eq!(all.len(), 16);
    assert!(
        all.iter()
            .all(|(_, cause)| cause.is_some_and(Cause::is_flush))
    );
    let Rig {
        lane,
        pairs: [own, _],
        ..
    } = rig;
    let (own, error) = own.reset().unwrap_err();
    assert!(error.is_none(), "its lane is there: {error:?}");
    drop(lane);
    assert!(own.reset().is_ok());
}

/// Returns the number of CQs, for sends and for receives.
fn cqs(hca: &Hca) -> usize {
    hca.live_objects().cq
}

#[test]
fn qps_beyond_those_of_the_first_cq_get_more_cqs_which_stay() {
    let rig = Rig::new(8);
    // The first CQ for sends has 512 entries, which both QPs of 256 use up.
    assert_eq!(cqs(&rig._hca), 2);
    let first = rig.rail.bytes();
    let mut further = Vec::new();
    // A new piece has room for as many QPs as the NIC has already.
    for (qps, expected) in [(1, 4), (2, 4), (3, 6), (6, 6), (7, 8), (14, 8)] {
        while further.len() < qps {
            further.push(rig.rail.pair(0, 0, 1).unwrap());
        }
        assert_eq!(cqs(&rig._hca), expected, "{qps} more QPs");
    }
    let most = rig.rail.bytes();
    // Each piece has a few bytes more for its alignment.
    assert!((7 * first..=8 * first).contains(&most), "{most} of {first}");
    // New QPs take the places of those that have gone, whatever the order.
    for at in [0, 5, 9, 0, 2] {
        further.remove(at);
    }
    for _ in 0..5 {
        further.push(rig.rail.pair(0, 0, 1).unwrap());
    }
    further.clear();
    for _ in 0..14 {
        further.push(rig.rail.pair(0, 0, 1).unwrap());
    }
    assert_eq!((cqs(&rig._hca), rig.rail.bytes()), (8, most));
}

#[test]
fn a_reaper_takes_what_completes_in_cqs_that_were_made_behind_it() {
    let mut rig = Rig::new(8);
    let mut found = Vec::new();
    rig.reaper.reap(&mut found, 1);
    let (pairs, [lane, other]) = connected(&rig.rail);
    assert_eq!(cqs(&rig._hca), 4);
    let rkey = rig.keys.rkey();
    let run = |rig: &mut Rig| {
        // The reaper sleeps in between, so the CQs of either piece raise events in the one channel.
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
fn a_key_over_a_range_is_one_command_and_its_end_may_be_tried_again() {
    let rig = Rig::new(8);
    let range = KeyRange {
        lkey: rig.keys.lkey(),
        address: rig.memory.address() + 64,
        bytes: 128,
        named: 1 << 62,
    };
    let run = |count: usize| {
        let commands = rig._hca.recorded_commands();
        assert_eq!(commands.len(), count, "{commands:?}");
        rig._hca.record_commands();
    };
    rig._hca.record_commands();
    let before = rig._hca.live_objects().mkey;
    let mut key = rig.rail.key(&range, Access::REMOTE_READ, 3).unwrap();
    run(1);
    assert_eq!(key.rkey() & 0xff, 3);
    assert_eq!(rig._hca.live_objects().mkey, before + 1);
    rig._hca.set_faults(&"cmd=DESTROY_MKEY".parse().unwrap());
    key.destroy().unwrap_err();
    rig._hca.set_faults(&softhca::device::FaultSpec::default());
    run(1);
    assert_eq!(rig._hca.live_objects().mkey, before + 1);
    key.destroy().unwrap();
    run(1);
    assert_eq!(rig._hca.live_objects().mkey, before);
    // A second `destroy` does nothing, and neither does the drop.
    key.destroy().unwrap();
    drop(key);
    run(0);
}

/// log2 of the receive WQEs of a QP, as `Rig` has them.
const LOG_RECEIVES: u8 = 4;
const RECEIVES: u32 = 1 << LOG_RECEIVES;

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
                    Completed::Sends | Completed::Send => self
                        .lane
                        .retire(&completion, |tag, cause| sent.push((tag.slice, cause))),
                    Completed::Receive(_) => received.push(completion),
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
