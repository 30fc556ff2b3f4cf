//! Search through all states of a model.

mod met;

pub use met::Met;
