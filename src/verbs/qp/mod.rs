//! Queue pairs: their states, their memory and completions, and the posts of this process itself.

pub(in crate::verbs) mod attr;
pub(in crate::verbs) mod blocks;
pub(in crate::verbs) mod core;
pub(in crate::verbs) mod cq;
pub(in crate::verbs) mod image;
pub(in crate::verbs) mod posting;
pub(in crate::verbs) mod probe;
pub(in crate::verbs) mod shape;
pub(in crate::verbs) mod shared_cq;
pub(in crate::verbs) mod states;
