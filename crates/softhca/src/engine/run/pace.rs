//! How the engine waits while it has nothing to do: it looks around, offers its core, or naps.
//!
//! A program that stores a doorbell and does not call [`softhca_kick`](crate::engine::softhca_kick) is heard only when the engine
//! looks at the registers. Two things decide how soon that is.
//!
//! - **Whether another thread wants the engine's core.** Benchmarks busy-poll on every core. `sched_yield` then gives the core away
//!   for the other thread's whole time slice, milliseconds. So the engine naps instead: a timer or a packet brings it back.
//!   The engine finds this out by the time that its yields take: long yields may take one part in [`YIELD_SHARE`] of the time and no more.
//!   One long yield by itself says little, since the scheduler may have used it to move the engine to an idle core.
//!   An engine with much to do keeps its yields: it loses no latency that matters, and naps would cut its work into
//!   small pieces.
//! - **Whether a doorbell is likely.** For [`RECENT_NS`] after the last work each nap lasts for [`FIRST_NAP`]. After that each nap is twice
//!   as long as the one before, up to [`LONGEST_NAP`]. A program that kicks ends the nap itself, so the engine doubles its naps at once, up
//!   to [`LONGEST_NAP_KICKED`].
//!
//! Shorter time slices for the engine thread (`sched_setattr`) changed no figure of `benches/pollers.rs` and are left out.

use std::time::Duration;

/// The time after its last work for which the engine looks around without offering its core.
const SPIN_ALONE_NS: u64 = 500;
/// The whole time after its last work for which the engine looks around, if nothing else wants its core.
const SPIN_NS: u64 = 40_000;
/// Longest yield that did not give the core to another thread: a longer one did.
const LONG_YIELD_NS: u64 = 50_000;
/// Long yields may take one part in this many of the time.
const YIELD_SHARE: u64 = 20;
/// The time by which long yields may exceed their share. Beyond this the engine takes its core for shared, until half of this excess is
/// made up for.
const MOST_LOST_NS: u64 = 8_000_000;
/// The time over which the engine measures how much it works.
const MEMORY_NS: u64 = 2_000_000;
/// Most time that one turn counts for: another thread may have had the core for most of a longer turn.
const LONGEST_WORK_NS: u64 = 50_000;
/// The engine is loaded when it works for more than one part in this many of the time.
const LOADED_SHARE: u64 = 3;
/// The time after its last work for which the engine expects the next doorbell any moment.
const RECENT_NS: u64 = 4_000_000;
const FIRST_NAP: Duration = Duration::from_micros(50);
const LONGEST_NAP: Duration = Duration::from_millis(4);
const LONGEST_NAP_KICKED: Duration = Duration::from_millis(16);

/// The next step of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Look again at once.
    Spin,
    /// Let another thread run, and look again.
    Yield,
    /// Sleep for this long, or until a packet or a kick.
    Nap(Duration),
}

/// The facts that decide the next wait. All times are times of one clock, in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// The time at which the engine last did something.
    worked_ns: u64,
    /// The time until which the engine takes its core for shared.
    shared_until_ns: u64,
    /// The time that long yields have taken beyond their share.
    lost_ns: u64,
    /// The time up to which `lost_ns` is counted.
    counted_ns: u64,
    /// Recent time of work. `idle_ns` is the recent time of looking around and of naps.
    work_ns: u64,
    idle_ns: u64,
    /// Length of the next nap. It grows once the last work is no longer recent.
    nap: Duration,
}

impl Pace {
    pub(super) const fn new(now_ns: u64) -> Self {
        Self {
            worked_ns: now_ns,
            shared_until_ns: 0,
            lost_ns: 0,
            counted_ns: now_ns,
            work_ns: 0,
            idle_ns: 0,
            nap: FIRST_NAP,
        }
    }

    /// Notes that a turn from `before_ns` to `now_ns` did something.
    pub(super) fn worked(&mut self, before_ns: u64, now_ns: u64) {
        self.worked_ns = now_ns;
        self.nap = FIRST_NAP;
        self.work_ns += now_ns.saturating_sub(before_ns).min(LONGEST_WORK_NS);
        self.forget();
    }

    /// Notes that the engine looked around or napped from `before_ns` to `now_ns`.
    pub(super) fn idled(&mut self, before_ns: u64, now_ns: u64) {
        self.idled_for(now_ns.saturating_sub(before_ns));
    }

    /// Notes that the engine did nothing for `idle_ns`.
    fn idled_for(&mut self, idle_ns: u64) {
        self.idle_ns += idle_ns.min(MEMORY_NS);
        self.forget();
    }

    fn forget(&mut self) {
        if self.work_ns + self.idle_ns > MEMORY_NS {
            self.work_ns /= 2;
            self.idle_ns /= 2;
        }
    }

    /// Returns whether the engine has so much to do that the latency of a doorbell does not matter.
    const fn is_loaded(&self) -> bool {
        self.work_ns * LOADED_SHARE > self.work_ns + self.idle_ns
    }

