//! The lines that ranks of a Python program print on standard output, as `python/examples/elastic.py` does:
//!
//! ```text
//! rank 1: process 4711 serves as generation 2
//! rank 0: call 9640: active [1, 1, 1], 0 of 16 tokens lost experts
//! rank 0: call 9641: 3 tokens are wrong
//! rank 0: 4711 steps, 12 tokens lost experts
//! ```

use std::collections::BTreeMap;

/// One line of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The rank makes calls from now on.
    Serves { process: u32, generation: u32 },
    /// A call with other ranks than the call before. These ranks took part, and so many tokens lost experts.
    Call { active: Vec<bool>, lost: u64 },
    /// Some sums of a call are not what they must be.
    Wrong,
    /// The rank has made its last call, after so many tokens lost experts.
    Ended { lost: u64 },
}

impl Line {
    /// Returns the rank and what its line says, or None for a line in other words.
    pub(super) fn parse(line: &str) -> Option<(u32, Self)> {
        let (rank, said) = line.strip_prefix("rank ")?.split_once(": ")?;
        let said = Self::of(said)?;
        Some((rank.parse().ok()?, said))
    }

    fn of(said: &str) -> Option<Self> {
        if let Some(rest) = said.strip_prefix("process ") {
            let (process, generation) = rest.split_once(" serves as generation ")?;
            return Some(Self::Serves {
                process: process.parse().ok()?,
                generation: generation.parse().ok()?,
            });
        }
        if let Some(rest) = said.strip_prefix("call ") {
            let (_, rest) = rest.split_once(": ")?;
            if rest.ends_with("tokens are wrong") {
                return Some(Self::Wrong);
            }
            let (active, rest) = rest.strip_prefix("active [")?.split_once("], ")?;
            let (lost, _) = rest.split_once(" of ")?;
            let active = active.split(", ").map(|one| match one {
                "0" => Some(false),
                "1" => Some(true),
                _ => None,
            });
            return Some(Self::Call {
                active: active.collect::<Option<_>>()?,
                lost: lost.parse().ok()?,
            });
        }
        let (_, rest) = said.split_once(" steps, ")?;
        let (lost, _) = rest.split_once(" tokens lost experts")?;
        let lost = lost.parse().ok()?;
        Some(Self::Ended { lost })
    }
}

/// How the ranks stand, by what they have said.
#[derive(Debug)]
pub(super) struct Standing {
    ranks: u32,
    /// The process and generation of each rank that serves.
    serving: BTreeMap<u32, (u32, u32)>,
    /// The ranks that took part in the newest call that each rank has reported, and how many of its tokens lost experts.
    active: BTreeMap<u32, (Vec<bool>, u64)>,
    /// The tokens that lost experts, of each rank that has made its last call.
    ended: BTreeMap<u32, u64>,
}

