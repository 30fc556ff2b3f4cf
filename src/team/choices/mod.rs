//! The choices of a rank where its devices leave one.

pub(in crate::team) mod chosen;
pub(in crate::team) mod order;
