//! A store for ranks of several machines: an etcd, version 3.4 or later.
//!
//! The store asks by HTTP with JSON ([etcd's gateway](https://etcd.io/docs/latest/dev-guide/api_grpc_gateway/)), not by gRPC: see
//! docs/design/decisions/etcd.md. Reads are linearizable. Each change is a transaction that holds only at the revision of the key that was
//! looked at before. So a late request, even through a member that was stopped for a while, never replaces something newer. A call makes
//! that look and sends the transaction. It begins again only when the etcd has answered that another writer was faster, and ends within its
//! bound. Leases are etcd's own, by the clock of the leader. Times to live are whole seconds, and at least etcd's own minimum (2 s by
//! default). The holder gives up after the time that it asked for, which is never longer.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! store.rs       `EtcdStore`: what each call of a store asks, and until when
//! watcher.rs     the watch of one key
//! keys.rs leases.rs changes.rs   requests about keys; requests about leases; the thread that watches all keys
//! client.rs tls.rs   requests by HTTP, and what became of them; certificates and keys
//! address.rs messages.rs   the parts of a URL; the answers of an etcd
//! ```

mod address;
mod changes;
mod client;
mod keys;
mod leases;
mod messages;
mod store;
mod tls;
mod watcher;

pub use self::store::EtcdStore;
