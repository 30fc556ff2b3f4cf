//! The parameters of the kernel of `wv doctor`.

use warpverbs::abi::header::{self, struct_item};
use warpverbs::abi::{DevicePtr, Status, TeamContext, Window};
use warpverbs::abi_struct;

abi_struct! {
    /// One warp puts bytes of this rank's window into that of a peer, and waits for the end.
    pub struct DoctorPutParams {
        /// The team of both ranks.
        pub team: DevicePtr<TeamContext>,
        /// The window of both.
        pub window: Window,
        /// Where in it the bytes are here.
        pub from: u64,
        /// Where in it they go to at the peer.
        pub to: u64,
        /// How many.
        pub bytes: u64,
        /// How it ended: device memory that is `Status::TIMEOUT` before.
        pub outcome: DevicePtr<Status>,
        /// Longest wait for the end, in nanoseconds.
        pub deadline_ns: u64,
        /// The rank whose window gets the bytes.
        pub peer: u32,
        /// Which QP to it.
        pub qp: u32,
        /// Lanes that share the bytes, 1 to 32; with 1 they are one message.
        pub lanes: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

/// Returns the text of `kernels/abi.h`.
#[must_use]
pub fn render() -> String {
    let items = vec![struct_item::<DoctorPutParams>()];
    header::file(ORIGIN, "wv", &["<warpverbs/abi.h>"], items)
}

const ORIGIN: &str = "Rendered from crates/cli/src/doctor/abi.rs; do not edit. Rewrite: UPDATE=1 cargo test -p wv --test abi_header.";
