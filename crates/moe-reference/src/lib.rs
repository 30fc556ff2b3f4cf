//! What dispatch and combine of a mixture-of-experts layer must give: a scalar reference, number formats and oracles.

pub mod batch;
pub mod bf16;
pub mod format;
pub mod homes;
pub mod oracle;
pub mod reference;
pub mod reference_modes;
mod shape;

pub use batch::{Batch, BatchError};
pub use homes::{Home, Homes, HomesError};
pub use shape::{Returns, Shape};
