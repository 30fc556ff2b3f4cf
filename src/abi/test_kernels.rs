//! Parameters of the kernels in `kernels/test`, which the integration tests launch.

use super::header::{Item, struct_item};
use super::{DevicePtr, PeerEntry, QpContext, Status, Window};

abi_struct! {
    /// Puts `count` words of 8 bytes from each thread; word k of thread t goes from `src` to `dst` at index t * count + k.
    pub struct PutWordsParams {
        /// The QP that all threads share.
        pub qp: DevicePtr<QpContext>,
        /// Entry of the window at the peer.
        pub peer: DevicePtr<PeerEntry>,
        /// The window: local words at `src_offset`, remote words at `dst_offset`.
        pub window: Window,
        /// Byte offset of the source words.
        pub src_offset: u64,
        /// Byte offset of the target words.
        pub dst_offset: u64,
        /// Deadline of each call, ns.
        pub deadline_ns: u64,
        /// Where thread t stores how it ended.
        pub status: DevicePtr<Status>,
        /// Where thread t stores its number of successful puts.
        pub done: DevicePtr<u32>,
        /// Puts of each thread.
        pub count: u32,
        /// Every so many puts a thread waits for its ticket; 0: only after the last one.
        pub wait_every: u32,
    }
}

/// What the header holds of this file, in order.
pub(super) fn items() -> Vec<Item> {
    vec![struct_item::<PutWordsParams>()]
}
