//! Ranks, windows, the peer table in device memory, the rendezvous store.

mod store;

pub use store::{FileStore, MemoryStore, Store, StoreError, open_store};
