//! The team beside the MoE layer: recovery, reunion and replacement of one peer under guards, counters, rails and direct peers.
//! Also modes of QPs, kinds of ports, a close with a report, and a team in objects of an application.

mod application;
mod close;
mod exports;
mod fleet;
mod go_round;
mod guards;
mod modes;
mod no_poll;
mod ports;
mod processes;
mod rails;
mod rank;
mod records;
mod recovery;
mod refusals;
mod replace;
mod reunite;
mod review;
mod stale;
mod summary;
mod twice;
