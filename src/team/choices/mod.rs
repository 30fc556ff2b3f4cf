//! What a rank has chosen where its devices leave a choice.

pub(in crate::team) mod chosen;
pub(in crate::team) mod order;
