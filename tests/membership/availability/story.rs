//! What happens to a rank of a fleet, and which calls of the others lack tokens of each other.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use warpverbs::abi::{MoeCause, Outcome};

use super::{Case, Deed, Lasts};
use crate::fleet::{Call, Fleet, Point, Rank};

/// Calls of the others that a deed lasts for, at least.
const CALLS: u32 = 60;
/// Of so many calls the machine may starve one.
const STARVED: usize = 10;
/// The second rank to which something happens.
const ANOTHER: u32 = 1;

/// For how long each thread of this program was ready to run and had no processor.
pub(super) struct Watch {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Look>>,
}

/// Waits of all threads up to a moment, by thread.
struct Look {
    at: Instant,
    waits: HashMap<OsString, Duration>,
}

/// What a watch has seen.
pub(super) struct Waits {
    looks: Vec<Look>,
    /// A thread that waits for so long in a deadline is starved.
    long: Duration,
    deadline: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    from: Instant,
    until: Instant,
}

impl Look {
    fn now() -> Self {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        // A thread that has just ended has no file.
        let wait = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            let ns = text.split(' ').nth(1)?.parse().ok()?;
            Some((task.file_name(), Duration::from_nanos(ns)))
        };
        Self {
            at: Instant::now(),
            waits: tasks.filter_map(wait).collect(),
        }
    }
}

impl Watch {
    pub(super) fn begin(deadline: Duration) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            let mut looks = vec![Look::now()];
            while !over.load(Ordering::Relaxed) {
                thread::sleep(deadline / 8);
                looks.push(Look::now());
            }
            looks
        });
        Self { ends, thread }
    }

    pub(super) fn end(self, deadline: Duration) -> Waits {
        self.ends.store(true, Ordering::Relaxed);
        Waits {
            looks: self.thread.join().unwrap(),
            long: deadline / 2,
            deadline,
        }
    }
}

impl Waits {
    /// Returns whether a thread was starved in this call, or in the deadline before it. What a call of that time brings says nothing.
    fn starve(&self, call: &Call) -> bool {
        let from = self
            .looks
            .partition_point(|look| look.at + self.deadline <= call.from);
        let until = self.looks.partition_point(|look| look.at <= call.until);
        let looks = &self.looks[from.saturating_sub(1)..(until + 1).min(self.looks.len())];
        // In a call that waits for several deadlines, one of them counts.
        let far = looks
            .iter()
            .map(|look| looks.partition_point(|end| end.at <= look.at + self.deadline));
        looks.iter().zip(far).any(|(begin, end)| {
            let late = |(thread, wait): (&OsString, &Duration)| {
                let before = begin.waits.get(thread).copied().unwrap_or_default();
                wait.saturating_sub(before) >= self.long
            };
            looks[end.min(looks.len() - 1)].waits.iter().any(late)
        })
    }
}

impl Span {
    fn meets(&self, from: Instant, until: Instant) -> bool {
        self.from <= until && from <= self.until
    }
}

/// A fleet and what has happened to it.
pub(super) struct Story {
    case: Case,
    pub(super) fleet: Fleet,
    /// When something happened to a rank.
    deeds: Vec<Span>,
}

impl Story {
    pub(super) fn new(case: Case, fleet: Fleet) -> Self {
        Self {
            case,
            fleet,
            deeds: Vec::new(),
        }
    }

    /// Something that takes until it returns happens to a rank.
    fn happens(&mut self, deed: impl FnOnce(&mut Fleet)) {
        let from = Instant::now();
        deed(&mut self.fleet);
        let until = Instant::now();
        self.deeds.push(Span { from, until });
    }

    fn sick(&self) -> &Rank {
        self.fleet.rank(self.case.sick)
    }

