//! The team beside the MoE layer: recovery, reunion and replacement of one peer under guards, counters, rails, direct peers, modes of QPs, kinds of ports,
//! a close with a report, and a team in what an application has.

mod application;
mod close;
mod exports;
mod fleet;
mod guards;
mod modes;
mod no_poll;
mod ports;
mod processes;
mod rails;
mod rank;
mod recovery;
mod refusals;
mod replace;
mod reunite;
mod review;
mod stale;
mod summary;
mod twice;
