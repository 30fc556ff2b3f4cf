//! The measurements of `wv bench` on software HCAs and simt: they count what the protocols say.

mod moe;
mod rejoin;
