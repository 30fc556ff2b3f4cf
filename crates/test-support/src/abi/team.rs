//! Parameters of the kernels in `kernels/` that use a whole team.

use warpverbs::abi::header::{Item, struct_item};
use warpverbs::abi::{DevicePtr, Status, TeamContext, Window};
use warpverbs::abi_struct;

abi_struct! {
    /// Calls that never poll: each scope makes `calls` of one kind on one QP.
    pub struct NoPollParams {
        /// The team of this rank.
        pub team: DevicePtr<TeamContext>,
        /// Source at offset 0, 8 bytes for each thread; target of the same offset after `dst_offset`.
        pub window: Window,
        /// Byte offset of the targets at the peer.
        pub dst_offset: u64,
        /// Where each thread stores how its last call ended.
        pub status: DevicePtr<Status>,
        /// The rank at the other end of the QP.
        pub peer: u32,
        /// Number of the QP to it.
        pub qp: u32,
        /// 0 put, 1 put_signal, 2 signal, 3 fence; 4: waits until the QP is quiet.
        pub op: u32,
        /// Calls of each scope.
        pub calls: u32,
        /// Threads of a scope that are active, from the first on.
        pub active: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

/// Returns the items that the header has from this file, in order.
pub(super) fn items() -> Vec<Item> {
    vec![struct_item::<NoPollParams>()]
}
