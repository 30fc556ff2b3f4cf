//! Whom the next view keeps: the largest set of members that all reach each other.
//!
//! A suspicion is a row of a matrix: rank r could not reach rank s. It says nothing about who of both is ill: a rank with a
//! broken NIC suspects everybody, and everybody suspects it. So the set that stays is the largest one in which nobody suspects
//! anybody; of several, the one that holds the lowest slots.
//!
//! While only some have spoken, that set is a guess: of the first pair that is found, either may be ill. So a rank goes when it
//! is in a pair with everybody who stays, and not before, unless a pair has stood for so long that the others had their time.

use std::collections::{BTreeMap, BTreeSet};

/// Steps of the search after which it takes what it has: far beyond what any real matrix needs.
const MOST_STEPS: u32 = 200_000;

/// Who suspects whom, by rank slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Suspicions {
    /// By lower slot, then higher: pairs of which at least one suspects the other; whether one of them has to go, whatever others
    /// say.
    pairs: BTreeMap<(u32, u32), bool>,
}

impl Suspicions {
    /// `rank` suspects `of`. A suspicion of oneself says nothing.
    pub(crate) fn doubt(&mut self, rank: u32, of: u32) {
        if rank != of {
            self.pairs.entry(ordered(rank, of)).or_default();
        }
    }

    /// The same for so long that one of both has to go, whatever others say.
    pub(crate) fn add(&mut self, rank: u32, of: u32) {
        if rank != of {
            self.pairs.insert(ordered(rank, of), true);
        }
    }

    /// Those of `members` who stay.
    pub(crate) fn kept(&self, members: &BTreeSet<u32>) -> BTreeSet<u32> {
        let best = self.largest_without(members);
        let goes = |rank: u32| {
            let pair = |other: &u32| self.pairs.get(&ordered(rank, *other));
            best.iter().all(|other| pair(other).is_some())
                || best.iter().any(|other| pair(other) == Some(&true))
        };
        let stays = |rank: &u32| best.contains(rank) || !goes(*rank);
        members.iter().copied().filter(stays).collect()
    }

    /// The largest subset of `members` without a pair; of several, the one with the lowest slots.
    fn largest_without(&self, members: &BTreeSet<u32>) -> BTreeSet<u32> {
        let inside = |&&(a, b): &&(u32, u32)| members.contains(&a) && members.contains(&b);
        let edges: Vec<(u32, u32)> = self.pairs.keys().filter(inside).copied().collect();
        let mut search = Search {
            steps: 0,
            best: first_come(&edges),
        };
        search.cover(edges, BTreeSet::new());
        members.difference(&search.best).copied().collect()
    }
}

/// The lower one first.
fn ordered(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}

/// A cover that is always there: of each pair that is left, the higher slot.
fn first_come(edges: &[(u32, u32)]) -> BTreeSet<u32> {
    let mut cover = BTreeSet::new();
    for &(low, high) in edges {
        if !cover.contains(&low) {
            cover.insert(high);
        }
    }
    cover
}

/// Looks for the smallest set of ranks that leaves no pair: those who go.
struct Search {
    steps: u32,
    best: BTreeSet<u32>,
}

impl Search {
    /// Tries all ways to cover `edges` on top of `gone`, the best first.
    fn cover(&mut self, mut edges: Vec<(u32, u32)>, mut gone: BTreeSet<u32>) {
        self.steps += 1;
        loop {
            if gone.len() > self.best.len() {
                return;
            }
            let Some((rank, degree)) = busiest(&edges) else {
                if better(&gone, &self.best) {
                    self.best = gone;
                }
                return;
            };
            // Who is in more pairs than may still go one by one, goes himself.
            let room = self.best.len() - gone.len();
            if room == 0 {
                return;
            }
            if degree > room {
                gone.insert(rank);
                edges.retain(|&(a, b)| a != rank && b != rank);
                continue;
            }
            if self.steps >= MOST_STEPS {
                return;
            }
            let touches = |&&(a, b): &&(u32, u32)| a == rank || b == rank;
            let others: BTreeSet<u32> = edges
                .iter()
                .filter(touches)
                .map(|&(a, b)| if a == rank { b } else { a })
                .collect();
            // He goes, or all whom he is in a pair with go.
            for leave in [BTreeSet::from([rank]), others] {
                let left = |(a, b): &(u32, u32)| !leave.contains(a) && !leave.contains(b);
                let rest = edges.iter().copied().filter(left).collect();
                self.cover(rest, gone.union(&leave).copied().collect());
            }
            return;
        }
    }
}

/// Fewer go, or as many but of higher slots.
fn better(gone: &BTreeSet<u32>, best: &BTreeSet<u32>) -> bool {
    if gone.len() != best.len() {
        return gone.len() < best.len();
    }
    // The lowest slot in which both differ stays in the better one.
    let differs = gone.symmetric_difference(best).next();
    differs.is_some_and(|slot| best.contains(slot))
}

