//! A store for ranks that are processes of one machine, or of machines that share a file system with hard links.
//!
//! A key is a directory with its newest versions, see `keys.rs`: a change is one link or was not made, and nothing is ever locked. So a
//! process that is killed or stopped at any point has made its change or not, and blocks no other process.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! store.rs         `FileStore`: changes, looks and leases of keys
//! content.rs keys.rs revisions.rs   what a version holds; the versions of a key; the revisions of what looks find
//! scratch.rs       what a handle writes before it gets its name
//! leases.rs        leases, and the beats by which readers see that they live
//! tries.rs disk.rs   until when a call tries again; what the file system answers
//! ```

mod content;
mod disk;
mod keys;
mod leases;
mod revisions;
mod scratch;
mod store;
mod tries;

pub use self::store::FileStore;
