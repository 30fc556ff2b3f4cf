//! Parameters of `kernels/conformance*`: one kernel for each kind of QP and each scope that carries out one operation a
//! number of times.

use super::kernels::PutItem;
use warpverbs::abi::header::{Item, constant_items, struct_item};
use warpverbs::abi::{DevicePtr, PeerEntry, QpContext, Status, Window};
use warpverbs::{abi_const, abi_struct};

abi_const! {
    /// `ConformanceParams::operation`: nothing.
    pub const CONFORMANCE_NOTHING: u32 = 0;
    /// put: each thread of a scope its own item.
    pub const CONFORMANCE_PUT: u32 = 1;
    /// put_value of the item's 4, 12 or 28 bytes, which the kernel knows.
    pub const CONFORMANCE_PUT_VALUE: u32 = 2;
    /// put_signal: items, and the number of the round after them.
    pub const CONFORMANCE_PUT_SIGNAL: u32 = 3;
    /// signal: the number of the round.
    pub const CONFORMANCE_SIGNAL: u32 = 4;
    /// `wv::flush` on the QP.
    pub const CONFORMANCE_FLUSH: u32 = 5;
    /// `wv::fence` on the QP.
    pub const CONFORMANCE_FENCE: u32 = 6;
    /// One batch of `batch` NOPs.
    pub const CONFORMANCE_BATCH: u32 = 7;
    /// Put of an item of which no thread of the scope is active.
    pub const CONFORMANCE_NOBODY: u32 = 8;
    /// get: from the item's place at the peer to its local place.
    pub const CONFORMANCE_GET: u32 = 9;
    /// put_two: the two halves of the item.
    pub const CONFORMANCE_PUT_TWO: u32 = 10;
    /// amo fetch_add of the item's number plus 1 to 8 bytes at the peer; the old value goes to the item's local place.
    pub const CONFORMANCE_ADD: u32 = 11;
    /// signal that adds 1.
    pub const CONFORMANCE_SIGNAL_ADD: u32 = 12;
    /// amo number `batch`, in the order of `AmoOp`, on the item's 4 or 8 bytes at the peer, with the value ~number of the item.
    /// Every other comparison is with what a source has at that offset. The old value goes to the item's local place. From here on
    /// the code that looks at the mode bits.
    pub const CONFORMANCE_AMO: u32 = 13;
    /// put_imm: items, and the number of each.
    pub const CONFORMANCE_PUT_IMM: u32 = 14;
    /// wait_imm, or try_imm: an immediate is the number of an item, whose words must have arrived; word `imm` of the window
    /// counts it.
    pub const CONFORMANCE_TAKE_IMM: u32 = 15;

    /// `ConformanceParams::end`: nothing.
    pub const CONFORMANCE_END_NOTHING: u32 = 0;
    /// Wait for the last ticket.
    pub const CONFORMANCE_END_WAIT: u32 = 1;
    /// Flush, and wait for its ticket.
    pub const CONFORMANCE_END_FLUSH: u32 = 2;
    /// `wv::quiet` on the QP.
    pub const CONFORMANCE_END_QUIET: u32 = 3;
    /// Test for the last ticket until it is not `would_block` or the deadline has passed.
    pub const CONFORMANCE_END_TEST: u32 = 4;
    /// One `wv::test` for the last ticket, without a wait.
    pub const CONFORMANCE_END_TEST_ONCE: u32 = 5;
    /// wait_data for the last ticket.
    pub const CONFORMANCE_END_WAIT_DATA: u32 = 6;
    /// wait_word for a local signal word that is not 0, with the QP's watch.
    pub const CONFORMANCE_END_WAIT_SIGNAL: u32 = 7;
    /// wait_any for the last two tickets until both are done.
    pub const CONFORMANCE_END_WAIT_ANY: u32 = 8;

    /// `ConformanceParams::options` bit: unsignalled.
    pub const CONFORMANCE_UNSIGNALLED: u32 = 1;
    /// `ConformanceParams::options` bit: the call never waits.
    pub const CONFORMANCE_TRY: u32 = 2;
    /// `ConformanceParams::options` bit: the doorbell may be held back.
    pub const CONFORMANCE_MORE: u32 = 4;
    /// `ConformanceParams::options` bit: `end` takes place whatever the operation returned, for the ticket of the parameters
    /// if no operation was `ok`.
    pub const CONFORMANCE_END_ALWAYS: u32 = 8;
}

abi_struct! {
    /// Each scope carries out `operation` `rounds` times or until it fails, then `end`.
    pub struct ConformanceParams {
        /// The QP that all scopes post to.
        pub qp: DevicePtr<QpContext>,
        /// Entry of the window at the peer.
        pub peer: DevicePtr<PeerEntry>,
        /// The window at the peer that operations write and read.
        pub window: Window,
        /// Thread t of all scopes' threads takes item round * threads + t, if that is below `count`.
        pub items: DevicePtr<PutItem>,
        /// How many items.
        pub count: u64,
        /// Byte offset of the scopes' signal words, 8 bytes each.
        pub signal_offset: u64,
        /// Ticket that `end` takes if no operation was `ok`.
        pub ticket: u64,
        /// Deadline of each call, ns.
        pub deadline_ns: u64,
        /// Where each scope stores how it ended.
        pub ends: DevicePtr<ConformanceEnd>,
        /// Bits of the QP's mode: which code is to run.
        pub mode: u32,
        /// A constant CONFORMANCE_*.
        pub operation: u32,
        /// A constant CONFORMANCE_END_*.
        pub end: u32,
        /// Bits CONFORMANCE_UNSIGNALLED to CONFORMANCE_END_ALWAYS.
        pub options: u32,
        /// Times.
        pub rounds: u32,
        /// WQEBBs of a batch; number of an atomic.
        pub batch: u32,
    }
}

abi_struct! {
    /// How a scope ended.
    pub struct ConformanceEnd {
        /// What the last operation returned.
        pub posted: Status,
        /// What `end` returned.
        pub status: Status,
        /// Operations that were `ok`; of a watcher, words that were wrong.
        pub done: u32,
        /// Whether the last ticket said that its doorbell was held back.
        pub held: u32,
        /// The last ticket.
        pub ticket: u64,
        /// Device time from the begin of the last operation to its return, ns.
        pub post_ns: u64,
        /// Device time that `end` took, ns.
        pub end_ns: u64,
    }
}

/// Returns the items that the header has from this file, in order.
pub(super) fn items() -> Vec<Item> {
    let mut items = constant_items(constants());
    items.extend([
        struct_item::<ConformanceEnd>(),
        struct_item::<ConformanceParams>(),
    ]);
    items
}
