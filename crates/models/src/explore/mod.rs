//! Breadth-first search through all states of a model, for the shortest way to one that breaks a property.

mod codec;
mod met;
mod search;

pub use codec::Codec;
pub(crate) use met::Met;
pub use search::{Broken, Found, Model, broken, search};
