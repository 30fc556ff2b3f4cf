//! The data that the kernel shares with softhca and with the host, rendered for C++ in `kernels/gpuhca/abi.h`. Crate `gpuhca-abi` has the
//! tables, which softhca writes too.

use warpverbs::abi::DevicePtr;
use warpverbs::abi::header::{self, constant_items, struct_item};
use warpverbs::abi_struct;

gpuhca_abi::constants!(warpverbs::abi_const);
gpuhca_abi::entries!(warpverbs::abi_struct);

abi_struct! {
    /// Words of host memory.
    pub struct HcaHostWords {
        /// Nonzero: the kernel ends.
        pub stop: u32,
        /// Raised after the kernel has failed a QP.
        pub attention: u32,
        /// Stored to by the kernel when a rank may have something new to see: on the CPU it wakes sleeping threads.
        pub news: u64,
    }
}

abi_struct! {
    /// What the kernel takes.
    pub struct GpuhcaParams {
        /// Generation and number of QPs.
        pub control: DevicePtr<HcaControl>,
        /// QPS entries.
        pub qps: DevicePtr<HcaQp>,
        /// CQS entries.
        pub cqs: DevicePtr<HcaCq>,
        /// HCAS * KEYS entries.
        pub keys: DevicePtr<HcaKey>,
        /// QPS entries.
        pub qp_progress: DevicePtr<HcaQpProgress>,
        /// CQS entries.
        pub cq_progress: DevicePtr<HcaCqProgress>,
        /// Host memory.
        pub host: DevicePtr<HcaHostWords>,
        /// Host memory: the generation that each block has finished a pass with.
        pub seen: DevicePtr<u64>,
        /// The kernel ends by itself after this time, ns.
        pub deadline_ns: u64,
    }
}

/// Returns the text of `kernels/gpuhca/abi.h`.
#[must_use]
pub fn render() -> String {
    let mut items = constant_items(constants());
    items.extend([
        struct_item::<HcaQp>(),
        struct_item::<HcaCq>(),
        struct_item::<HcaKey>(),
        struct_item::<HcaQpProgress>(),
        struct_item::<HcaCqProgress>(),
        struct_item::<HcaControl>(),
        struct_item::<HcaHostWords>(),
        struct_item::<GpuhcaParams>(),
    ]);
    let origin = "Rendered from src/abi.rs and crate gpuhca-abi by tests/abi.rs; do not edit. Rewrite: UPDATE=1 cargo test -p gpuhca --test abi.";
    header::file(origin, "gpuhca", &["<warpverbs/abi.h>"], items)
}
