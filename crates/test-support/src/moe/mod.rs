//! Dispatch and combine in a test. Batches are made so that every rank can make those of all ranks, and each call is compared with the
//! reference implementation (crate `moe-reference`).

mod call;
mod check;
pub mod small;
mod traffic;

pub use crate::fleet::{Hcas, Setup, adversary, join, on_threads, run};
pub use call::Call;
pub use check::{check_combine, check_dispatch, expert};
pub use traffic::{MIXED, Traffic, batch, batches};
