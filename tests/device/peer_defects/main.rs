//! Defects of other libraries that post to a NIC from a device. Each has a test that this library passes and that a library with
//! the defect fails.
//!
//! Overlapping blocks of a memory heap (Mooncake, memheap.h): tests/verbs/memheap.rs. One UDP source port for all QPs that were made
//! in the same second (gpunetio; NVSHMEM, DeepEP, UCX with a constant one): src/verbs/qp/attr.rs. Doorbell registers on one
//! page: tests/verbs/qp_lifecycle. Kinds of QPs, all 64 against all 9: tests/device/put_modes.rs.

// UNSAFETY: the model NIC and a thread that plays one write memory that kernels read, and kernels are launched.
#![expect(
    unsafe_code,
    reason = "a device model in plain memory, kernel launches"
)]
#![expect(clippy::cast_possible_truncation, reason = "small test numbers")]

mod completion;
mod failure;
mod lives;
mod ranges;
mod scopes;
mod space;

use test_support::nic::{Behaviour, Follow};

/// A NIC that follows doorbells and fails nothing.
pub(crate) fn healthy(seed: u64) -> Behaviour {
    Behaviour::new(Follow::Doorbell, seed)
}
