//! GPU-initiated RDMA (IBGDA) runtime with MoE dispatch and combine.
//!
//! Two ranks, here threads of one process, share four experts. Each has one token, for expert 0 at rank 0 and expert 3 at rank 1.
//! Kernels of both ranks move the tokens to the experts and the results back:
//!
//! ```
//! use std::sync::Arc;
//! use std::{thread, time::Duration};
//! use warpverbs::gpu::{self, GpuSelector};
//! use warpverbs::moe::{Batch, Moe, MoeConfig, Workspace, bf16};
//! use warpverbs::team::{JoinOptions, MemoryStore, Store, TeamConfig};
//! use warpverbs::verbs::{Context, DeviceSelector};
//!
//! type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
//!
//! fn one_rank(rank: u32, store: Arc<dyn Store>) -> Outcome<f32> {
//!     let device = Context::open(&DeviceSelector::Auto)?;
//!     let gpu = gpu::open(GpuSelector::Auto)?;
//!     let deadline = Duration::from_secs(20);
//!     let config = TeamConfig::new(rank, 2).with_deadline(deadline);
//!     let options = JoinOptions::new(config).with_contexts([&device]).with_gpu(&gpu);
//!     let team = options.with_store(store).join()?;
//!     let shape = MoeConfig::BF16.with_hidden(64).with_experts(4).with_top_k(2).with_max_tokens(16);
//!     let moe = Moe::new(&team, "layer0", shape)?;
//!
//!     let x = vec![bf16::from_f32(1.0); 64];
//!     let batch = Batch { x, experts: vec![0, 3], weights: vec![0.75, 0.25] };
//!     let mut work = Workspace::new(&moe)?;
//!     work.send(&batch)?;
//!     work.receive()?;
//!     // Expert e multiplies by e + 1.
//!     work.experts(|expert, x, y| {
//!         for (y, &x) in y.iter_mut().zip(x) {
//!             *y = bf16::from_f32(bf16::to_f32(x) * (expert + 1) as f32);
//!         }
//!     })?;
//!     work.send_back()?;
//!     let combined = work.receive_back()?;
//!     team.barrier("done")?; // before this rank frees memory that the other still writes
//!     Ok(bf16::to_f32(combined.out[0]))
//! }
//!
//! # fn main() -> Outcome<()> {
//! # let _hca = softhca::Hca::new()?; // where there is no ConnectX
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
//! let other = thread::spawn({
//!     let store = Arc::clone(&store);
//!     move || one_rank(1, store)
//! });
//! assert_eq!(one_rank(0, store)?, 0.75 * 1.0 + 0.25 * 4.0);
//! assert_eq!(other.join().expect("the thread of rank 1")?, 1.75);
//! # Ok(())
//! # }
//! ```
//!
//! What the modules are for:
//!
//! | module | what a program does with it |
//! |---|---|
//! | [`config`] | reads from the environment how this process takes part in a team |
//! | [`topology`] | asks which NIC is near which GPU |
//! | [`verbs`] | opens an HCA; makes registrations and QPs of its own, beside a team's |
//! | [`gpu`] | opens the device that runs kernels; allocates, copies, launches, captures; adds kernels of its own |
//! | [`abi`] | defines the parameters of its kernels, which their header is rendered from |
//! | [`team`] | joins the ranks; makes windows that kernels put into; recovers, fails and replaces peers |
//! | [`membership`] | lets ranks die, leave and come back under running calls |
//! | [`engine`] | moves memory of the host to and from peers, by a program on the CPU |
//! | [`moe`] | dispatches tokens to experts and combines what comes back |
//! | [`error`] | takes the errors of all of them as one |
//!
//! `ARCHITECTURE.md` has the module table; `tests/docs/layering` enforces it.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

pub mod abi;
pub mod config;
#[doc(hidden)]
pub mod deadline;
pub mod engine;
pub mod error;
mod fabric;
pub mod gpu;
#[doc(hidden)]
pub mod internal;
pub mod membership;
mod memheap;
pub mod moe;
mod provider;
mod sys;
pub mod team;
pub mod topology;
pub mod verbs;
