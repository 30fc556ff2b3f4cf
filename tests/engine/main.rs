//! The host engine: the parts of a transfer that touch no HCA, each against a model or a slow oracle, and whole engines on software
//! HCAs or without any.

mod account;
mod cable;
mod connections;
mod cut;
mod grace;
mod knobs;
mod lost;
mod notices;
mod once;
mod overlap;
mod plan;
mod ports;
mod pulled;
mod reconnect;
mod retry;
mod rig;
mod sinks;
mod slots;
mod transfers;
mod waits;
