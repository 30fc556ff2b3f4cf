//! The commands of `wv`: demo and sim.
