//! The deeds of chaos, chosen by a seed. A seed always chooses the same deeds in the same order, however long the ranks take. The target of
//! a deed depends on which ranks serve at that moment.

use std::time::Duration;

use super::garbage::{KeyKind, Spoil};
use crate::record::Disturbance;

/// Something that can be done.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// SIGKILL; another process takes the place a little later
    Kills,
    /// Host threads stand still; kernels and HCA go on
    HostFreezes,
    /// Kernels stand still; host threads and HCA go on
    KernelFreezes,
    /// The whole process stands still
    Freezes,
    /// No packet passes between the rank and one other, some, or all
    Partitions,
    /// All processes stand still, and go on up to a lease apart
    PauseAll,
    /// No call of the store ends
    StorePause,
    /// Every call of the store is late, by up to three leases
    StoreSlow,
    /// The port of the rank's HCA is down
    PortOne,
    /// The ports of all HCAs are down
    PortsAll,
    /// A key of the group, or of its team, in the store holds garbage
    Garbage,
    /// SIGKILL, again and again, of a rank and of those that come in its place
    CrashLoop,
    /// All servers of the etcd are killed (SIGKILL) and started again; needs --etcd
    StoreRestart,
    /// The leader of the etcd is killed or stands still, and comes back; needs --etcd 3
    LeaderLoss,
    /// One rail of several of the rank carries nothing; needs --rails 2
    Rail,
    /// The rank sleeps between two calls, for one to three deadlines
    Late,
    /// SIGKILL to a rank in a PID namespace of its own, so that no pidfd of another rank sees it; skipped where no such namespace
    /// can be made
    NoPidfd,
    /// No packet passes from the rank to one other, or from that one to the rank
    OneWay,
    /// SIGKILL to two ranks at once; needs 5 ranks
    Host,
    /// SIGKILL; no packet reaches the process that takes the place
    LinkJoiner,
    /// SIGKILL; two processes take the place
    Twice,
    /// A call of the rank has another maxT than the calls of the others; needs --buffer
    Arguments,
}

impl Kind {
    /// Returns the least number of rails that a deed of this kind needs.
    pub(super) fn rails(self) -> u32 {
        if self == Self::Rail { 2 } else { 1 }
    }

    /// Returns the least number of servers of an etcd that a deed of this kind needs.
    pub(super) fn servers(self) -> u16 {
        match self {
            Self::StoreRestart => 1,
            Self::LeaderLoss => 3,
            _ => 0,
        }
    }

    /// Returns the least number of ranks that a deed of this kind needs.
    pub(super) fn ranks(self) -> u32 {
        if self == Self::Host { 5 } else { 3 }
    }

    /// Returns whether such a deed can be done to programs of Python, which dispatch with masks and form no group.
    pub(super) fn is_of_buffers(self) -> bool {
        matches!(
            self,
            Self::Late | Self::Freezes | Self::Partitions | Self::OneWay | Self::Arguments
        )
    }

    /// Returns whether such a deed can be done to the ranks of the demo.
    pub(super) fn is_of_demo(self) -> bool {
        self != Self::Arguments
    }
}

/// All kinds. Kinds that need no etcd come first, so that a seed does the same with and without an etcd.
pub(super) const ALL: [Kind; 22] = [
    Kind::Kills,
    Kind::HostFreezes,
    Kind::KernelFreezes,
    Kind::Freezes,
    Kind::Partitions,
    Kind::PauseAll,
    Kind::StorePause,
    Kind::StoreSlow,
    Kind::PortOne,
    Kind::PortsAll,
    Kind::Garbage,
    Kind::CrashLoop,
    Kind::Late,
    Kind::NoPidfd,
    Kind::OneWay,
    Kind::Host,
    Kind::LinkJoiner,
    Kind::Twice,
    Kind::Arguments,
    Kind::StoreRestart,
    Kind::LeaderLoss,
    Kind::Rail,
];

