//! The reference implementation (crate `moe-reference`), called with the shapes, placements and batches of the library. It returns what
//! that crate returns.
//!
//! `wv demo` has its own such functions (`crates/demo/src/rank/reference.rs`), because a program that users get does not depend on what
//! tests share.

use moe_reference::format::Scales;
use moe_reference::oracle::{Case, Input, places};
use moe_reference::{self as reference, Asked, Expected, Homes, Returns, Shape};
use warpverbs::moe::{self, Batch, MoeConfig, Placement, RankRow, RowLayout, Source};

/// Returns the shape of a layer.
#[must_use]
pub fn shape(config: &MoeConfig) -> Shape {
    Shape {
        hidden: config.hidden as usize,
        experts: config.experts as usize,
        top_k: config.top_k as usize,
        max_tokens: config.max_tokens as usize,
        returns: match (config.layout, config.returns) {
            (RowLayout::ExpertMajor, moe::Returns::Rows) => Returns::Rows,
            // With rows by rank a token has one row, whatever the experts return.
            _ => Returns::Sums,
        },
    }
}

/// Returns where the experts of a layer are.
///
/// # Panics
/// Never: every placement is a valid table.
#[must_use]
pub fn homes(placement: &Placement) -> Homes {
    let held = (0u32..).take(placement.ranks());
    let held = held.map(|rank| placement.of_rank(rank).to_vec()).collect();
    Homes::from_slots(placement.experts(), held).expect("no expert is twice at a rank")
}

/// Returns a rank's input as the reference implementation takes it, without a copy.
#[must_use]
pub fn batch(batch: &Batch) -> reference::Batch<'_> {
    reference::Batch {
        x: &batch.x,
        experts: &batch.experts,
        weights: &batch.weights,
    }
}

/// Returns the scales of FP8 as the reference implementation calls them.
#[must_use]
pub fn scales(kind: moe::Scales) -> Scales {
    match kind {
        moe::Scales::F32 => Scales::F32,
        moe::Scales::PowerOfTwo => Scales::PowerOfTwo,
        moe::Scales::Ue8m0 => Scales::Ue8m0,
    }
}

/// Returns a call for the oracles, in which every rank reaches every rank.
#[must_use]
pub fn case(config: &MoeConfig, placement: &Placement, inputs: Vec<Input>) -> Case {
    Case::new(&shape(config), places(&homes(placement)), inputs)
}

/// Calls [`reference::choose`].
#[must_use]
pub fn choose(
    config: &MoeConfig,
    placement: &Placement,
    rank: u32,
    own: &Batch,
    alive: impl Fn(u32) -> bool,
) -> Vec<Option<u32>> {
    reference::choose(&shape(config), &homes(placement), rank, batch(own), alive)
}

/// Calls [`reference::dispatch`].
#[must_use]
pub fn dispatch(
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

/// Calls [`reference::dispatch_by_rank`].
#[must_use]
pub fn dispatch_by_rank(
    config: &MoeConfig,
    placement: &Placement,
    batches: &[Batch],
    chosen: &[Vec<Option<u32>>],
    rank: u32,
) -> Vec<Vec<RankRow>> {
    let (shape, homes) = (shape(config), homes(placement));
    let batches: Vec<_> = batches.iter().map(batch).collect();
    let rows = reference::dispatch_by_rank(&shape, &homes, &batches, chosen, rank);
    let row = |row: reference::RankRow| RankRow {
        token: row.token,
        experts: row.experts,
        weights: row.weights,
    };
    let of_source = |rows: Vec<_>| rows.into_iter().map(row).collect();
    rows.into_iter().map(of_source).collect()
}

/// Calls [`reference::combine`].
#[must_use]
pub fn combine(
    config: &MoeConfig,
    placement: &Placement,
    rank: u32,
    own: &Batch,
    expert: impl FnMut(u32, &[u16], &mut [u16]),
) -> Vec<u16> {
    reference::combine(&shape(config), &homes(placement), rank, batch(own), expert)
}

/// Calls [`reference::combine_seen`].
#[must_use]
pub fn combine_seen(
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

/// Calls [`reference::combine_chosen`].
#[must_use]
pub fn combine_chosen(
    config: &MoeConfig,
    placement: &Placement,
    own: &Batch,
    chosen: &[Option<u32>],
    expert: impl FnMut(u32, &[u16], &mut [u16]),
) -> Vec<u16> {
    let (shape, homes) = (shape(config), homes(placement));
    reference::combine_chosen(&shape, &homes, batch(own), chosen, expert)
}

/// Calls [`reference::combine_asked`].
#[must_use]
pub fn combine_asked(
    config: &MoeConfig,
    placement: &Placement,
    own: &Batch,
    chosen: &[Option<u32>],
    returned: impl Fn(u32) -> bool,
    asked: Asked<'_>,
    expert: impl FnMut(u32, &[u16], &mut [u16]),
) -> Expected {
    let (shape, homes) = (shape(config), homes(placement));
    reference::combine_asked(&shape, &homes, batch(own), chosen, returned, asked, expert)
}
