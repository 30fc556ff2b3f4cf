//! What chaos does to ranks, by a seed: the same seed chooses the same deeds in the same order, however long the ranks take.
//! The target of a deed depends on which ranks serve at that moment.

use std::time::Duration;

use super::event::Disturbance;

/// Something that can be done to a rank.
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
}

/// Everything.
pub(super) const ALL: [Kind; 5] = [
    Kind::Kills,
    Kind::HostFreezes,
    Kind::KernelFreezes,
    Kind::Freezes,
    Kind::Partitions,
];

/// Something that is done to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// It dies, and comes back after the time.
    Kill { back: Duration },
    /// This for the time.
    Disturb { how: Disturbance, time: Duration },
    /// Nothing passes between it and these for the time.
    Part { from: Vec<u32>, time: Duration },
}

/// Deeds, one after the other.
#[derive(Debug)]
pub(super) struct Deeds {
    /// Of deeds alone, so that pauses, which depend on how the ranks stand, change no deed.
    random: fastrand::Rng,
    /// Of the times between them.
    times: fastrand::Rng,
    kinds: Vec<Kind>,
}

impl Deeds {
    /// Of these kinds; none means all.
    pub(super) fn new(seed: u64, kinds: &[Kind]) -> Self {
        let kinds = if kinds.is_empty() { &ALL[..] } else { kinds };
        let mut random = fastrand::Rng::with_seed(seed);
        Self {
            times: random.fork(),
            random,
            kinds: kinds.to_vec(),
        }
    }

    /// Until the next deed.
    pub(super) fn pause(&mut self) -> Duration {
        Duration::from_millis(self.times.u64(200..2000))
    }

    /// Until one that the others have dropped comes back.
    pub(super) fn back(&mut self) -> Duration {
        Duration::from_millis(self.times.u64(0..1000))
    }

    /// To whom what is done, of `calm`: the ranks that serve and to whom nothing is done now. None when of `ranks` half or fewer
    /// would be left so.
    pub(super) fn next(&mut self, calm: &[u32], ranks: u32) -> Option<(u32, Deed)> {
        if calm.len() as u64 * 2 <= u64::from(ranks) + 2 {
            return None;
        }
        let rank = *self.random.choice(calm)?;
        let kind = *self.random.choice(&self.kinds)?;
        let deed = match kind {
            Kind::Kills => Deed::Kill { back: self.back() },
            Kind::HostFreezes => self.disturb(Disturbance::HostFreeze),
            Kind::KernelFreezes => self.disturb(Disturbance::KernelFreeze),
            Kind::Freezes => self.disturb(Disturbance::Freeze),
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
                Deed::Part { from, time }
            }
        };
        Some((rank, deed))
    }

    fn disturb(&mut self, how: Disturbance) -> Deed {
        let time = self.time();
        Deed::Disturb { how, time }
    }

    /// Half of them too short for anybody to be dropped.
    fn time(&mut self) -> Duration {
        let most = if self.random.bool() { 400 } else { 6000 };
        Duration::from_millis(self.random.u64(50..most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_does_the_same_again_and_most_ranks_are_always_left_alone() {
        let deeds = |seed: u64| {
            let mut deeds = Deeds::new(seed, &[]);
            (0..100)
                .map(|_| (deeds.pause(), deeds.next(&[1, 2, 4, 5], 5)))
                .collect::<Vec<_>>()
        };
        assert_eq!(deeds(7), deeds(7));
        assert_ne!(deeds(7), deeds(8));
        let done: Vec<(u32, Deed)> = deeds(7).into_iter().filter_map(|(_, deed)| deed).collect();
        assert_eq!(done.len(), 100);
        assert!(done.iter().all(|(rank, _)| [1, 2, 4, 5].contains(rank)));
        let kills = done
            .iter()
            .filter(|(_, deed)| matches!(deed, Deed::Kill { .. }));
        assert!((5..60).contains(&kills.count()));
        for (rank, deed) in &done {
            if let Deed::Part { from, .. } = deed {
                assert!(!from.is_empty() && !from.contains(rank), "{rank} {from:?}");
            }
        }
        let mut deeds = Deeds::new(7, &[]);
        assert_eq!(deeds.next(&[0, 1, 2], 5), None, "two of five would be left");
        assert_eq!(deeds.next(&[0, 1, 2, 3], 6), None, "half would be left");
        assert!(deeds.next(&[0, 1, 2], 3).is_some());
    }

    #[test]
    fn what_is_done_does_not_depend_on_pauses_and_on_who_serves() {
        // Kind and length of each deed; one machine takes its time, and some ranks are away when it comes to a deed.
        let done = |slow: bool| {
            let mut deeds = Deeds::new(1, &[]);
            let mut done = Vec::new();
            while done.len() < 50 {
                deeds.pause();
                if slow {
                    assert_eq!(deeds.next(&[0, 1], 6), None);
                    deeds.pause();
                    deeds.back();
                }
                let calm = if slow {
                    &[1, 2, 3, 4, 5][..]
                } else {
                    &[0, 1, 2, 3, 4, 5]
                };
                match deeds.next(calm, 6).unwrap().1 {
                    Deed::Kill { .. } => done.push((None, Duration::ZERO)),
                    Deed::Disturb { how, time } => done.push((Some(how), time)),
                    Deed::Part { time, .. } => done.push((Some(Disturbance::Partition), time)),
                }
            }
            done
        };
        assert_eq!(done(false), done(true));
    }

    #[test]
    fn only_what_is_asked_for_is_done() {
        let mut deeds = Deeds::new(3, &[Kind::Kills]);
        for _ in 0..50 {
            let (_, deed) = deeds.next(&[0, 1, 2], 3).unwrap();
            assert!(matches!(deed, Deed::Kill { .. }));
        }
    }
}