/// One disturbance of ranks or of the store, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// The rank dies, and comes back after the time.
    Kill { rank: u32, back: Duration },
    /// The rank is disturbed in this way for the time.
    Disturb {
        rank: u32,
        how: Disturbance,
        time: Duration,
    },
    /// No packet passes between the rank and these ranks for the time.
    Part {
        rank: u32,
        from: Vec<u32>,
        time: Duration,
    },
    /// All ranks stand still for the time. They go on one after another, the last `apart` later than the first.
    PauseAll { time: Duration, apart: Duration },
    /// No call of the store ends during the time.
    StorePause { time: Duration },
    /// Calls of the store are late by up to `most` for the time.
    StoreSlow {
        time: Duration,
        most: Duration,
        seed: u64,
    },
    /// All servers of the store are down for the time.
    StoreRestart { time: Duration },
    /// The leader of the store is down for the time, or stands still if `stands` is set.
    LeaderLoss { time: Duration, stands: bool },
    /// No packet passes on this rail of the rank for the time.
    Rail {
        rank: u32,
        rail: usize,
        time: Duration,
    },
    /// The port of the rank, or of all ranks, is down for the time.
    Port { rank: Option<u32>, time: Duration },
    /// A key of this kind, if possible one of this rank, is spoiled. If no rank would write the key again, `wv chaos` mends it after the
    /// time.
    Garbage {
        rank: u32,
        key: KeyKind,
        how: Spoil,
        seed: u64,
        time: Duration,
    },
    /// The rank dies, and so do as many processes that come in its place, each after one of these times.
    CrashLoop {
        rank: u32,
        back: Duration,
        lives: Vec<Duration>,
    },
    /// The rank sleeps for the time before its next call.
    Late { rank: u32, time: Duration },
    /// The rank, which lives in a PID namespace, dies, and comes back after the time.
    NoPidfd { rank: u32, back: Duration },
    /// No packet passes from the rank to the other one (`out`), or from the other one to the rank, for the time.
    OneWay {
        rank: u32,
        other: u32,
        out: bool,
        time: Duration,
    },
    /// These ranks die at once, and each comes back after the time.
    Host { ranks: Vec<u32>, back: Duration },
    /// The rank dies, and no packet passes to and from the process that comes back for the time.
    LinkJoiner {
        rank: u32,
        back: Duration,
        time: Duration,
    },
    /// The rank dies. One process comes back for it, and another one `apart` later.
    Twice {
        rank: u32,
        back: Duration,
        apart: Duration,
    },
    /// The rank makes a call with other arguments than the other ranks.
    Arguments { rank: u32 },
}

/// Returns whether chaos gives `rank` a PID namespace of its own, if the machine can and such deeds are asked for. Then no other rank sees
/// by its pidfd that it has ended.
pub(super) fn has_own_space(rank: u32) -> bool {
    rank % 2 == 1
}

/// The shortest time that all ranks stand still, where a longest was asked for.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// Draws deeds, one after another.
#[derive(Debug)]
pub(super) struct Deeds {
    /// The random numbers of deeds alone. Pauses depend on how the ranks stand, and so must not change the deeds.
    random: fastrand::Rng,
    /// The random numbers of the times between deeds.
    times: fastrand::Rng,
    kinds: Vec<Kind>,
    /// Time to live of a lease.
    lease: Duration,
    /// The most deeds that may be under way. None: as many as leave most ranks undisturbed.
    at_once: Option<usize>,
    /// The number of HCAs of each rank.
    rails: usize,
    /// The longest time that all ranks stand still. None: as long as any other disturbance.
    longest_pause: Option<Duration>,
    /// The longest wait of a device call.
    deadline: Duration,
    /// The random numbers of targets that not every rank can be.
    others: fastrand::Rng,
    /// A deed that waits for a possible target.
    held: Option<Deed>,
}