    /// Returns what an idle engine does next.
    pub(super) fn next(&self, now_ns: u64) -> Wait {
        let idle_ns = now_ns.saturating_sub(self.worked_ns);
        if idle_ns < SPIN_ALONE_NS {
            Wait::Spin
        } else if idle_ns < SPIN_NS && (self.is_loaded() || now_ns >= self.shared_until_ns) {
            Wait::Yield
        } else {
            Wait::Nap(self.nap)
        }
    }

    /// Notes that a yield lasted from `before_ns` to `after_ns`.
    pub(super) fn yielded(&mut self, before_ns: u64, after_ns: u64) {
        let took_ns = after_ns.saturating_sub(before_ns);
        // What another thread did during a long yield says nothing about the load of this thread.
        self.idled_for(took_ns.min(LONG_YIELD_NS));
        let share_ns = after_ns.saturating_sub(self.counted_ns) / YIELD_SHARE;
        self.lost_ns = self.lost_ns.saturating_sub(share_ns);
        self.counted_ns = after_ns;
        if took_ns > LONG_YIELD_NS && !self.is_loaded() {
            self.lost_ns = self.lost_ns.saturating_add(took_ns);
            // However long this yield was, the engine looks around once more before it naps.
            self.worked_ns = self.worked_ns.max(after_ns.saturating_sub(SPIN_ALONE_NS));
        }
        if self.lost_ns > MOST_LOST_NS {
            let pause_ns = (self.lost_ns - MOST_LOST_NS / 2).saturating_mul(YIELD_SHARE);
            self.shared_until_ns = after_ns.saturating_add(pause_ns);
        }
    }

