//! Every operation of the device library, at every scope.

#![expect(clippy::cast_possible_truncation, reason = "small test numbers")]

mod model;
mod program;
mod rig;

mod atomics;
mod bytes;
mod formats;
mod immediates;
mod refused;
mod several;
mod wqe;
