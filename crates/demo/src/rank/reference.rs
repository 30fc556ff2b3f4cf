//! The reference implementation (crate `moe-reference`), called with the types of the library. The tests have their own such functions in
//! test-support, on which a program that users get does not depend.

use moe_reference::format::Scales;
use moe_reference::{self as reference, Expected, Homes, Returns, Shape};
use warpverbs::moe::{self, Batch, MoeConfig, Placement, Source};

/// Returns a layer's shape. Layers of the demo send sums back.
fn shape(config: &MoeConfig) -> Shape {
    Shape {
        hidden: config.hidden as usize,
        experts: config.experts as usize,
        top_k: config.top_k as usize,
        max_tokens: config.max_tokens as usize,
        returns: Returns::Sums,
    }
}

/// Returns where the experts of a layer are.
fn homes(placement: &Placement) -> Homes {
    let held = (0u32..).take(placement.ranks());
    let held = held.map(|rank| placement.of_rank(rank).to_vec()).collect();
    Homes::from_slots(placement.experts(), held).expect("no expert is twice at a rank")
}

/// Returns a rank's input as the reference implementation takes it, without a copy.
fn batch(batch: &Batch) -> reference::Batch<'_> {
    reference::Batch {
        x: &batch.x,
        experts: &batch.experts,
        weights: &batch.weights,
    }
}

/// Returns the scales of FP8 as the reference implementation calls them.
pub(super) fn scales(kind: moe::Scales) -> Scales {
    match kind {
        moe::Scales::F32 => Scales::F32,
        moe::Scales::PowerOfTwo => Scales::PowerOfTwo,
        moe::Scales::Ue8m0 => Scales::Ue8m0,
    }
}

/// Returns what `rank` receives: by expert, the sources of its rows.
pub(super) fn dispatch(
    config: &MoeConfig,
    placement: &Placement,
    batches: &[Batch],
    rank: u32,
) -> Vec<Vec<Source>> {
    let batches: Vec<_> = batches.iter().map(batch).collect();
    let rows = reference::dispatch(&shape(config), &homes(placement), &batches, rank);
    let source = |row: reference::Source| Source {
        rank: row.rank,
        token: row.token,
    };
    let of_expert = |rows: Vec<_>| rows.into_iter().map(source).collect();
    rows.into_iter().map(of_expert).collect()
}

/// Returns the sums of `rank`'s tokens, BF16 bits.
pub(super) fn combine(
    config: &MoeConfig,
    placement: &Placement,
    rank: u32,
    own: &Batch,
    expert: impl FnMut(u32, &[u16], &mut [u16]),
) -> Vec<u16> {
    reference::combine(&shape(config), &homes(placement), rank, batch(own), expert)
}

/// As `combine`, for rows of the ranks that are `seen` alone. Also returns which tokens have all rows that they chose.
pub(super) fn combine_seen(
    config: &MoeConfig,
    placement: &Placement,
    rank: u32,
    own: &Batch,
    seen: impl Fn(u32) -> bool,
    expert: impl FnMut(u32, &[u16], &mut [u16]),
) -> Expected {
    let (shape, homes) = (shape(config), homes(placement));
    reference::combine_seen(&shape, &homes, rank, batch(own), seen, expert)
}