impl Deeds {
    /// Returns the deeds of these kinds, of which there is at least one.
    pub(super) fn new(seed: u64, kinds: &[Kind], lease: Duration, at_once: Option<usize>) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self {
            times: random.fork(),
            random,
            kinds: kinds.to_vec(),
            lease,
            at_once,
            rails: 1,
            longest_pause: None,
            deadline: Duration::from_millis(500),
            others: fastrand::Rng::with_seed(!seed),
            held: None,
        }
    }

    /// Draws deeds for ranks whose device calls wait no longer than `deadline`.
    pub(super) fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Draws deeds for ranks with `rails` HCAs each.
    pub(super) fn with_rails(self, rails: u32) -> Self {
        let rails = usize::try_from(rails).unwrap_or(1);
        Self { rails, ..self }
    }

    /// Lets all ranks stand still for [`SHORTEST_PAUSE`] to `most`.
    pub(super) fn with_longest_pause(self, most: Option<Duration>) -> Self {
        let longest_pause = most;
        Self {
            longest_pause,
            ..self
        }
    }

    /// Returns the time until the next deed.
    pub(super) fn pause(&mut self) -> Duration {
        Duration::from_millis(self.times.u64(200..2000))
    }

    /// Returns the time until a rank that the others have dropped comes back.
    pub(super) fn back(&mut self) -> Duration {
        Duration::from_millis(self.times.u64(0..1000))
    }

    /// Returns the next deed, at one of `calm`: the ranks that serve and that no deed disturbs now. Returns None if as many deeds are under
    /// way as the limit allows. Returns None if too few ranks are calm: half of `ranks` or fewer, or two or fewer if a number of deeds at
    /// once was asked for.
    pub(super) fn next(&mut self, calm: &[u32], ranks: u32, under_way: usize) -> Option<Deed> {
        let (may, least) = match self.at_once {
            None => (true, u64::from(ranks) + 2),
            Some(most) => (under_way < most, 2 * 2),
        };
        if !may || calm.len() as u64 * 2 <= least {
            return None;
        }
        let deed = match self.held.take() {
            Some(deed) => deed,
            None => self.draw(calm, ranks)?,
        };
        self.aim(deed, calm, least)
    }

    /// Returns the deed, aimed at ranks that it can be done to. If there are none, the deed is kept until there are, so that a seed does
    /// the same on every machine.
    fn aim(&mut self, deed: Deed, calm: &[u32], least: u64) -> Option<Deed> {
        let aimed = match &deed {
            Deed::Host { back, .. } if calm.len() as u64 * 2 > least + 2 => Some(Deed::Host {
                ranks: self.others.choose_multiple(calm.iter().copied(), 2),
                back: *back,
            }),
            Deed::Host { .. } => None,
            Deed::NoPidfd { back, .. } => {
                let back = *back;
                let those: Vec<u32> = calm
                    .iter()
                    .copied()
                    .filter(|of| has_own_space(*of))
                    .collect();
                let rank = self.others.choice(&those).copied();
                rank.map(|rank| Deed::NoPidfd { rank, back })
            }
            _ => return Some(deed),
        };
        if aimed.is_none() {
            self.held = Some(deed);
        }
        aimed
    }

    /// Returns the next deed by the seed, at one of `calm`.
    fn draw(&mut self, calm: &[u32], ranks: u32) -> Option<Deed> {
        let rank = *self.random.choice(calm)?;
        let kind = *self.random.choice(&self.kinds)?;
        let disturb = |how, time| Deed::Disturb { rank, how, time };
        let deed = match kind {
            Kind::Kills => Deed::Kill {
                rank,
                back: self.back(),
            },
            Kind::HostFreezes => disturb(Disturbance::HostFreeze, self.time()),
            Kind::KernelFreezes => disturb(Disturbance::KernelFreeze, self.time()),
            Kind::Freezes => disturb(Disturbance::Freeze, self.time()),
            Kind::Partitions => {
                let others: Vec<u32> = (0..ranks).filter(|other| *other != rank).collect();
                let from = match self.random.u32(..3) {
                    0 => others,
                    1 => vec![*self.random.choice(&others)?],
                    _ => {
                        let some = self.random.usize(1..=others.len());
                        self.random.choose_multiple(others, some)
                    }
                };
                let time = self.time();
                Deed::Part { rank, from, time }
            }
            Kind::PauseAll => Deed::PauseAll {
                time: match self.longest_pause {
                    Some(most) => self.pause_up_to(most),
                    None => self.time(),
                },
                apart: self.up_to(self.lease),
            },
            Kind::StorePause => Deed::StorePause { time: self.time() },
            Kind::StoreSlow => Deed::StoreSlow {
                time: self.time(),
                most: self.up_to(3 * self.lease),
                seed: self.random.u64(..),
            },
            Kind::StoreRestart => Deed::StoreRestart { time: self.time() },
            Kind::LeaderLoss => Deed::LeaderLoss {
                time: self.time(),
                stands: self.random.bool(),
            },
            Kind::Rail => Deed::Rail {
                rank,
                rail: self.random.usize(..self.rails.max(1)),
                time: self.time(),
            },
            Kind::PortOne | Kind::PortsAll => Deed::Port {
                rank: (kind == Kind::PortOne).then_some(rank),
                time: Duration::from_millis(self.random.u64(100..=10_000)),
            },
            Kind::Garbage => Deed::Garbage {
                rank,
                key: *self.random.choice(&KeyKind::ALL)?,
                how: *self.random.choice(&Spoil::ALL)?,
                seed: self.random.u64(..),
                time: self.time(),
            },
            Kind::Late => Deed::Late {
                rank,
                time: self.deadline + self.up_to(2 * self.deadline),
            },
            Kind::NoPidfd => Deed::NoPidfd {
                rank,
                back: self.back(),
            },
            Kind::OneWay => {
                let others: Vec<u32> = (0..ranks).filter(|other| *other != rank).collect();
                Deed::OneWay {
                    rank,
                    other: *self.random.choice(&others)?,
                    out: self.random.bool(),
                    time: self.time(),
                }
            }
            Kind::Host => Deed::Host {
                ranks: Vec::new(),
                back: self.back(),
            },
            Kind::LinkJoiner => Deed::LinkJoiner {
                rank,
                back: self.back(),
                time: self.time(),
            },
            Kind::Twice => Deed::Twice {
                rank,
                back: self.back(),
                apart: Duration::from_millis(self.random.u64(50..=300)),
            },
            Kind::Arguments => Deed::Arguments { rank },
            Kind::CrashLoop => {
                let most = self.random.usize(1..=4);
                let lives = (0..most).map(|_| self.random.u64(0..2000));
                Deed::CrashLoop {
                    rank,
                    lives: lives.map(Duration::from_millis).collect(),
                    back: self.back(),
                }
            }
        };
        Some(deed)
    }

    /// Returns how long a disturbance lasts. Half of these times are too short for any rank to be dropped.
    fn time(&mut self) -> Duration {
        let most = if self.random.bool() { 400 } else { 6000 };
        Duration::from_millis(self.random.u64(50..most))
    }

    /// Returns a pause of at most `most`. Its logarithm is evenly distributed.
    fn pause_up_to(&mut self, most: Duration) -> Duration {
        let times = most.max(SHORTEST_PAUSE).div_duration_f64(SHORTEST_PAUSE);
        SHORTEST_PAUSE.mul_f64(times.powf(self.random.f64()))
    }

    fn up_to(&mut self, most: Duration) -> Duration {
        most.mul_f64(self.random.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(2);

    fn deeds(seed: u64, kinds: &[Kind]) -> Deeds {
        let kinds = if kinds.is_empty() { &ALL[..] } else { kinds };
        Deeds::new(seed, kinds, LEASE, None).with_rails(2)
    }

    /// Returns the rank at which a deed is aimed. None: it is aimed at all ranks, or at the store.
    fn target(deed: &Deed) -> Option<u32> {
        match deed {
            Deed::Kill { rank, .. }
            | Deed::Disturb { rank, .. }
            | Deed::Part { rank, .. }
            | Deed::Garbage { rank, .. }
            | Deed::Rail { rank, .. }
            | Deed::CrashLoop { rank, .. }
            | Deed::Late { rank, .. }
            | Deed::NoPidfd { rank, .. }
            | Deed::OneWay { rank, .. }
            | Deed::LinkJoiner { rank, .. }
            | Deed::Twice { rank, .. }
            | Deed::Arguments { rank } => Some(*rank),
            Deed::Host { ranks, .. } => ranks.first().copied(),
            Deed::Port { rank, .. } => *rank,
            Deed::PauseAll { .. }
            | Deed::StorePause { .. }
            | Deed::StoreSlow { .. }
            | Deed::StoreRestart { .. }
            | Deed::LeaderLoss { .. } => None,
        }
    }

    #[test]
    fn a_seed_does_the_same_again_and_most_ranks_are_always_left_alone() {
        let some = |seed: u64| {
            let mut deeds = deeds(seed, &[]);
            (0..200)
                .map(|_| (deeds.pause(), deeds.next(&[0, 1, 2, 4, 5], 5, 9)))
                .collect::<Vec<_>>()
        };
        assert_eq!(some(7), some(7));
        assert_ne!(some(7), some(8));
        let done: Vec<Deed> = some(7).into_iter().filter_map(|(_, deed)| deed).collect();
        assert_eq!(done.len(), 200);
        let targets = done.iter().filter_map(target);
        assert!(
            targets
                .into_iter()
                .all(|rank| [0, 1, 2, 4, 5].contains(&rank))
        );
        let kills = done.iter().filter(|deed| matches!(deed, Deed::Kill { .. }));
        assert!((3..60).contains(&kills.count()));
        for deed in &done {
            match deed {
                Deed::Part { rank, from, .. } => {
                    assert!(!from.is_empty() && !from.contains(rank), "{deed:?}");
                }
                Deed::PauseAll { apart, .. } => assert!(*apart <= LEASE, "{deed:?}"),
                Deed::StoreSlow { most, .. } => assert!(*most <= 3 * LEASE, "{deed:?}"),
                Deed::Port { time, .. } => {
                    assert!((100..=10_000).contains(&time.as_millis()), "{deed:?}");
                }
                Deed::CrashLoop { lives, .. } => assert!((1..=4).contains(&lives.len())),
                Deed::Late { time, .. } => {
                    assert!((500..=1500).contains(&time.as_millis()), "{deed:?}");
                }
                Deed::NoPidfd { rank, .. } => assert!(has_own_space(*rank), "{deed:?}"),
                Deed::OneWay { rank, other, .. } => assert!(rank != other, "{deed:?}"),
                Deed::Host { ranks, .. } => {
                    assert!(ranks.len() == 2 && ranks[0] != ranks[1], "{deed:?}");
                }
                Deed::Twice { apart, .. } => {
                    assert!((50..=300).contains(&apart.as_millis()), "{deed:?}");
                }
                _ => {}
            }
        }
        let mut deeds = deeds(7, &[Kind::Kills]);
        assert_eq!(
            deeds.next(&[0, 1, 2], 5, 0),
            None,
            "two of five would be left"
        );
        assert_eq!(deeds.next(&[0, 1, 2, 3], 6, 0), None, "half would be left");
        assert!(deeds.next(&[0, 1, 2], 3, 0).is_some());
    }

    #[test]
    fn pauses_of_all_are_short_and_long_alike_up_to_the_longest() {
        let most = Duration::from_secs(30);
        let mut deeds = deeds(5, &[Kind::PauseAll]).with_longest_pause(Some(most));
        let times: Vec<Duration> = (0..200)
            .map(|_| match deeds.next(&[0, 1, 2], 3, 0).unwrap() {
                Deed::PauseAll { time, .. } => time,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(
            times
                .iter()
                .all(|time| (SHORTEST_PAUSE..=most).contains(time)),
            "{times:?}"
        );
        // The middle of the logarithmic range is sqrt(0.1 * 30).
        let long = times.iter().filter(|time| time.as_secs_f64() > 1.732);
        assert!((60..=140).contains(&long.count()), "{times:?}");
        let mut short = deeds.with_longest_pause(Some(Duration::ZERO));
        let least = short.next(&[0, 1, 2], 3, 0).unwrap();
        assert!(matches!(least, Deed::PauseAll { time, .. } if time == SHORTEST_PAUSE));
    }

    #[test]
    fn so_many_at_once_as_were_asked_for_and_two_ranks_are_left_alone() {
        let mut deeds = Deeds::new(7, &ALL, LEASE, Some(3));
        assert!(deeds.next(&[0, 1, 2, 3], 6, 2).is_some());
        assert_eq!(deeds.next(&[0, 1, 2], 6, 3), None);
        assert_eq!(deeds.next(&[0, 1], 6, 0), None);
    }

    #[test]
    fn a_deed_whose_targets_are_not_there_yet_waits_for_them() {
        let mut host = deeds(7, &[Kind::Host]);
        assert_eq!(
            host.next(&[0, 1, 2, 3, 4], 6, 0),
            None,
            "half would be left"
        );
        let Some(Deed::Host { ranks, .. }) = host.next(&[0, 1, 2, 3, 4, 5], 6, 0) else {
            panic!("six are calm");
        };
        assert!(ranks.len() == 2 && ranks[0] != ranks[1], "{ranks:?}");
        let mut dead = deeds(7, &[Kind::NoPidfd]);
        let next = dead.next(&[0, 2, 4, 6, 8], 6, 0);
        assert_eq!(next, None, "none lives in a namespace");
        let next = dead.next(&[0, 2, 3, 4, 6], 6, 0);
        assert!(
            matches!(next, Some(Deed::NoPidfd { rank: 3, .. })),
            "{next:?}"
        );
    }

    #[test]
    fn every_kind_is_done() {
        let mut deeds = deeds(1, &[]);
        let all: Vec<Deed> = (0..400)
            .map(|_| deeds.next(&[0, 1, 2, 3, 4, 5], 6, 0).unwrap())
            .collect();
        let kinds: std::collections::HashSet<String> = all
            .iter()
            .map(|deed| match deed {
                Deed::Disturb { how, .. } => format!("{how:?}"),
                Deed::Port { rank, .. } => format!("port {}", rank.is_some()),
                _ => format!("{:?}", std::mem::discriminant(deed)),
            })
            .collect();
        assert_eq!(kinds.len(), ALL.len(), "{kinds:?}");
        let rails = all.iter().filter_map(|deed| match deed {
            Deed::Rail { rail, .. } => Some(*rail),
            _ => None,
        });
        let rails: std::collections::BTreeSet<usize> = rails.collect();
        assert_eq!(rails, [0, 1].into());
        let losses = all.iter().filter_map(|deed| match deed {
            Deed::LeaderLoss { stands, .. } => Some(*stands),
            _ => None,
        });
        let losses: std::collections::BTreeSet<bool> = losses.collect();
        assert_eq!(losses.len(), 2, "leaders are killed, and stand still");
    }

    #[test]
    fn what_is_done_depends_neither_on_pauses_nor_on_the_serving_thread() {
        // The deeds are compared without their targets. One machine is slow, and some of its ranks are away when a deed is drawn.
        let done = |slow: bool| {
            let mut deeds = deeds(1, &[]);
            let mut done = Vec::new();
            while done.len() < 100 {
                deeds.pause();
                if slow {
                    assert_eq!(deeds.next(&[0, 1], 7, 0), None);
                    deeds.pause();
                }
                let calm = if slow {
                    &[1, 2, 3, 4, 5, 6][..]
                } else {
                    &[0, 1, 2, 3, 4, 5, 6]
                };
                done.push(match deeds.next(calm, 7, 0).unwrap() {
                    Deed::Kill { .. } => None,
                    Deed::Disturb { how, time, .. } => Some(format!("{how:?} {time:?}")),
                    Deed::Part { from, time, .. } => Some(format!("{} {time:?}", from.len())),
                    Deed::Garbage { key, how, seed, .. } => Some(format!("{key:?} {how:?} {seed}")),
                    Deed::CrashLoop { lives, .. } => Some(format!("{lives:?}")),
                    Deed::Rail { rail, time, .. } => Some(format!("rail {rail} {time:?}")),
                    Deed::Port { rank, time } => Some(format!("{} {time:?}", rank.is_some())),
                    Deed::Late { time, .. } => Some(format!("late {time:?}")),
                    Deed::OneWay { out, time, .. } => Some(format!("one way {out} {time:?}")),
                    Deed::LinkJoiner { time, .. } => Some(format!("joiner {time:?}")),
                    Deed::Twice { apart, .. } => Some(format!("twice {apart:?}")),
                    Deed::NoPidfd { .. } | Deed::Host { .. } | Deed::Arguments { .. } => None,
                    other => Some(format!("{other:?}")),
                });
            }
            done
        };
        assert_eq!(done(false), done(true));
    }

    #[test]
    fn only_what_is_asked_for_is_done() {
        let mut deeds = deeds(3, &[Kind::Kills]);
        for _ in 0..50 {
            let deed = deeds.next(&[0, 1, 2], 3, 0).unwrap();
            assert!(matches!(deed, Deed::Kill { .. }));
        }
    }
}
