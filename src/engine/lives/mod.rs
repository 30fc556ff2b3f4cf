//! Other engines as this one knows them, across connections.

pub(in crate::engine) mod known;
