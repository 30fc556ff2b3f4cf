//! Other engines as this one knows them, across connections, and the notices exchanged with them.

pub(in crate::engine) mod attached;
pub(in crate::engine) mod life;
