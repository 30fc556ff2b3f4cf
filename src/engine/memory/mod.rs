//! Memory that transfers reach: regions, grants, and their keys.

pub(in crate::engine) mod carried;
pub(in crate::engine) mod flush;
pub(in crate::engine) mod gpus;
pub(in crate::engine) mod grant;
pub(in crate::engine) mod keys;
pub(in crate::engine) mod numbers;
pub(in crate::engine) mod regions;
pub(in crate::engine) mod registry;
pub(in crate::engine) mod table;
