//! The structs of the kernel, of this crate and of softhca are the same.

use std::mem::offset_of;
use std::path::Path;

use gpuhca::abi;
use softhca::device::external;
use warpverbs::abi::header;

#[test]
fn the_header_of_the_kernel_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/gpuhca/abi.h");
    header::check(&path, &abi::render()).unwrap_or_else(|error| panic!("{error}"));
}

/// Sizes, and each field's offset in both.
macro_rules! same {
    ($own:ty, $theirs:ty: $($field:ident)*) => {
        assert_eq!((size_of::<$own>(), align_of::<$own>()), (size_of::<$theirs>(), align_of::<$theirs>()));
        $( assert_eq!(offset_of!($own, $field), offset_of!($theirs, $field), stringify!($field)); )*
    };
}

#[test]
fn the_tables_are_those_of_softhca() {
    same!(abi::HcaQp, external::Qp: head ring record page receive_ring patience_ns rnr_delay_ns depth qpn remote_qpn peer hca
        remote_hca pdn flags mtu send_psn receive_psn send_cq receive_cq user_index first_key keys receive_entries receive_stride
        rnr_retry reserved2);
    same!(abi::HcaCq, external::Cq: head ring record entries stride flags cqn reserved);
    same!(abi::HcaKey, external::Key: head iova bytes address access pdn qpn reserved);
    same!(abi::HcaQpProgress, external::QpProgress: life failed sent received posted fetched retired received_wqes receive_lock
        rnr_count rung silent_since_ns not_before_ns wqes doorbells cqes error_cqes bytes_written bytes_read writes
        inline_writes reads atomics odd reserved);
    same!(abi::HcaCqProgress, external::CqProgress: life producer overrun);
    assert_eq!(
        offset_of!(abi::HcaControl, generation) as u64,
        external::CONTROL_GENERATION
    );
    assert_eq!(
        offset_of!(abi::HcaControl, qps) as u64,
        external::CONTROL_QPS
    );
    let own = [
        abi::VERSION,
        abi::QPS,
        abi::CQS,
        abi::PAGES,
        abi::HCAS,
        abi::KEYS,
    ];
    let theirs = [
        external::VERSION,
        external::QPS,
        external::CQS,
        external::PAGES,
        external::HCAS,
        external::KEYS,
    ];
    assert_eq!(own, theirs);
    assert_eq!(u64::from(abi::PAGE_STRIDE), external::PAGE_STRIDE);
    assert_eq!(abi::TWIN as usize, external::TWIN);
    let odd = [
        (abi::ODD_BACKWARDS, external::QpProgress::ODD_BACKWARDS),
        (abi::ODD_BEYOND_RING, external::QpProgress::ODD_BEYOND_RING),
        (abi::ODD_INDEX, external::QpProgress::ODD_INDEX),
        (abi::ODD_QPN, external::QpProgress::ODD_QPN),
        (abi::ODD_LENGTH, external::QpProgress::ODD_LENGTH),
        (abi::ODD_SEGMENT, external::QpProgress::ODD_SEGMENT),
        (abi::ODD_LOCAL_KEY, external::QpProgress::ODD_LOCAL_KEY),
        (abi::ODD_REMOTE_KEY, external::QpProgress::ODD_REMOTE_KEY),
    ];
    for (own, theirs) in odd {
        assert_eq!(u64::from(own), theirs);
    }
    let flags = [
        (abi::QP_RIGHT_WRITE, external::Qp::RIGHT_WRITE),
        (abi::QP_RIGHT_READ, external::Qp::RIGHT_READ),
        (abi::QP_RIGHT_ATOMIC, external::Qp::RIGHT_ATOMIC),
        (abi::QP_PAUSED, external::Qp::PAUSED),
        (abi::QP_DOWN, external::Qp::DOWN),
        (abi::QP_NO_RECORD, external::Qp::NO_RECORD),
        (abi::CQ_COLLAPSED, external::Cq::COLLAPSED),
        (abi::CQ_IGNORES_OVERRUN, external::Cq::IGNORES_OVERRUN),
        (abi::FAILED_RESPONDER, external::QpProgress::RESPONDER),
    ];
    for (own, theirs) in flags {
        assert_eq!(own, theirs);
    }
    assert_eq!(gpuhca::executor_bytes(), size_of::<external::Executor>());
}
