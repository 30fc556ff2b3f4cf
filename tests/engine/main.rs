//! The host engine. The parts of a transfer that touch no HCA run against a model or a slow oracle each. Whole engines run on
//! software HCAs or without any.

mod account;
mod auto;
mod cable;
mod closes;
mod connections;
mod counters;
mod cut;
mod descriptors;
mod doors;
mod gpu_copies;
mod gpu_memory;
mod gpu_processes;
mod gpu_rig;
mod grace;
mod grants;
mod idle;
mod keys;
mod killed;
mod knobs;
mod lists;
mod local;
mod local_processes;
#[path = "../membership/log.rs"]
mod log;
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
mod strangers;
mod transfers;
mod waits;
