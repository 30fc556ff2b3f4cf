//! Parameters of the kernels that carry out every operation, `kernels/test/ops*.cu`.

use super::header::{Item, struct_item};
use super::{DevicePtr, QpContext, Status};

abi_struct! {
    /// Writes one WQE of each format into a ring, without posting; see `ops_wqe.cu` for the operands.
    pub struct OpsWqeParams {
        /// The QP.
        pub qp: DevicePtr<QpContext>,
        /// Index of the first WQE; each has two WQEBBs.
        pub index: u64,
        /// Bit 0: signalled. Bit 1: fenced.
        pub flags: u32,
        /// Zero.
        pub reserved: u32,
        /// Where the thread stores how it ended.
        pub status: DevicePtr<Status>,
    }
}

/// What the header holds of this file, in order.
pub(super) fn items() -> Vec<Item> {
    vec![struct_item::<OpsWqeParams>()]
}
