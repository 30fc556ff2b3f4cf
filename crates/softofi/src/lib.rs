//! A libfabric for tests. It stands in for the whole library: a program that opens it instead of `libfabric.so.1` finds a NIC with RDM
//! endpoints and RMA as EFA has them, between processes of one machine.
//!
//! Providers without devices are kinder than EFA: they keep order, and their completions are never early. This one is as bad as the manual
//! allows, by a seed. Operations land in parts, late and in any order; posts are refused; keys come back; a close drops what it
//! likes. It also plants faults that no provider may have, so that tests of a program can show that they find them. And it reports what a program does
//! that the manual forbids. README.md says how to use it; [`Config`] has profiles, rates and bounds.
//!
//! # Rooms
//!
//! ```text
//! exports.rs library.rs  the symbols; how tests link them into a shared library
//! calls/                 functions of the tables
//! watch.rs               how tests look into an open library
//! handles.rs             which pointers are objects
//! info/ text.rs          descriptions of devices; words for errors
//! objects/ engine/       what is behind the objects; the work of endpoints
//! guard.rs rules.rs      panics stop here; rules that were broken
//! failure.rs counts.rs   errors of completions; numbers for tests
//! config/                what a run is like
//! ```

mod calls;
mod config;
mod counts;
mod engine;
mod exports;
mod failure;
mod guard;
mod handles;
mod info;
mod library;
mod objects;
mod rules;
mod text;
pub mod watch;

pub use config::{Config, ConfigError, Dead, Profile, VARIABLE};
pub use counts::Count;
pub use exports::{
    fi_dupinfo, fi_fabric, fi_freeinfo, fi_getinfo, fi_strerror, fi_tostr, fi_version,
};
pub use failure::Failure;
pub use library::{LIBRARY_VARIABLE, LinkError, VERSION_SCRIPT, library, library_in};
pub use rules::Rule;
