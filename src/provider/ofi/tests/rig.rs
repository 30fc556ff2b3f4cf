//! Two rails of one process and lanes between them. Where the library is missing, or has no such provider, a test says what it leaves out.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use test_basics::limits::until;

use crate::provider::ofi::choice::find;
use crate::provider::ofi::library::Library;
use crate::provider::ofi::*;
use crate::provider::shape::RailShape;
use crate::provider::{
    AnyMemory, Cause, Chain, Completed, Completion, HostMemory, Lane, LocalRange, Reaper, Tag,
    Verb, Wake,
};

/// What names of providers begin with that are softofi's.
pub(super) const SOFT: &str = "softofi:";
/// Both kinds of NIC that softofi plays.
pub(super) const SOFT_PROFILES: [&str; 2] = [
    "softofi:profile=efa-direct,again=200,warmup=50",
    "softofi:profile=efa,again=200,warmup=50",
];
/// Bytes of the memory of each side.
pub(super) const BYTES: u64 = 1 << 20;
pub(super) const DEPTH: u32 = 64;

/// A rail, its only worker, and memory that is registered on it.
pub(super) struct Side {
    pub(super) rail: OfiRail,
    pub(super) reaper: Mutex<OfiReaper>,
    pub(super) memory: Arc<HostMemory>,
    pub(super) registration: OfiRegistration,
    pub(super) wake: Wake,
}

/// This side's end of a lane.
pub(super) struct End {
    pub(super) pair: OfiPair,
    pub(super) lane: OfiLane,
    pub(super) found: Vec<Completion>,
    /// What became of each slice.
    pub(super) done: BTreeMap<u32, Option<Cause>>,
    /// The counters at which the peer has counted.
    pub(super) counted: Vec<u32>,
    pub(super) next: u32,
}

/// What one WQE moves.
#[derive(Clone, Copy)]
pub(super) struct Move {
    pub(super) verb: Verb,
    pub(super) local: u64,
    pub(super) remote: u64,
    pub(super) bytes: u32,
}

/// Returns the library of this provider. That of tests has one whose name begins with its own, which says what the run is like.
pub(super) fn library(provider: &str) -> Result<Library, OfiError> {
    if !provider.starts_with(SOFT) {
        return Library::open(None);
    }
    let path = softofi::library().unwrap();
    Ok(Library::open(Some(&path))?.with_node(provider))
}

/// Returns the rules of the manual that this process has broken over softofi. A queue is opened with a descriptor first, to learn whether
/// it has one: that is left out.
pub(crate) fn broken_rules(run: &str) -> Vec<String> {
    let functions = *library(run).unwrap().functions();
    let mut rules = softofi::watch::Watch::open(&functions).unwrap().rules();
    rules.retain(|rule| !rule.starts_with("wait-object"));
    rules
}

