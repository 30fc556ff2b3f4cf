//! The host engine: the parts of a transfer that touch no HCA, each against a model or a slow oracle.

mod account;
mod cut;
mod plan;
mod pulled;
mod slots;
