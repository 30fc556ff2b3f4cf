//! Numbers of the tables: sizes, offsets in a UAR page, and bits of flags.

/// Hands the constants of the tables, as items `pub const NAME: u32 = VALUE;` with their documentation, to the macro that is named.
#[macro_export]
macro_rules! constants {
    ($($define:tt)+) => {
        $($define)+! {
            /// Version of the tables.
            pub const VERSION: u32 = 1;
            /// Number of entries of the table of QPs.
            pub const QPS: u32 = 8192;
            /// Number of entries of the table of CQs.
            pub const CQS: u32 = 16384;
            /// Number of twins of UAR pages.
            pub const PAGES: u32 = 4096;
            /// Number of HCAs that have keys in the table of keys.
            pub const HCAS: u32 = 64;
            /// Number of keys of one HCA.
            pub const KEYS: u32 = 1024;
            /// Bytes from one twin of a UAR page to the next.
            pub const PAGE_STRIDE: u32 = 4096;
            /// Offset in a UAR page of the word that holds the address of its twin.
            pub const TWIN: u32 = 256;
            /// HcaQp::flags: peers may write.
            pub const QP_RIGHT_WRITE: u32 = 1;
            /// HcaQp::flags: peers may read.
            pub const QP_RIGHT_READ: u32 = 2;
            /// HcaQp::flags: peers may do atomics.
            pub const QP_RIGHT_ATOMIC: u32 = 4;
            /// HcaQp::flags: the HCA is paused. The QP does nothing, and its peer waits without limit.
            pub const QP_PAUSED: u32 = 8;
            /// HcaQp::flags: the port is down or the HCA has failed. The QP is silent.
            pub const QP_DOWN: u32 = 16;
            /// HcaQp::flags: the doorbell itself says how far to run.
            pub const QP_NO_RECORD: u32 = 32;
            /// HcaCq::flags: the CQ has one entry, which is written over and over.
            pub const CQ_COLLAPSED: u32 = 1;
            /// HcaCq::flags: entries are written whatever the consumer index is.
            pub const CQ_IGNORES_OVERRUN: u32 = 2;
            /// HcaQpProgress::failed: the QP refused a request of its peer.
            pub const FAILED_RESPONDER: u32 = 256;
            /// HcaQpProgress::odd: a doorbell went back.
            pub const ODD_BACKWARDS: u32 = 1;
            /// HcaQpProgress::odd: a doorbell goes further than the ring, so WQEs were overwritten before they were fetched.
            pub const ODD_BEYOND_RING: u32 = 2;
            /// HcaQpProgress::odd: the WQE in the slot that is due has another index.
            pub const ODD_INDEX: u32 = 4;
            /// HcaQpProgress::odd: a WQE names another QP.
            pub const ODD_QPN: u32 = 8;
            /// HcaQpProgress::odd: the length of a WQE is 0, more than the ring, or more than its doorbell allows.
            pub const ODD_LENGTH: u32 = 16;
            /// HcaQpProgress::odd: the segments of a WQE make no sense.
            pub const ODD_SEGMENT: u32 = 32;
            /// HcaQpProgress::odd: a local key does not give the memory.
            pub const ODD_LOCAL_KEY: u32 = 64;
            /// HcaQpProgress::odd: a key of the peer does not give the memory.
            pub const ODD_REMOTE_KEY: u32 = 128;
        }
    };
}

/// Defines the constants as they are.
macro_rules! define {
    ($($item:item)*) => { $($item)* };
}

constants!(define);

/// The entry of a table that an object names if it has none there.
pub const NO_ENTRY: u32 = u32::MAX;
