//! Changes of one peer: the QPs to it are taken down and brought up again, for the same generation or for another one. The QPs to
//! other peers stay as they are.

mod attempt;
pub(in crate::team) mod contact;
pub(in crate::team) mod former;
pub(in crate::team) mod found;
mod life;
pub(in crate::team) mod prove;
pub(in crate::team) mod recover;
pub(in crate::team) mod replace;
pub(in crate::team) mod retell;
pub(in crate::team) mod reunite;
pub(in crate::team) mod steps;
