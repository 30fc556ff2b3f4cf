//! The stores, by one set of expectations; then what only one of them can get wrong.

mod conformance;
mod directory;
mod disturbed;
#[cfg(feature = "etcd")]
mod etcd;
mod growth;
mod killed;
mod leases;
mod looks;
mod measure;
mod records;
mod text_map;
#[cfg(feature = "etcd")]
mod tls;