    /// The ranks to which nothing happens.
    pub(super) fn healthy(&self, another: bool) -> Vec<u32> {
        let slots = self.fleet.ranks.iter().map(|rank| rank.slot);
        let sick = |slot: u32| slot == self.case.sick || another && slot == ANOTHER;
        slots.filter(|slot| !sick(*slot)).collect()
    }

    /// Waits until each rank but the sick one has begun so many calls more.
    fn goes_on(&self, calls: u32) {
        let now = |rank: &Rank| rank.moe.started();
        let before: BTreeMap<u32, u32> = self
            .fleet
            .ranks
            .iter()
            .map(|rank| (rank.slot, now(rank)))
            .collect();
        let sick = self.case.sick;
        self.fleet.until("calls go on", |rank| {
            rank.slot == sick || now(rank).wrapping_sub(before[&rank.slot]) >= calls
        });
    }

    /// Waits until the last calls of each rank are whole, in which all ranks of the fleet take part.
    fn is_whole(&self) {
        let since = Instant::now();
        let all: Vec<u32> = self.fleet.ranks.iter().map(|rank| rank.slot).collect();
        let is_whole =
            |call: &Call| call.from >= since && call.report.is_complete() && same(&call.seen, &all);
        self.fleet.until("calls are whole", |rank| {
            let calls = rank.newest(10);
            calls.len() == 10 && calls.iter().all(is_whole)
        });
    }

    /// These ranks die at once. No rank sees that but by what does not come any more.
    fn die(&mut self, slots: &[u32]) {
        let mut dead = Vec::new();
        self.happens(|fleet| {
            dead.extend(slots.iter().map(|slot| fleet.remove(*slot)));
            dead.iter().for_each(vanish);
            dead.iter_mut().for_each(|rank| rank.group = None);
            dead.iter().for_each(|rank| rank.stop(Point::Send));
        });
        self.fleet.dead.extend(dead);
    }

    /// The view goes on without the dead.
    fn goes_on_without(&self) {
        self.goes_on(CALLS);
        let mut rest: Vec<u32> = self.fleet.ranks.iter().map(|rank| rank.slot).collect();
        rest.sort_unstable();
        self.fleet.until_members(2, &rest);
        self.is_whole();
    }

    /// The sick rank makes no call for so long.
    fn is_late(&mut self, late: Duration) {
        let sick = self.case.sick;
        self.happens(|fleet| fleet.rank(sick).rest());
        thread::sleep(late);
        self.sick().pause(false);
    }

    /// Waits for the end of a deed.
    fn lasts(&self, lasts: Lasts) {
        self.goes_on(CALLS / 5);
        let sick = self.case.sick;
        if lasts == Lasts::UntilParted {
            let others = self.healthy(false);
            self.fleet.until("the sick rank is parted", |rank| {
                let view = rank.group().view();
                rank.slot == sick || view.is_some_and(|view| view.parted_from(sick) == others)
            });
            self.goes_on(CALLS);
        }
    }

    pub(super) fn play(&mut self) {
        let (sick, deadline) = (self.case.sick, self.case.deadline);
        match self.case.deed {
            Deed::Dies(point) => {
                self.happens(|fleet| {
                    let mut dead = fleet.remove(sick);
                    dead.stop_at(point);
                    vanish(&dead);
                    dead.group = None;
                    fleet.dead.push(dead);
                });
                self.goes_on_without();
            }
            Deed::TwoDie => {
                self.die(&[sick, ANOTHER]);
                self.goes_on_without();
            }
            Deed::TwoDieApart(calls) => {
                self.die(&[sick]);
                self.goes_on(calls);
                self.die(&[ANOTHER]);
                self.goes_on_without();
            }
            Deed::IsLate => {
                for halves in [1, 2, 4, 6] {
                    self.is_late(deadline * halves / 2);
                    self.is_whole();
                }
            }
            Deed::IsLateAndAnotherDies => {
                self.happens(|fleet| fleet.rank(sick).rest());
                self.die(&[ANOTHER]);
                thread::sleep(2 * deadline);
                self.sick().pause(false);
                self.goes_on_without();
            }
            Deed::IsCut(packets, lasts) => {
                let faults = packets.parse().unwrap();
                self.happens(|fleet| fleet.rank(sick).hca.set_faults(&faults));
                self.lasts(lasts);
                self.sick().hca.set_faults(&"drop=0%".parse().unwrap());
                self.is_whole();
            }
            Deed::HcaStops(lasts) => {
                self.happens(|fleet| fleet.rank(sick).hca.pause(Duration::from_secs(3600)));
                self.lasts(lasts);
                self.sick().hca.pause(Duration::ZERO);
                self.is_whole();
            }
        }
    }
}

