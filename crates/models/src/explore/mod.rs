//! Breadth-first search through all states of a model, for the shortest way to a state that breaks a property.

mod codec;
mod cycles;
mod live;
mod met;
mod search;

pub use codec::Codec;
#[cfg(test)]
pub(crate) use codec::{Reader, Writer};
pub use cycles::Edge;
pub use search::{Broken, Found, Model, broken, search};