    /// Notes that a nap that [`Pace::next`] has asked for ended at `now_ns`, and that the engine knows of nothing to do.
    pub(super) fn napped(&mut self, now_ns: u64, kicked: bool) {
        let longest = if kicked {
            LONGEST_NAP_KICKED
        } else {
            LONGEST_NAP
        };
        if kicked || now_ns.saturating_sub(self.worked_ns) >= RECENT_NS {
            self.nap = (self.nap * 2).min(longest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_NS: u64 = 1_000_000_000;

    /// Returns the waits of an engine that finds nothing for `time_ns`, on a core of its own or on a shared core. On a shared core a yield
    /// takes 3 ms.
    fn waits(time_ns: u64, shared: bool, kicked: bool) -> Vec<Wait> {
        let mut pace = Pace::new(START_NS);
        let (mut now_ns, mut waits) = (START_NS, Vec::new());
        while now_ns < START_NS + time_ns {
            let wait = pace.next(now_ns);
            waits.push(wait);
            let before_ns = now_ns;
            now_ns += match wait {
                Wait::Spin => 200,
                Wait::Yield if shared => 3_000_000,
                Wait::Yield => 500,
                Wait::Nap(nap) => u64::try_from(nap.as_nanos()).unwrap(),
            };
            match wait {
                Wait::Yield => pace.yielded(before_ns, now_ns),
                Wait::Nap(_) => pace.napped(now_ns, kicked),
                Wait::Spin => {}
            }
        }
        waits
    }

    fn naps(waits: &[Wait]) -> Vec<Duration> {
        let nap = |wait: &Wait| match wait {
            Wait::Nap(nap) => Some(*nap),
            _ => None,
        };
        waits.iter().filter_map(nap).collect()
    }

    #[test]
    fn on_a_core_of_its_own_the_engine_looks_around_before_it_naps() {
        let waits = waits(SPIN_NS, false, false);
        assert_eq!(waits.iter().filter(|wait| **wait == Wait::Spin).count(), 3);
        assert_eq!(naps(&waits), []);
        assert!(waits.contains(&Wait::Yield));
    }

    /// Runs the pace of an engine beside a poller for `time_ns`. The last work is always [`SPIN_ALONE_NS`] ago. Returns the time that
    /// yields took.
    fn beside_a_poller(pace: &mut Pace, time_ns: u64, yield_ns: u64) -> u64 {
        let (mut now_ns, mut yields_ns) = (START_NS, 0);
        while now_ns < START_NS + time_ns {
            pace.worked(now_ns - SPIN_ALONE_NS, now_ns - SPIN_ALONE_NS);
            match pace.next(now_ns) {
                Wait::Yield => {
                    pace.yielded(now_ns, now_ns + yield_ns);
                    now_ns += yield_ns;
                    yields_ns += yield_ns;
                }
                Wait::Nap(nap) => now_ns += u64::try_from(nap.as_nanos()).unwrap(),
                Wait::Spin => now_ns += 200,
            }
        }
        yields_ns
    }

    #[test]
    fn long_yields_take_their_share_of_the_time_and_no_more() {
        for yield_ns in [
            LONG_YIELD_NS + 1,
            100_000,
            1_000_000,
            4_000_000,
            100_000_000,
        ] {
            let time_ns = 20_000_000_000;
            let yields_ns = beside_a_poller(&mut Pace::new(START_NS), time_ns, yield_ns);
            let most_ns = time_ns / YIELD_SHARE + MOST_LOST_NS + yield_ns;
            assert!(
                yields_ns <= most_ns,
                "{yields_ns} ns of yields of {yield_ns} ns"
            );
            assert!(yields_ns >= yield_ns, "the engine tries at least once");
        }
    }

    #[test]
    fn short_yields_may_take_all_the_time() {
        let time_ns = 1_000_000_000;
        let yields_ns = beside_a_poller(&mut Pace::new(START_NS), time_ns, LONG_YIELD_NS);
        assert_eq!(yields_ns, time_ns);
    }

    #[test]
    fn one_long_yield_changes_nothing() {
        let mut pace = Pace::new(START_NS);
        let now_ns = START_NS + MOST_LOST_NS;
        pace.yielded(START_NS, now_ns);
        assert_eq!(pace.next(now_ns), Wait::Yield, "it looks again at once");
        pace.yielded(now_ns, now_ns + LONG_YIELD_NS + 1);
        assert_eq!(pace.next(now_ns + LONG_YIELD_NS + 1), Wait::Nap(FIRST_NAP));
    }

    #[test]
    fn the_longest_times_do_not_overflow() {
        let mut pace = Pace::new(0);
        pace.yielded(0, u64::MAX - SPIN_ALONE_NS);
        assert_eq!(pace.next(u64::MAX - 1), Wait::Nap(FIRST_NAP));
        pace.worked(0, u64::MAX);
        pace.idled(0, u64::MAX);
        pace.yielded(0, u64::MAX);
        pace.napped(u64::MAX, false);
        assert_eq!(pace.next(u64::MAX), Wait::Spin);
    }

    #[test]
    fn an_engine_with_much_to_do_keeps_its_yields() {
        let mut pace = Pace::new(START_NS);
        let mut now_ns = START_NS;
        for _ in 0..100 {
            pace.worked(now_ns, now_ns + 500_000);
            now_ns += 500_000;
            pace.idled(now_ns, now_ns + SPIN_ALONE_NS);
            now_ns += SPIN_ALONE_NS;
            assert_eq!(pace.next(now_ns), Wait::Yield);
            pace.yielded(now_ns, now_ns + 3_000_000);
            now_ns += 3_000_000;
        }
        // After the work has ended, naps alone follow.
        let end_ns = now_ns;
        let mut yields = 0;
        while pace.is_loaded() {
            assert!(now_ns < end_ns + 1_000_000_000);
            let before_ns = now_ns;
            match pace.next(now_ns) {
                Wait::Spin => unreachable!("the last work is long ago"),
                Wait::Yield => {
                    now_ns += 3_000_000;
                    pace.yielded(before_ns, now_ns);
                    yields += 1;
                }
                Wait::Nap(nap) => {
                    now_ns += u64::try_from(nap.as_nanos()).unwrap();
                    pace.idled(before_ns, now_ns);
                    pace.napped(now_ns, false);
                }
            }
        }
        assert_eq!(yields, 0);
    }

    #[test]
    fn naps_are_short_after_work_and_then_double_to_their_bound() {
        let naps = naps(&waits(100_000_000, false, false));
        let first = naps.iter().take_while(|nap| **nap == FIRST_NAP).count();
        assert_eq!(first, 80, "(4 ms - 40 us) / 50 us, rounded up");
        let longer: Vec<u128> = naps[first..].iter().map(Duration::as_micros).collect();
        assert_eq!(longer[..7], [100, 200, 400, 800, 1600, 3200, 4000]);
        assert!(longer[7..].iter().all(|micros| *micros == 4000));
    }

    #[test]
    fn a_program_that_kicks_lets_naps_double_at_once() {
        let naps = naps(&waits(100_000_000, false, true));
        let micros: Vec<u128> = naps.iter().map(Duration::as_micros).collect();
        assert_eq!(micros[..3], [50, 100, 200]);
        assert_eq!(naps.iter().max(), Some(&LONGEST_NAP_KICKED));
    }

    #[test]
    fn work_begins_the_waits_anew() {
        let mut pace = Pace::new(START_NS);
        (0..20).for_each(|_| pace.napped(START_NS, true));
        let late_ns = START_NS + 1_000_000_000;
        assert_eq!(pace.next(late_ns), Wait::Nap(LONGEST_NAP_KICKED));
        pace.worked(late_ns, late_ns);
        assert_eq!(pace.next(late_ns), Wait::Spin);
        assert_eq!(pace.next(late_ns + SPIN_NS), Wait::Nap(FIRST_NAP));
    }

    #[test]
    fn a_clock_that_stands_before_the_last_work_counts_as_no_time() {
        let mut pace = Pace::new(START_NS);
        assert_eq!(pace.next(0), Wait::Spin);
        pace.yielded(START_NS, 0);
        assert_eq!(pace.next(START_NS + SPIN_ALONE_NS), Wait::Yield);
    }
}