/// Returns a domain of this provider. None: the library has it not.
pub(crate) fn device(provider: &str) -> Option<OfiDevice> {
    let library = match library(provider) {
        Ok(library) => Arc::new(library),
        Err(error) => {
            println!("left out: {provider}: {error}");
            return None;
        }
    };
    let is_soft = provider.starts_with(SOFT);
    let domains = provider.starts_with("tcp").then(|| "lo".to_owned());
    let wish = OfiWish {
        library: None,
        provider: Some(if is_soft { "efa" } else { provider }.to_owned()),
        without: Vec::new(),
        domains: domains.into_iter().collect(),
        gpus: false,
    };
    match find(&library, &wish) {
        Ok(devices) => devices.into_iter().next(),
        Err(error @ OfiError::NoProvider { .. }) => {
            println!("left out: {provider}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns two rails over this provider. None: the library has it not.
pub(super) fn sides(provider: &str) -> Option<[Side; 2]> {
    let device = device(provider)?;
    Some([0, 1].map(|_| Side::new(&device)))
}

impl Side {
    pub(super) fn new(device: &OfiDevice) -> Self {
        let shape = RailShape {
            log_depth: 6,
            log_receives: 4,
            log_entries: 8,
            workers: 1,
            shares_cqs: false,
            pkey: None,
            lag_port: 0,
            ranges: 4,
            inline: 0,
        };
        let rail = OfiRail::new(device, &shape).unwrap();
        let memory = Arc::new(HostMemory::new(BYTES).unwrap());
        Self {
            reaper: Mutex::new(rail.reaper(0).unwrap()),
            registration: rail.register(&AnyMemory::from(&memory)).unwrap(),
            memory,
            rail,
            wake: Wake::new().unwrap(),
        }
    }

    /// Returns what peers name for the byte at `offset`.
    pub(super) fn named(&self, offset: u64) -> u64 {
        if self.rail.facts().by_address() {
            self.memory.address() + offset
        } else {
            offset
        }
    }

    pub(super) fn reap(&self, found: &mut Vec<Completion>) {
        self.reaper.lock().unwrap().reap(found, 64);
    }

    /// Looks and sleeps as a worker does, while `work` runs.
    pub(super) fn while_served<T>(sides: &[Self; 2], work: impl FnOnce() -> T) -> T {
        let stops = AtomicBool::new(false);
        thread::scope(|scope| {
            for side in sides {
                let stops = &stops;
                scope.spawn(move || {
                    let mut found = Vec::new();
                    while !stops.load(Ordering::SeqCst) {
                        side.reap(&mut found);
                        let most = Some(Duration::from_millis(20));
                        side.reaper.lock().unwrap().sleep(&side.wake, most).unwrap();
                    }
                    assert_eq!(found, []);
                });
            }
            let made = work();
            stops.store(true, Ordering::SeqCst);
            made
        })
    }
}

/// Connects two pairs, each with the other.
pub(super) fn met([a, b]: [OfiPair; 2], sides: &[Side; 2]) -> [End; 2] {
    let [to_a, to_b] = [b.offer().unwrap(), a.offer().unwrap()];
    let pairs = Side::while_served(sides, || {
        thread::scope(|scope| {
            let a = scope.spawn(|| a.receive(&to_a).unwrap());
            [b.receive(&to_b).unwrap(), a.join().unwrap()]
        })
    });
    let [b, a] = pairs.map(|pair| {
        let (pair, lane) = pair.send();
        let mut lane = lane.unwrap();
        lane.open();
        End {
            pair,
            lane,
            found: Vec::new(),
            done: BTreeMap::new(),
            counted: Vec::new(),
            next: 0,
        }
    });
    [a, b]
}

pub(super) fn connected(sides: &[Side; 2]) -> [End; 2] {
    met(
        sides.each_ref().map(|side| side.rail.pair(0).unwrap()),
        sides,
    )
}

impl End {
    /// Posts one WQE, if there is room. Returns its slice.
    pub(super) fn post(&mut self, side: &Side, peer: &Side, it: Move, rkey: u32) -> u32 {
        let mut chain = Chain::default();
        let (slice, half) = (self.next, it.bytes / 2);
        let range = |at: u32, bytes| LocalRange {
            address: side.memory.address() + it.local + u64::from(at),
            key: side.registration.lkey(),
            bytes,
        };
        let ranges = [range(0, half), range(half, it.bytes - half)];
        let remote = peer.named(it.remote);
        chain.push(it.verb, Tag { slot: 0, slice }, remote, rkey, ranges);
        assert_eq!(self.lane.post(&chain, 0..1).count, 1);
        self.lane.ring();
        self.next += 1;
        slice
    }

    /// Takes a turn as a worker does.
    pub(super) fn turn(&mut self, side: &Side) {
        side.reap(&mut self.found);
        if self.lane.has_turn() {
            self.found.extend(self.lane.advance());
        }
        for completion in self.found.drain(..) {
            assert_eq!(completion.lane, self.lane.number());
            if let Completed::Receive(counter) = completion.what {
                self.lane.receive(&completion);
                self.counted.extend(counter);
                continue;
            }
            let done = &mut self.done;
            self.lane.retire(&completion, |tag, cause| {
                assert!(
                    done.insert(tag.slice, cause).is_none(),
                    "slice {} twice",
                    tag.slice
                );
            });
        }
    }

    pub(super) fn is_dry(&self) -> bool {
        self.lane.in_flight() == 0
    }
}

/// Turns both ends until `condition` holds.
pub(super) fn turn_until(
    what: &str,
    sides: &[Side; 2],
    ends: &mut [End; 2],
    condition: impl Fn(&[End; 2]) -> bool,
) {
    until(what, || {
        for _ in 0..1000 {
            for (end, side) in ends.iter_mut().zip(sides) {
                end.turn(side);
            }
            if condition(ends) {
                return true;
            }
        }
        false
    });
}

pub(super) fn filled(side: &Side, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let bytes: Vec<u8> = (0..BYTES).map(|_| random.u8(..)).collect();
    side.memory.write(0, &bytes).unwrap();
    bytes
}

pub(super) fn bytes_of(side: &Side) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(BYTES).unwrap()];
    side.memory.read(0, &mut bytes).unwrap();
    bytes
}
