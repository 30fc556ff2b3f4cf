//! Lanes over libfabric: NICs whose only way in is a provider of that library, such as EFA, and providers over sockets or shared memory,
//! by which tests run. The library is opened at run time.
//!
//! A lane is one RDM endpoint at each end, which nothing else uses. Operations land in any order, and complete one by one. An endpoint has
//! no error state: it is closed, and drops what is under way. When both ends have closed theirs, nothing of that life of the lane lands
//! any more. So the next life has endpoints of its own. A close also drops completions of writes that the peer knows to be done. So a pair
//! knows what has counted in its life (`OfiPair::counts`), and engines tell each other.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! bare.rs        writes by calls of the library alone, for measurements
//! rail.rs        a domain with what its workers need, and what it makes
//! pair.rs        this end of a lane, from its first endpoint to its last
//! lanes.rs       what lanes of a rail are made of
//! lane.rs        what a worker posts to
//! greeting.rs    the first write of an endpoint, after which it is connected
//! reaper.rs      where completions are found, and where a worker sleeps
//! memory.rs      registrations, and keys of grants
//! endpoint.rs    an endpoint: made, posted to, closed
//! cq.rs          the completion queue of a worker
//! lkeys.rs rkeys.rs   numbers by which lanes name memory; numbers by which peers do
//! domain.rs      a domain, open: objects that all lanes of a rail share
//! choice.rs      which domains an engine takes
//! info.rs        what the library says of its domains
//! registry.rs    which endpoint a context is of
//! contexts.rs    contexts of operations under way
//! library.rs     the library
//! object.rs      an object of the library, closed when it is dropped
//! book.rs        the operations of a lane: refused, under way, done
//! split.rs       one WQE as several operations
//! offer.rs       what two ends tell each other
//! lives.rs       when a number may be used again
//! facts.rs       a domain in numbers, and what of it is not served
//! error.rs       all errors
//! ```

mod bare;
mod book;
mod choice;
mod contexts;
mod cq;
mod domain;
mod endpoint;
mod error;
mod facts;
mod greeting;
mod info;
mod lane;
mod lanes;
mod library;
mod lives;
mod lkeys;
mod memory;
mod object;
mod offer;
mod pair;
mod rail;
mod reaper;
mod registry;
mod rkeys;
mod split;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod trial;

pub(crate) use bare::BareFabric;
pub use choice::{OfiDevice, OfiWish};
pub use error::OfiError;
pub(crate) use lane::OfiLane;
pub(crate) use memory::{OfiKey, OfiRegistration};
pub(crate) use offer::{OfiOffer, OfiPort};
pub(crate) use pair::OfiPair;
pub(crate) use rail::OfiRail;
pub(crate) use reaper::OfiReaper;
#[cfg(test)]
pub(crate) use trial::{LATE, Planted, Trial};
