//! A store for ranks that are processes of one machine, or of machines that share a file system with hard links.
//!
//! A key is a directory with its newest versions, see `keys.rs`: a change is one link or was not made, and nothing is ever locked. So a
//! process that is killed or stopped at any point has made its change or not, and blocks no other process.

mod keys;
mod leases;
mod store;

pub use self::store::FileStore;
