//! Findings: mistakes of programs that a real device would not report. Each is reported once, in words.
//!
//! [`Checker`] keeps the findings of an HCA, and the keys of it that have ended. Queues have records for it: [`scrutiny`] of a send queue,
//! [`flight`] of an operation under way.

mod checker;
mod config;
mod ended;
mod finding;
pub(crate) mod flight;
pub(crate) mod scrutiny;

pub(crate) use checker::Checker;
pub use config::{CheckConfig, CheckConfigError};
pub use finding::Finding;
