//! `wv demo`: rank processes dispatch and combine tokens, and check every step against the scalar reference.

mod error;
mod generate;
mod input;
mod npy;
mod options;

pub use error::DemoError;
pub use options::{DemoOptions, RoutingKind};
