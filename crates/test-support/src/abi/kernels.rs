//! Parameters of the kernels in `kernels/`, which the integration tests launch.

use warpverbs::abi::header::{Item, struct_item};
use warpverbs::abi::{DevicePtr, PeerEntry, QpContext, Status, TeamContext, Window};
use warpverbs::abi_struct;

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

abi_struct! {
    /// One put of a list.
    pub struct PutItem {
        /// Byte offset in the local window.
        pub src_offset: u64,
        /// Byte offset in the window at the peer.
        pub dst_offset: u64,
        /// Length in bytes.
        pub bytes: u64,
    }
}

abi_struct! {
    /// Puts the items of a list from warps: lane l of the grid takes items l, l + lanes, and so on.
    pub struct PutListParams {
        /// The QP that all warps share.
        pub qp: DevicePtr<QpContext>,
        /// Entry of the window at the peer.
        pub peer: DevicePtr<PeerEntry>,
        /// The window at the peer that the items go to.
        pub window: Window,
        /// The items of the list.
        pub items: DevicePtr<PutItem>,
        /// How many items.
        pub count: u64,
        /// Deadline of the whole kernel, ns.
        pub deadline_ns: u64,
        /// Where each thread stores how it ended.
        pub status: DevicePtr<Status>,
    }
}

abi_struct! {
    /// One side of a ping-pong by `put_signal`: one warp.
    pub struct PingPongParams {
        /// The QP to the other side.
        pub qp: DevicePtr<QpContext>,
        /// Entry of the window at the other side.
        pub peer: DevicePtr<PeerEntry>,
        /// The window: source, target and signal at the offsets below, the same on both sides.
        pub window: Window,
        /// Byte offset of the 32 source pieces.
        pub src_offset: u64,
        /// Byte offset of the 32 target pieces.
        pub dst_offset: u64,
        /// Byte offset of the 16-byte signal.
        pub signal_offset: u64,
        /// Deadline of the whole kernel, ns.
        pub deadline_ns: u64,
        /// Where the warp stores how it ended.
        pub status: DevicePtr<Status>,
        /// Where the warp stores how many words were not those of their round.
        pub mismatches: DevicePtr<u32>,
        /// Rounds of the ping-pong.
        pub rounds: u32,
        /// 0: sends first. 1: answers.
        pub side: u32,
        /// 8-byte words that each lane sends.
        pub words: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

abi_struct! {
    /// Waits for a ticket, or for a signal word that is nonzero.
    pub struct WaitParams {
        /// The QP of the ticket.
        pub qp: DevicePtr<QpContext>,
        /// The signal word; null: the ticket is waited for.
        pub word: DevicePtr<u64>,
        /// Ticket index.
        pub ticket: u64,
        /// Longest wait, in nanoseconds.
        pub deadline_ns: u64,
        /// Where thread t stores how it ended.
        pub status: DevicePtr<Status>,
    }
}

abi_struct! {
    /// Threads that put words to one peer under guards, until they have put all or the test stops them.
    pub struct GuardPutParams {
        /// The team of this rank.
        pub team: DevicePtr<TeamContext>,
        /// Local words at offset 0; remote words at `dst_offset`.
        pub window: Window,
        /// Byte offset of the target words at the peer; word k of scope s goes to index s * count + k.
        pub dst_offset: u64,
        /// Deadline of the whole kernel, ns.
        pub deadline_ns: u64,
        /// Nonzero: stop. Host memory.
        pub stop: DevicePtr<u32>,
        /// Where each scope stores what it has seen.
        pub seen: DevicePtr<GuardSeen>,
        /// The rank that gets the words.
        pub peer: u32,
        /// Number of the QP to it.
        pub qp: u32,
        /// Words of each scope; 0: hold one guard, post nothing, until `stop`.
        pub count: u32,
        /// Words under one guard; 0: one guard for all, refreshed before each word.
        pub each: u32,
        /// How often the words are put, one round after the other, unless `stop` comes before.
        pub rounds: u32,
        /// Zero.
        pub reserved: u32,
    }
}

abi_struct! {
    /// What one scope has seen while it put words under guards.
    pub struct GuardSeen {
        /// Words that were put and waited for.
        pub done: u32,
        /// How often the peer was closed.
        pub closed: u32,
        /// How often a put or its wait ended otherwise than `ok`.
        pub failed: u32,
        /// Life of the QPs at the last guard.
        pub life: u32,
        /// How the last failure ended.
        pub failure: Status,
        /// How the kernel ended.
        pub status: Status,
        /// Ticket of the first word.
        pub ticket: u64,
    }
}

/// Returns the items that the header has from this file, in order.
pub(super) fn items() -> Vec<Item> {
    vec![
        struct_item::<PutWordsParams>(),
        struct_item::<PutItem>(),
        struct_item::<PutListParams>(),
        struct_item::<PingPongParams>(),
        struct_item::<WaitParams>(),
        struct_item::<GuardSeen>(),
        struct_item::<GuardPutParams>(),
    ]
}
