//! The measurements of `wv bench` on software HCAs and simt, and of groups over a simulated fabric: they count what the protocols say.

mod ends;
mod engine;
mod fill;
mod group;
mod memory;
mod moe;
mod ofi;
mod p2p;
mod regions;
mod rejoin;
mod served;
