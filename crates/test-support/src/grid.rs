//! Samples of the cells of a grid. In a sample every pair of values occurs that occurs in any cell.

use std::collections::{BTreeMap, BTreeSet};

/// A cell of a grid: a value for each dimension.
pub type Point = Vec<usize>;

/// A value of one dimension and a value of a later dimension: each as the dimension and the value's index.
type Pair = (usize, usize, usize, usize);

/// The number of cells that are looked at for each cell that is taken.
const CANDIDATES: usize = 60;

/// Returns the cells of a grid that `exists` accepts. `sizes` has the number of values in each dimension.
pub fn all(sizes: &[usize], exists: impl Fn(&Point) -> bool) -> Vec<Point> {
    let mut points = vec![Vec::new()];
    for &size in sizes {
        let longer = |point: &Point| {
            let point = point.clone();
            (0..size).map(move |value| [point.as_slice(), &[value]].concat())
        };
        points = points.iter().flat_map(longer).collect();
    }
    points.retain(exists);
    points
}

/// Returns the pairs of values of a cell.
pub fn pairs(point: &[usize]) -> impl Iterator<Item = Pair> + '_ {
    let later = move |first: usize| (first + 1..point.len()).map(move |second| (first, second));
    (0..point.len())
        .flat_map(later)
        .map(|(first, second)| (first, point[first], second, point[second]))
}

/// Returns some of `points`, in which every pair of values occurs that occurs in any of them. Equal seeds give equal samples.
///
/// The choice is greedy: of some cells that have a missing pair, it takes the cell with the most missing pairs.
pub fn sample(points: &[Point], seed: u64) -> Vec<Point> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut order: Vec<&Point> = points.iter().collect();
    random.shuffle(&mut order);
    let mut missing: BTreeSet<Pair> = points.iter().flat_map(|point| pairs(point)).collect();
    let mut taken = Vec::new();
    while let Some(&(first, a, second, b)) =
        missing.iter().nth(random.usize(..missing.len().max(1)))
    {
        random.shuffle(&mut order);
        let has = |point: &&&Point| point[first] == a && point[second] == b;
        let gain = |point: &&&Point| pairs(point).filter(|pair| missing.contains(pair)).count();
        let best = order.iter().filter(has).take(CANDIDATES).max_by_key(gain);
        let best = (*best.expect("every pair is of some cell")).clone();
        for pair in pairs(&best) {
            missing.remove(&pair);
        }
        taken.push(best);
    }
    taken
}

/// Returns one of `points` for each combination of values in the first `dimensions`. Equal seeds give equal results.
pub fn one_of_each(points: &[Point], dimensions: usize, seed: u64) -> Vec<Point> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut by_start: BTreeMap<&[usize], Vec<&Point>> = BTreeMap::new();
    for point in points {
        by_start
            .entry(&point[..dimensions])
            .or_default()
            .push(point);
    }
    let draw = |those: &Vec<&Point>| those[random.usize(..those.len())].clone();
    by_start.values().map(draw).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Pair, Point, all, one_of_each, pairs, sample};

    #[test]
    fn one_of_each_has_every_start_once_and_draws_every_end() {
        let points = all(&[3, 4, 5], |point| point[0] != 2 || point[2] == 3);
        let mut ends = BTreeSet::new();
        for seed in 0..20 {
            let taken = one_of_each(&points, 2, seed);
            let starts: BTreeSet<&[usize]> = taken.iter().map(|point| &point[..2]).collect();
            assert_eq!((taken.len(), starts.len()), (12, 12), "seed {seed}");
            assert!(
                taken.iter().all(|point| points.contains(point)),
                "seed {seed}"
            );
            ends.extend(taken.iter().map(|point| point[2]));
        }
        assert_eq!(ends.len(), 5);
        assert_eq!(one_of_each(&points, 2, 7), one_of_each(&points, 2, 7));
    }

    #[test]
    fn every_pair_that_exists_is_in_the_sample_and_no_cell_that_does_not() {
        let sizes = [4, 2, 3, 5, 2];
        // A cell with the second value of the last dimension needs the first value of the second dimension. Two other values exclude each
        // other, so the two widest dimensions have 19 pairs.
        let exists = |point: &Point| !matches!(point[..], [_, 1, _, _, 1] | [3, _, _, 4, _]);
        let points = all(&sizes, exists);
        assert_eq!(points.len(), (240 - 12) * 3 / 4);
        let want: BTreeSet<Pair> = points.iter().flat_map(|point| pairs(point)).collect();
        for seed in 0..20 {
            let sample = sample(&points, seed);
            assert!(sample.iter().all(exists), "seed {seed}");
            let have: BTreeSet<Pair> = sample.iter().flat_map(|point| pairs(point)).collect();
            assert_eq!(have, want, "seed {seed}");
            assert!(
                (19..40).contains(&sample.len()),
                "seed {seed}: {} cells",
                sample.len()
            );
        }
        assert_eq!(sample(&points, 3), sample(&points, 3));
        assert_ne!(sample(&points, 3), sample(&points, 4));
    }

    #[test]
    fn a_grid_of_one_cell_is_its_own_sample_and_an_empty_one_has_none() {
        assert_eq!(sample(&all(&[1, 1], |_| true), 1), [vec![0, 0]]);
        assert_eq!(sample(&all(&[3, 3], |_| false), 1), Vec::<Point>::new());
    }
}