/// The rank in most pairs, the highest of several; none without a pair.
fn busiest(edges: &[(u32, u32)]) -> Option<(u32, usize)> {
    let mut degrees = BTreeMap::<u32, usize>::new();
    for &(a, b) in edges {
        *degrees.entry(a).or_default() += 1;
        *degrees.entry(b).or_default() += 1;
    }
    degrees
        .into_iter()
        .max_by_key(|&(rank, degree)| (degree, rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(slots: impl IntoIterator<Item = u32>) -> BTreeSet<u32> {
        slots.into_iter().collect()
    }

    fn suspicions(pairs: impl IntoIterator<Item = (u32, u32)>) -> Suspicions {
        let mut found = Suspicions::default();
        for (rank, of) in pairs {
            found.add(rank, of);
        }
        found
    }

    #[test]
    fn a_rank_with_a_broken_nic_goes_although_it_suspects_everybody() {
        let all = slots(0..8);
        let ill = suspicions((0..8).map(|of| (3, of)));
        let both_ways = suspicions((0..8).flat_map(|of| [(3, of), (of, 3)]));
        for found in [ill, both_ways] {
            assert_eq!(found.largest_without(&all), slots([0, 1, 2, 4, 5, 6, 7]));
        }
    }

    fn doubts(pairs: impl IntoIterator<Item = (u32, u32)>) -> Suspicions {
        let mut found = Suspicions::default();
        for (rank, of) in pairs {
            found.doubt(rank, of);
        }
        found
    }

    #[test]
    fn of_the_first_pair_that_is_found_nobody_goes_before_the_others_have_spoken() {
        let all = slots(0..4);
        // Rank 0 has lost its NIC, and is the first to say so: of rank 1.
        assert_eq!(doubts([(0, 1)]).kept(&all), all);
        assert_eq!(doubts([(0, 1), (2, 0)]).kept(&all), all);
        assert_eq!(doubts([(0, 1), (2, 0), (0, 3)]).kept(&all), slots(1..4));
        // Nobody else ever says anything: the link between the two is broken.
        let mut found = doubts([(2, 3)]);
        found.add(0, 1);
        assert_eq!(found.kept(&all), slots([0, 2, 3]));
        // Two have nobody to ask.
        assert_eq!(doubts([(0, 1)]).kept(&slots(0..2)), slots([0]));
    }

    #[test]
    fn who_is_found_ill_by_all_goes_while_others_are_still_in_doubt() {
        let found = doubts([(4, 0), (4, 1), (4, 2), (4, 3), (1, 2)]);
        assert_eq!(found.kept(&slots(0..5)), slots(0..4));
        // The first who finds two dead does not go for them.
        let found = doubts([(4, 0), (4, 3)]);
        assert_eq!(found.kept(&slots(0..5)), slots(0..5));
    }

    #[test]
    fn of_two_that_suspect_each_other_the_lower_slot_stays() {
        let found = suspicions([(1, 0)]);
        assert_eq!(found.largest_without(&slots([0, 1])), slots([0]));
        assert_eq!(found.largest_without(&slots([1, 2])), slots([1, 2]));
        assert_eq!(found.largest_without(&slots([])), slots([]));
        assert_eq!(
            suspicions([(4, 4)]).largest_without(&slots([4])),
            slots([4])
        );
    }

    #[test]
    fn of_two_halves_of_a_network_the_larger_stays_and_of_equal_ones_that_with_the_lowest_slot() {
        let between = |left: &[u32], right: &[u32]| {
            let pairs = left
                .iter()
                .flat_map(|&a| right.iter().map(move |&b| (a, b)));
            suspicions(pairs.collect::<Vec<_>>())
        };
        let all = slots(0..7);
        let found = between(&[0, 1, 2], &[3, 4, 5, 6]);
        assert_eq!(found.largest_without(&all), slots(3..7));
        let found = between(&[0, 5, 6], &[1, 2, 3]);
        assert_eq!(
            found.largest_without(&slots([0, 1, 2, 3, 5, 6])),
            slots([0, 5, 6])
        );
    }

    /// By trying all subsets.
    fn by_trial(found: &Suspicions, members: u32) -> BTreeSet<u32> {
        let sets =
            (0..1u32 << members).map(|mask| slots((0..members).filter(|r| mask >> r & 1 == 1)));
        let good = sets.filter(|set| {
            let whole = |&(a, b): &(u32, u32)| !(set.contains(&a) && set.contains(&b));
            found.pairs.keys().all(whole)
        });
        let gone = |set: &BTreeSet<u32>| slots((0..members).filter(|r| !set.contains(r)));
        good.reduce(|best, set| match better(&gone(&set), &gone(&best)) {
            true => set,
            false => best,
        })
        .unwrap()
    }

    #[test]
    fn random_matrices_agree_with_the_trial_of_all_subsets() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for case in 0..400 {
            let members = random.u32(1..11);
            let mut found = Suspicions::default();
            for _ in 0..random.u32(0..20) {
                found.add(random.u32(..members), random.u32(..members));
            }
            assert_eq!(
                found.largest_without(&slots(0..members)),
                by_trial(&found, members),
                "seed {seed}, case {case}: {found:?}"
            );
        }
    }

    #[test]
    fn a_thousand_ranks_of_which_some_are_ill_are_sorted_out() {
        let mut found = Suspicions::default();
        for ill in [7, 500, 1023] {
            for of in 0..1024 {
                found.add(ill, of);
            }
        }
        found.add(12, 13);
        let kept = found.largest_without(&slots(0..1024));
        assert_eq!(kept.len(), 1020);
        assert!(kept.contains(&12) && !kept.contains(&13));
    }
}
