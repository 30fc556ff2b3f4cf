//! The parameters of the kernels of `wv bench`.

use warpverbs::abi::header::{self, constant_items, struct_item};
use warpverbs::abi::{DevicePtr, QpContext, Status};
use warpverbs::{abi_const, abi_struct};

abi_const! {
    /// Bytes from the structs that another project keeps of a QP to those of the next.
    pub const BENCH_STATE_BYTES: u32 = 1024;
}

abi_struct! {
    /// How one poster did.
    pub struct BenchTime {
        /// Device clock when all posters had come and this one began, ns.
        pub start_ns: u64,
        /// Device clock when its last post had returned, ns.
        pub posted_ns: u64,
        /// Device clock when its last ticket was done, ns.
        pub done_ns: u64,
        /// How it ended.
        pub status: Status,
        /// Calls that succeeded.
        pub calls: u32,
    }
}

abi_struct! {
    /// What the sink has done for one QP.
    align(128)
    pub struct BenchSink {
        /// Index up to which it has written CQEs.
        pub served: u64,
        /// WQEs that were not the one due when their doorbell was seen; counted if `PostBenchParams::check` is set.
        pub wrong: u64,
        /// How it ended.
        pub status: Status,
        /// Reserved, zero.
        pub reserved: [u32; 27],
    }
}

abi_struct! {
    /// Posts puts into rings whose NIC is a sink: block 0 retires WQEs that were rung, every other block is a poster.
    pub struct PostBenchParams {
        /// The contexts, `qp_stride` bytes apart. Poster p posts to QP p mod `qps`.
        pub qp: DevicePtr<QpContext>,
        /// Bytes from one context to the next.
        pub qp_stride: u64,
        /// What the sink keeps of each QP.
        pub sinks: DevicePtr<BenchSink>,
        /// What each poster measures.
        pub times: DevicePtr<BenchTime>,
        /// Posters that have come; zero before.
        pub gate: DevicePtr<u64>,
        /// Deadline of the whole kernel, ns.
        pub deadline_ns: u64,
        /// Number of QPs.
        pub qps: u32,
        /// Calls of each poster.
        pub calls: u32,
        /// Every so many calls asks for a completion, and the last one; 0: only the last one.
        pub signal_every: u32,
        /// Bytes of a put, as its WQE says; no HCA reads or writes them.
        pub bytes: u32,
        /// WQEs that each QP gets.
        pub wqes: u64,
        /// What another project keeps of each QP, `BENCH_STATE_BYTES` apart; null where this library posts.
        pub state: DevicePtr<u8>,
        /// Nonzero: the sink looks at every WQE whose doorbell it has seen.
        pub check: u32,
        /// Reserved, zero.
        pub reserved: u32,
    }
}

abi_struct! {
    /// A copy of device memory by the whole grid.
    pub struct CopyBenchParams {
        /// 16-byte aligned.
        pub from: DevicePtr<u8>,
        /// 16-byte aligned, elsewhere.
        pub to: DevicePtr<u8>,
        /// Pieces of 16 bytes.
        pub vectors: u64,
    }
}

abi_struct! {
    /// When a chain of operations ran.
    pub struct PrimitiveTime {
        /// Device clock before the first one, ns.
        pub start_ns: u64,
        /// Device clock after the last one, ns.
        pub end_ns: u64,
        /// What the last one gave.
        pub value: u64,
    }
}

abi_struct! {
    /// A chain of `count` operations of one thread.
    pub struct PrimitiveParams {
        /// Device memory: a word that is zero, and 128 bytes after it the target of stores.
        pub words: DevicePtr<u64>,
        /// A word of host memory.
        pub host: DevicePtr<u64>,
        /// A register.
        pub reg: DevicePtr<u64>,
        /// When it ran.
        pub time: DevicePtr<PrimitiveTime>,
        /// Deadline of waits, ns.
        pub deadline_ns: u64,
        /// Operations.
        pub count: u32,
        /// Stores of 16 bytes in front of each fence.
        pub stores: u32,
    }
}

abi_struct! {
    /// The time of the device clock when all that was launched before in the stream has ended.
    pub struct StampBenchParams {
        /// Where to store it, ns.
        pub at: DevicePtr<u64>,
    }
}

/// Returns the text of `kernels/abi.h`.
#[must_use]
pub fn render() -> String {
    let mut items = constant_items(constants());
    items.extend([
        struct_item::<BenchTime>(),
        struct_item::<BenchSink>(),
        struct_item::<PostBenchParams>(),
        struct_item::<CopyBenchParams>(),
        struct_item::<PrimitiveTime>(),
        struct_item::<PrimitiveParams>(),
        struct_item::<StampBenchParams>(),
    ]);
    header::file(ORIGIN, "wv", &["<warpverbs/abi.h>"], items)
}

const ORIGIN: &str = "Rendered from crates/bench/src/device/abi.rs; do not edit. Rewrite: UPDATE=1 cargo test -p wv --test abi_header.";