/// Nothing of it reaches another rank or the store any more, not even that its group ends.
fn vanish(rank: &Rank) {
    rank.hca.set_port(false);
    rank.cut.set(true);
}

fn same(one: &[u32], other: &[u32]) -> bool {
    one.len() == other.len() && one.iter().all(|slot| other.contains(slot))
}

/// The ranks of `healthy` whose rows this call lacks.
fn lost(call: &Call, healthy: &[u32]) -> Vec<u32> {
    let came = |slot: &u32| {
        let peer = &call.report.peers[*slot as usize];
        let dispatched = *slot == call.report.rank || peer.dispatch_received == Outcome::ACCEPTED;
        dispatched && call.seen.contains(slot)
    };
    healthy.iter().copied().filter(|slot| !came(slot)).collect()
}

/// Returns whether its rows are missing because a rank came late. A machine that gives no time explains that and nothing else.
fn is_late(call: &Call) -> bool {
    let is_late = |cause| [MoeCause::TIMEOUT, MoeCause::MISSED_CALL].contains(&cause);
    let fault = call.report.fault.as_ref();
    fault.is_some_and(|fault| is_late(fault.cause)) && call.report.unbuffered == 0
}

/// No call of a healthy rank lacks rows of another one. The machine may starve a few of the calls.
pub(super) fn judge(story: &Story, healthy: &[u32], waits: &Waits) {
    let first = story.deeds[0].from;
    let (mut all, mut not_judged, mut at_once, mut wrong) = (0, 0, 0, Vec::new());
    for slot in healthy {
        let calls = story.fleet.rank(*slot).calls();
        for (at, call) in calls
            .iter()
            .enumerate()
            .filter(|(_, call)| call.until >= first)
        {
            let before = &calls[at.saturating_sub(1)];
            assert!(
                at == 0 || before.number.wrapping_add(1) == call.number,
                "rank {slot} leaves calls out before {}",
                call.report
            );
            all += 1;
            let lost = lost(call, healthy);
            let is_good = lost.is_empty() && call.report.unbuffered == 0;
            let happens = |deed: &Span| deed.meets(before.from, call.until);
            if is_good {
                continue;
            }
            let after = call.until - first;
            let what = format!(
                "{after:.1?} behind the first deed rank {slot} lacks ranks {lost:?}: {}",
                call.report
            );
            if is_late(call) && waits.starve(call) {
                println!("starved: {what}");
                not_judged += 1;
            } else if story.deeds.iter().any(happens) {
                at_once += 1;
            } else {
                wrong.push(what);
            }
        }
    }
    println!(
        "{:?}: {all} calls of healthy ranks, {at_once} lost tokens at once, {not_judged} starved ones not judged",
        story.case
    );
    if not_judged * STARVED > all {
        println!(
            "skipped: tokens of {:?}: the machine starved {not_judged} of {all} calls",
            story.case
        );
        return;
    }
    let stories = || {
        story
            .fleet
            .ranks
            .iter()
            .map(|rank| format!("rank {}: {}\n", rank.slot, rank.story()))
            .collect::<String>()
    };
    assert!(
        wrong.is_empty(),
        "{:?}: {wrong:#?}\n{}",
        story.case,
        stories()
    );
}
