//! Dispatch as a scalar loop: which rows each rank receives, and in which order.
//!
//! A rank receives rows in the order of the ranks that sent them, and the rows of one rank in the order of its tokens.

use crate::{Batch, Homes, Shape};

/// The source of a row of a dispatch output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The rank that sent the row.
    pub rank: u32,
    /// The row in that rank's input.
    pub token: u32,
}

/// One row of a rank-major output.
#[derive(Clone, Debug, PartialEq)]
pub struct RankRow {
    /// The row in its rank's input.
    pub token: u32,
    /// The local number, at this rank, of the expert of each choice k. -1: the choice is none, or its expert lives elsewhere.
    pub experts: Vec<i32>,
    /// The weight of each choice k. 0 where `experts` is -1.
    pub weights: Vec<f32>,
}

/// Returns the expert slots that the choices of `rank`'s batch go to, `[tokens, top_k]`, among slots at ranks that are `alive`. `None`: no
/// choice, or an expert that no living rank holds.
///
/// # Panics
/// If the batch has 2^32 tokens.
#[must_use]
pub fn choose(
    shape: &Shape,
    homes: &Homes,
    rank: u32,
    batch: Batch<'_>,
    alive: impl Fn(u32) -> bool,
) -> Vec<Option<u32>> {
    let slot = |(index, &expert): (usize, &i32)| {
        let token = u32::try_from(index / shape.top_k).expect("fewer than 2^32 tokens");
        homes.choose(expert, token, rank, &alive)
    };
    batch.experts.iter().enumerate().map(slot).collect()
}

/// Returns what `rank` receives of a dispatch in which all ranks take part. The result has one list for each of its expert slots: the
/// sources of its rows, in order.
///
/// # Panics
/// If a batch was not checked.
#[must_use]
pub fn dispatch(
    shape: &Shape,
    homes: &Homes,
    batches: &[Batch<'_>],
    rank: u32,
) -> Vec<Vec<Source>> {
    let chosen = (0u32..).zip(batches);
    let chosen: Vec<_> = chosen
        .map(|(source, &batch)| choose(shape, homes, source, batch, |_| true))
        .collect();
    dispatch_chosen(shape, homes, &chosen, rank)
}

/// As `dispatch`, for the slots that each rank has [chosen](choose).
///
/// # Panics
/// If `chosen` names a slot that `homes` lacks.
#[must_use]
pub fn dispatch_chosen(
    shape: &Shape,
    homes: &Homes,
    chosen: &[Vec<Option<u32>>],
    rank: u32,
) -> Vec<Vec<Source>> {
    let mut rows = vec![Vec::new(); homes.of_rank(rank).len()];
    for (source, chosen) in (0u32..).zip(chosen) {
        for (token, slots) in (0u32..).zip(chosen.chunks_exact(shape.top_k)) {
            let served = slots.iter().flatten();
            for home in served.map(|&slot| homes.home(slot)) {
                if home.rank == rank {
                    rows[home.local as usize].push(Source {
                        rank: source,
                        token,
                    });
                }
            }
        }
    }
    rows
}

/// Returns the rows that `rank` receives, by the rank that sent them. `chosen[r]` are the slots that rank r's choices go to (see
/// [`choose`]).
///
/// # Panics
/// If `chosen` names a slot that `homes` lacks.
#[must_use]
pub fn dispatch_by_rank(
    shape: &Shape,
    homes: &Homes,
    batches: &[Batch<'_>],
    chosen: &[Vec<Option<u32>>],
    rank: u32,
) -> Vec<Vec<RankRow>> {
    let top_k = shape.top_k;
    let local = |slot: Option<u32>| {
        let home = homes.home(slot?);
        (home.rank == rank)
            .then(|| i32::try_from(home.local).expect("fewer than 2^31 slots of a rank"))
    };
    let of_source = |(batch, chosen): (&Batch<'_>, &Vec<Option<u32>>)| {
        let mut rows = Vec::new();
        let tokens = chosen
            .chunks_exact(top_k)
            .zip(batch.weights.chunks_exact(top_k));
        for (token, (slots, weights)) in (0u32..).zip(tokens) {
            let experts: Vec<Option<i32>> = slots.iter().map(|&slot| local(slot)).collect();
            if experts.iter().all(Option::is_none) {
                continue;
            }
            let weights = experts.iter().zip(weights);
            rows.push(RankRow {
                token,
                weights: weights
                    .map(|(e, &w)| if e.is_some() { w } else { 0.0 })
                    .collect(),
                experts: experts.into_iter().map(|e| e.unwrap_or(-1)).collect(),
            });
        }
        rows
    };
    batches.iter().zip(chosen).map(of_source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Returns;

    /// Returns choices of a rank, with weights. It has no tokens, which these tests do not look at.
    fn batch<'a>(experts: &'a [i32], weights: &'a [f32]) -> Batch<'a> {
        Batch {
            experts,
            weights: &weights[..experts.len()],
            ..Batch::default()
        }
    }

    fn shape(top_k: usize) -> Shape {
        Shape {
            hidden: 8,
            experts: 4,
            top_k,
            max_tokens: 4,
            returns: Returns::Sums,
        }
    }

    fn source(rank: u32, token: u32) -> Source {
        Source { rank, token }
    }

    #[test]
    fn rows_come_in_the_order_of_rank_and_token() {
        let batches = [&[0, 2, 1, 0][..], &[], &[-1, 2, 0, -1]].map(|ids| batch(ids, &[0.5; 4]));
        let homes = Homes::blocks(3, 2);
        assert_eq!(
            dispatch(&shape(2), &homes, &batches, 0),
            [
                vec![source(0, 0), source(0, 1), source(2, 1)],
                vec![source(0, 1)]
            ]
        );
        assert_eq!(
            dispatch(&shape(2), &homes, &batches, 1),
            [[source(0, 0), source(2, 0)]]
        );
    }

    #[test]
    fn a_replica_at_the_own_rank_gets_the_token() {
        let batches = [&[0, 1, 0, 2][..], &[0, 2]].map(|ids| batch(ids, &[0.5; 4]));
        let homes = Homes::from_slots(3, vec![vec![0], vec![1, 0]]).unwrap();
        assert_eq!(
            dispatch(&shape(2), &homes, &batches, 0),
            [[source(0, 0), source(0, 1)]]
        );
        assert_eq!(
            dispatch(&shape(2), &homes, &batches, 1),
            [[source(0, 0)], [source(1, 0)]]
        );
    }

    #[test]
    fn a_rank_keeps_each_token_once_with_the_choices_that_live_there() {
        let weights = [0.5, 0.25, 0.125, 9.0, 2.0, 9.0];
        let batches = [batch(&[0, 3, 1, -1, 2, -1], &weights), Batch::default()];
        let (shape, homes) = (shape(3), Homes::blocks(4, 2));
        let chosen = batches.map(|batch| choose(&shape, &homes, 0, batch, |_| true));
        let rows = dispatch_by_rank(&shape, &homes, &batches, &chosen, 1);
        let row = |token, experts: [i32; 3], weights: [f32; 3]| RankRow {
            token,
            experts: experts.to_vec(),
            weights: weights.to_vec(),
        };
        assert_eq!(
            rows[0],
            [
                row(0, [-1, 1, -1], [0.0, 0.25, 0.0]),
                row(1, [-1, 0, -1], [0.0, 2.0, 0.0])
            ]
        );
        assert!(rows[1].is_empty());
    }
}
