//! The QPs of a rank to each other, and what kernels and HCAs have done with them.

pub(in crate::team) mod close;
pub(in crate::team) mod counters;
pub(in crate::team) mod failures;
mod peer_qp;
pub(in crate::team) mod set;
