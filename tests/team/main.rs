//! The team beside the MoE layer: recovery of one peer under guards, counters, rails, direct peers, modes of QPs.

mod support;

mod guards;
mod modes;
mod no_poll;
mod rails;
mod recovery;
