//! The host engine. The parts of a transfer that touch no HCA run against a model or a slow oracle each. Whole engines run on
//! software HCAs or without any.

mod account;
mod cable;
mod closes;
mod connections;
mod counters;
mod cut;
mod grace;
mod grants;
mod idle;
mod keys;
mod knobs;
mod lists;
mod local;
mod local_processes;
mod lost;
mod mirrors;
mod names;
mod notices;
mod once;
mod overlap;
mod pairing;
mod plan;
mod ports;
mod pulled;
mod rails;
mod reconnect;
mod retry;
mod rig;
mod sinks;
mod slots;
mod statistics;
mod storm;
mod transfers;
mod waits;
