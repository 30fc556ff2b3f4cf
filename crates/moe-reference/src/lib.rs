//! The results that dispatch and combine of a mixture-of-experts layer must give, for tests of any kernel of them.
//!
//! The crate depends on nothing, and shares no code with Warpverbs, whose kernels it judges. It has two judges, which know the same rules
//! and share no code either:
//!
//! - the reference: [`dispatch`] and [`combine`] (with their variants) compute by scalar loops what a kernel must give. Where the
//!   kernel adds in the same order, the bits are the same;
//! - the [`oracle`]s hold the outputs of a kernel against the inputs of all ranks, and return the first [`oracle::Finding`].
//!   They ask for no order that is not promised, and judge sums and casts to rounding.
//!
//! [`bf16`] and [`mod@format`] convert numbers: BF16, FP8 and its scales.
//!
//! # What a call does
//!
//! Each rank has a [`Batch`] of tokens, each of which chooses up to `top_k` experts. [`Homes`] says at which rank or ranks an expert lives.
//! Dispatch brings every token to the ranks of its experts. Combine brings back what the experts made of the token, and adds that up with
//! the weights of the choices.
//!
//! # The order of sums
//!
//! The order of every sum is fixed, so results do not depend on which rank's rows arrive first. All sums are in f32, and each
//! product and each sum is rounded to it.
//!
//! - [`Returns::Sums`]: the rank of an expert adds `weight · y` of its experts in ascending k, and rounds the sum once to BF16.
//!   The source adds these partial sums in the order of the ranks, and rounds once to BF16.
//! - [`Returns::Rows`]: the source adds `weight · y` of all experts in ascending k, and rounds once to BF16.
//! - Renormalised ([`Asked::renormalise`]): a token that lost a choice is multiplied by (sum of all weights) / (sum of those that
//!   are left) before it is rounded. Both sums are in ascending k. A token of which nothing is left is zeros.
//!
//! # Example
//!
//! ```
//! use moe_reference::{Batch, Homes, Returns, Shape, Source, bf16, combine, dispatch};
//!
//! // Two ranks share four experts: 0 and 1 live at rank 0, 2 and 3 at rank 1.
//! let shape = Shape { hidden: 8, experts: 4, top_k: 2, max_tokens: 16, returns: Returns::Sums };
//! let homes = Homes::blocks(4, 2);
//!
//! // Rank 0 has one token of ones, for experts 0 and 3. Rank 1 has none.
//! let x = [bf16::from_f32(1.0); 8];
//! let own = Batch { x: &x, experts: &[0, 3], weights: &[0.75, 0.25] };
//! own.check(&shape)?;
//! let batches = [own, Batch::default()];
//!
//! // The rows that dispatch must bring to the experts of rank 1: none to expert 2, the token to expert 3.
//! let rows = dispatch(&shape, &homes, &batches, 1);
//! assert_eq!(rows, [vec![], vec![Source { rank: 0, token: 0 }]]);
//!
//! // Expert e multiplies by e + 1. What combine must give back to rank 0:
//! let out = combine(&shape, &homes, 0, own, |expert, x, y| {
//!     for (y, &x) in y.iter_mut().zip(x) {
//!         *y = bf16::from_f32(bf16::to_f32(x) * (expert + 1) as f32);
//!     }
//! });
//! let from_the_kernel = [0x3fe0; 8]; // 1.75
//! assert_eq!(out, from_the_kernel);
//! assert_eq!(bf16::to_f32(out[0]), 0.75 * 1.0 + 0.25 * 4.0);
//! # Ok::<(), moe_reference::BatchError>(())
//! ```

#![forbid(unsafe_code)]

mod batch;
pub mod bf16;
mod combine;
mod dispatch;
pub mod format;
mod homes;
pub mod oracle;
mod power;
mod shape;

pub use batch::{Batch, BatchError};
pub use combine::{Asked, Expected, combine, combine_asked, combine_chosen, combine_seen};
pub use dispatch::{RankRow, Source, choose, dispatch, dispatch_by_rank, dispatch_chosen};
pub use homes::{Home, Homes, HomesError};
pub use shape::{Returns, Shape};