impl Standing {
    pub(super) fn new(ranks: u32) -> Self {
        Self {
            ranks,
            serving: BTreeMap::new(),
            active: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    /// Notes what `rank` says. Returns an error if the rank may not say that.
    pub(super) fn hear(&mut self, rank: u32, said: Line) -> Result<(), String> {
        match said {
            Line::Wrong => return Err("its sums are wrong".to_owned()),
            Line::Serves {
                process,
                generation,
            } => {
                let before = self.serving.insert(rank, (process, generation));
                if let Some((process, generation)) = before {
                    return Err(format!(
                        "generation {generation}, process {process}, is replaced, and no deed has killed it"
                    ));
                }
            }
            Line::Call { active, lost } => {
                if active.len() != self.ranks as usize {
                    return Err(format!("it tells of {} ranks", active.len()));
                }
                self.active.insert(rank, (active, lost));
            }
            Line::Ended { lost } => {
                self.ended.insert(rank, lost);
            }
        }
        Ok(())
    }

    /// Forgets `rank`, which is about to die. Returns its process and generation.
    pub(super) fn strike(&mut self, rank: u32) -> Option<(u32, u32)> {
        self.active.remove(&rank);
        self.serving.remove(&rank)
    }

    /// Returns whether every rank has reported a call with all ranks, in which it lost nothing.
    pub(super) fn is_whole(&self) -> bool {
        let whole = |(active, lost): &(Vec<bool>, u64)| !active.contains(&false) && *lost == 0;
        self.active.len() == self.ranks as usize && self.active.values().all(whole)
    }

    /// Returns whether all others have reported a call without `rank`.
    pub(super) fn have_missed(&self, rank: u32) -> bool {
        let others = self.active.iter().filter(|(other, _)| **other != rank);
        let missed = others.filter(|(_, (active, _))| !active[rank as usize]);
        missed.count() + 1 == self.ranks as usize
    }

    /// Returns the ranks that have made their last call, with their tokens that lost experts.
    pub(super) fn ended(&self) -> &BTreeMap<u32, u64> {
        &self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_example_are_read_and_others_are_not() {
        let call = |active: &[bool], lost| Line::Call {
            active: active.to_vec(),
            lost,
        };
        for (line, wanted) in [
            (
                "rank 1: process 4711 serves as generation 2",
                Some((
                    1,
                    Line::Serves {
                        process: 4711,
                        generation: 2,
                    },
                )),
            ),
            (
                "rank 0: call 9640: active [1, 0, 1], 5 of 16 tokens lost experts",
                Some((0, call(&[true, false, true], 5))),
            ),
            ("rank 2: call 7: 3 tokens are wrong", Some((2, Line::Wrong))),
            (
                "rank 12: 4711 steps, 12 tokens lost experts",
                Some((12, Line::Ended { lost: 12 })),
            ),
            ("", None),
            ("rank 1", None),
            ("rank one: 1 steps, 1 tokens lost experts", None),
            ("rank 1: process x serves as generation 2", None),
            ("rank 1: call 7: active [1, 2], 0 of 16 tokens lost", None),
            ("rank 1: call 7: active [1, 1], many of 16", None),
            ("rank 1 has lost its place: torchrun starts it again", None),
        ] {
            assert_eq!(Line::parse(line), wanted, "{line}");
        }
    }

    fn call(standing: &mut Standing, rank: u32, active: [u8; 3], lost: u64) {
        let active = active.map(|one| one == 1).to_vec();
        standing.hear(rank, Line::Call { active, lost }).unwrap();
    }

    #[test]
    fn a_death_is_missed_by_all_others_and_then_all_are_whole_again() {
        let mut standing = Standing::new(3);
        for rank in 0..3 {
            let serves = Line::Serves {
                process: 100 + rank,
                generation: 1,
            };
            standing.hear(rank, serves).unwrap();
            assert!(!standing.is_whole());
            call(&mut standing, rank, [1; 3], 0);
        }
        assert!(standing.is_whole() && !standing.have_missed(1));
        assert_eq!(standing.strike(1), Some((101, 1)));
        assert_eq!(standing.strike(1), None);
        assert!(!standing.is_whole());
        call(&mut standing, 0, [1, 0, 1], 3);
        assert!(!standing.have_missed(1), "rank 2 has said nothing");
        call(&mut standing, 2, [1, 0, 1], 2);
        assert!(standing.have_missed(1));
        call(&mut standing, 0, [1; 3], 0);
        call(&mut standing, 1, [1; 3], 0);
        call(&mut standing, 2, [1; 3], 1);
        assert!(!standing.is_whole(), "rank 2 has lost a token");
        call(&mut standing, 2, [1; 3], 0);
        assert!(standing.is_whole());
        standing.hear(1, Line::Ended { lost: 7 }).unwrap();
        assert_eq!(standing.ended().get(&1), Some(&7));
    }

    #[test]
    fn what_may_not_be_is_refused() {
        let mut standing = Standing::new(3);
        let serves = |process| Line::Serves {
            process,
            generation: 1,
        };
        standing.hear(0, serves(7)).unwrap();
        let replaced = standing.hear(0, serves(8)).unwrap_err();
        assert_eq!(
            replaced,
            "generation 1, process 7, is replaced, and no deed has killed it"
        );
        let wrong = standing.hear(0, Line::Wrong).unwrap_err();
        assert_eq!(wrong, "its sums are wrong");
        let active = vec![true; 2];
        let short = standing.hear(0, Line::Call { active, lost: 0 });
        assert_eq!(short.unwrap_err(), "it tells of 2 ranks");
    }
}
