//! What `wv` does: `src/bin/wv.rs` parses, [`cmd`] runs, [`mod@bench`] measures, with kernels whose parameters are in [`abi`],
//! and [`p2p`] copies files.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

pub mod abi;
pub mod bench;
pub mod cmd;
pub mod p2p;

warpverbs::kernels! {
    /// The kernels of this crate, which measure.
    pub static KERNELS
}
