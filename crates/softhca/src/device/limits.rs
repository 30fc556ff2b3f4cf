//! Limits of the device, which `QUERY_HCA_CAP` reports.

pub(crate) const LOG_QPS: u32 = 15;
pub(crate) const LOG_CQS: u32 = 15;
pub(crate) const LOG_KEYS: u32 = 16;
/// log2 of the number of entries of an indirect key's list.
pub(crate) const LOG_KEY_LIST: u32 = 16;
/// The most indirect keys between a segment and its memory.
pub(crate) const KEY_DEPTH: u32 = 4;
pub(crate) const LOG_PDS: u32 = 15;
pub(crate) const LOG_UMEMS: u32 = 16;
pub(crate) const CONTEXTS: usize = 1024;
/// log2 of the number of WQEBBs of a send queue and of WQEs of a receive queue.
pub(crate) const LOG_QUEUE: u32 = 15;
/// log2 of the number of 16-byte units of a receive WQE: 512 bytes.
pub(crate) const LOG_RQ_STRIDE: u32 = 5;
pub(crate) const LOG_CQ_ENTRIES: u32 = 22;
/// log2 of the number of shared receive queues, of either kind.
pub(crate) const LOG_SRQS: u32 = 15;
/// log2 of the number of 16-byte units of a WQE of a shared receive queue: 1024 bytes.
pub(crate) const LOG_SRQ_STRIDE: u32 = 6;
pub(crate) const LOG_XRCDS: u32 = 10;
/// Length of the largest send WQE: 63 units of 16 bytes, rounded up to whole WQEBBs.
pub(crate) const WQE_BYTES: u32 = 1024;
/// log2 of the length of the largest message.
pub(crate) const LOG_MESSAGE: u32 = 30;
/// log2 of the number of outstanding reads and atomics.
pub(crate) const LOG_READS: u32 = 4;
/// Number of completion vectors. Vector v has event queue `FIRST_EQN + v`.
pub(crate) const COMPLETION_VECTORS: u32 = 4;
pub(crate) const FIRST_EQN: u32 = 1;
