//! Crossings: the rails by which a lane leaves and enters.

use crate::engine::limits::MOST_RAILS;

/// The value that stands for a rail in lanes that copy within the machine.
pub(in crate::engine) const NO_RAIL: usize = MOST_RAILS;

/// The rail by which a lane leaves, and the rail by which it enters. A lane that copies leaves by [`NO_RAIL`], and names the peer's memory
/// by rail 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Crossing {
    pub(in crate::engine) own: usize,
    pub(in crate::engine) theirs: usize,
}

/// The numbers of rails of both ends of a connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct RailCounts {
    pub(in crate::engine) own: usize,
    pub(in crate::engine) theirs: usize,
}

/// Rails that may be dead: at most one of each end.
#[derive(Clone, Copy)]
struct Dead {
    own: Option<usize>,
    theirs: Option<usize>,
}

impl Crossing {
    /// Returns the crossing of lane `lane`: the lanes use the rails of both ends in turn.
    pub(in crate::engine) fn of_lane(lane: usize, rails: RailCounts) -> Self {
        Self {
            own: lane % rails.own.max(1),
            theirs: lane % rails.theirs.max(1),
        }
    }

    /// Returns the crossing of lane `lane` such that every rail of one end meets every rail of the other, as far as the lanes suffice. Both
    /// ends compute the same crossings: `is_first` is true at the end that has connected.
    pub(in crate::engine) fn of_near_lane(lane: usize, rails: RailCounts, is_first: bool) -> Self {
        let (own, theirs) = (rails.own.max(1), rails.theirs.max(1));
        let (firsts, seconds) = if is_first {
            (own, theirs)
        } else {
            (theirs, own)
        };
        let first = lane % firsts;
        let second = (first + lane / firsts) % seconds;
        if is_first {
            Self {
                own: first,
                theirs: second,
            }
        } else {
            Self {
                own: second,
                theirs: first,
            }
        }
    }

    /// Returns how doubtful a lane with this crossing is for a slice that has failed by lanes with the crossings `failed`. The lane with
    /// the smaller pair is better.
    ///
    /// At most one rail of each end may be dead. The first number counts the guesses at dead rails that explain all failures and
    /// concern this lane. The second number counts the rails that this lane shares with those that have failed.
    pub(in crate::engine) fn doubts(self, failed: &[Self]) -> (usize, usize) {
        let tried = |rail: fn(&Self) -> usize| {
            let rails = (0..=NO_RAIL).filter(move |it| failed.iter().any(|lane| rail(lane) == *it));
            rails.map(Some).chain([None])
        };
        let guesses = tried(|it| it.own)
            .flat_map(|own| tried(|it| it.theirs).map(move |theirs| Dead { own, theirs }));
        let explains =
            |dead: &Dead| failed.iter().all(|lane| lane.goes_by(*dead)) && self.goes_by(*dead);
        let shares = |lane: &Self| {
            let own = Dead {
                own: Some(lane.own),
                theirs: None,
            };
            let theirs = Dead {
                own: None,
                theirs: Some(lane.theirs),
            };
            let rails = [own, theirs].map(|rail| self.goes_by(rail) && lane.goes_by(rail));
            rails.into_iter().filter(|is_shared| *is_shared).count() + usize::from(self == *lane)
        };
        (
            guesses.filter(explains).count(),
            failed.iter().map(shares).sum(),
        )
    }

    /// Returns whether the lane leaves by the dead rail of this side, or enters by the dead rail of the peer. Lanes that copy enter by no
    /// rail.
    fn goes_by(self, dead: Dead) -> bool {
        dead.own == Some(self.own) || self.own != NO_RAIL && dead.theirs == Some(self.theirs)
    }
}

/// Returns the number of a rail as programs see it. Returns None for a lane that copies.
pub(in crate::engine) fn number_of(rail: usize) -> Option<u32> {
    let rail = u32::try_from(rail).ok()?;
    (rail as usize != NO_RAIL).then_some(rail)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::engine::limits::MOST_QPS;

    fn rails(own: usize, theirs: usize) -> RailCounts {
        RailCounts { own, theirs }
    }

    #[test]
    fn where_an_end_asks_for_near_rails_all_of_both_ends_meet() {
        for (own, theirs) in [(1, 1), (2, 2), (2, 1), (1, 3), (2, 4), (4, 2)] {
            let crossings = |is_first, rails| -> Vec<(usize, usize)> {
                let lanes = 0..MOST_QPS;
                let lanes = lanes.map(|lane| Crossing::of_near_lane(lane, rails, is_first));
                lanes.map(|it| (it.own, it.theirs)).collect()
            };
            let here = crossings(true, rails(own, theirs));
            let there: Vec<_> = crossings(false, rails(theirs, own))
                .into_iter()
                .map(|(own, theirs)| (theirs, own))
                .collect();
            assert_eq!(here, there);
            let pairs: HashSet<_> = here.into_iter().collect();
            assert_eq!(pairs.len(), own * theirs);
        }
    }

    #[test]
    fn lanes_go_round_the_rails_of_both_ends() {
        let crossings = |own, theirs| -> Vec<(usize, usize)> {
            let lanes = (0..4).map(|lane| Crossing::of_lane(lane, rails(own, theirs)));
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
        // After one failure either rail may be dead, or both.
        let failed = [of(0, 0)];
        let all = [of(1, 1), copies, of(0, 1), of(1, 0), of(0, 0)];
        let found = all.map(|lane| against(lane, &failed));
        assert_eq!(found, [(0, 0), (0, 0), (2, 1), (2, 1), (3, 3)]);
        // After two failures by one rail that rail is dead.
        let failed = [of(0, 0), of(1, 0)];
        let found = [of(0, 1), of(1, 1), of(2, 0)].map(|lane| against(lane, &failed));
        assert_eq!(found, [(1, 1), (1, 1), (3, 2)]);
        assert_eq!(against(copies, &[copies]), (2, 2));
        // No dead rails explain these failures. The best lane has no rail in common with them.
        let failed = [of(0, 0), of(1, 1), of(2, 2)];
        assert_eq!(
            [of(3, 3), of(3, 0)].map(|lane| against(lane, &failed)),
            [(0, 0), (0, 1)]
        );
    }
}
