//! Memory that the HCA reaches: domains, regions and their keys, and the control heap.

pub(in crate::verbs) mod export;
pub(in crate::verbs) mod heap;
pub(in crate::verbs) mod mr;
pub(in crate::verbs) mod pd;
pub(in crate::verbs) mod range_key;
pub(in crate::verbs) mod sink;
pub(in crate::verbs) mod umem;
