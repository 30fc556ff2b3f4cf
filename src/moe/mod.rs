//! Dispatch and combine of MoE tokens.
//!
//! A token goes once to each rank that holds an expert it chose, with the numbers and weights of its choices. That rank spreads the
//! token over its experts, adds up their results, and sends one row back. The source adds the rows of the ranks. Kernels do all of
//! that, in four phases ([`Moe::dispatch_send`] to [`Moe::combine_receive`]) between which other work may run, or in two launches
//! ([`Moe::dispatch`], [`Moe::combine`]). No launch waits for anything, and all state that changes is in device memory. So calls
//! can be captured into graphs. The crate `moe-reference` says what the result is, bit for bit.
//!
//! The first page of this crate has a whole program. The memory of a layer can be computed before the layer is made:
//!
//! ```
//! use warpverbs::moe::{MoeConfig, required_bytes};
//!
//! let (hidden, experts, top_k, max_tokens) = (7168, 256, 8, 128);
//! let shape = MoeConfig::BF16
//!     .with_hidden(hidden).with_experts(experts).with_top_k(top_k).with_max_tokens(max_tokens);
//! let bytes = required_bytes(&shape, 8)?; // at each of 8 ranks
//! assert_eq!(bytes.library(2).div_ceil(1 << 20), 92); // MiB, with two handles
//! # Ok::<(), warpverbs::moe::MoeError>(())
//! ```
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it. A layer of another kind would stand on `members/`, beside `calls/`.
//!
//! ```text
//! workspace/    calls with buffers of their own, for programs whose tokens are on the host
//! in_group.rs ranks.rs   a layer as a group sees it; `Moe`: the ranks that take part, their experts, what went wrong
//! layer.rs      `Moe`: how it is made, and the launches of its phases
//! making/       what is chosen and written when a layer is made
//! calls/        what a call is given, how far it is, and why it differs between ranks
//! members/      who takes part from which call on, and what host and kernels tell each other of it: views, board, rule
//! tokens/       tokens on the host: what is given to dispatch, and numbers of small formats
//! sizes.rs      how many bytes a layer takes
//! layout.rs     where everything lies in its buffers
//! config.rs placement.rs   the shape of a layer; which rank holds which expert
//! error.rs      all errors
//! report.rs     how a call went
//! fault.rs difference.rs   why a rank is missing; an argument in which ranks differ
//! bits.rs limits.rs   a set of ranks in bits; limits of the shape
//! ```

mod bits;
mod calls;
mod config;
mod difference;
mod error;
mod fault;
mod in_group;
mod layer;
mod layout;
mod limits;
mod making;
mod members;
mod placement;
mod ranks;
mod report;
mod sizes;
mod tokens;
mod workspace;

pub use calls::call::MoeCall;
pub use calls::call_args::{CombineInput, CombineOutput, DispatchInput, DispatchOutput};
pub use calls::staging::CombineStaging;
pub use config::{Format, Grid, MoeConfig, Returns, RowLayout, Scales};
pub use difference::Difference;
pub use error::MoeError;
pub use fault::Fault;
pub use layer::Moe;
pub use layout::Layout;
pub use limits::{
    MAX_EXPERT_SLOTS, MAX_EXPERTS, MAX_FAILING_LINKS, MAX_PAYLOAD_BYTES, MAX_RANKS, MAX_SCALE_BYTES,
};
#[doc(hidden)]
pub use members::board::Board;
#[doc(hidden)]
pub use members::control::Control;
pub use members::deadlines::Deadlines;
pub use members::rule::PlacementPolicy;
pub use members::views::View;
pub use placement::{Home, Placement};
pub use report::CallReport;
pub use sizes::{RequiredBytes, required_bytes};
pub use tokens::batch::{Batch, RankRow, Source};
pub use tokens::bf16;
pub use tokens::routing::check_routing;
pub use workspace::{CombineOptions, Combined, Encoded, EncodedRow, Statistics, Workspace};
