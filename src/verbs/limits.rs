//! Limits of the hardware and of kernels, and the check of a value against them.

use std::ops::RangeInclusive;

use crate::abi::MIN_DEPTH;
use crate::verbs::error::VerbsError;

/// The LIDs of single ports. IBTA, "Local Identifiers".
pub(crate) const UNICAST_LIDS: RangeInclusive<u16> = 0x1..=0xbfff;
/// The alignment of the control heap's region, and the page size of its UMEM. The offset of a CQ in its page is 6 bits wide, in units of 64
/// bytes.
pub const HEAP_ALIGN: u64 = 4096;
/// The log2 of the smallest depth that kernels allow.
#[expect(clippy::cast_possible_truncation, reason = "at most 31")]
pub(super) const LOG_MIN_DEPTH: u8 = MIN_DEPTH.ilog2() as u8;
/// The number of bytes of a completion entry.
pub(super) const CQE_BYTES: u64 = 64;
/// The number of bytes of a receive WQE, which is one data segment.
pub(super) const RECV_WQE_BYTES: u64 = 16;
/// The number of bytes of a line. No other QP writes to a QP's lines.
pub(super) const LINE_BYTES: u64 = 128;
/// The number of bytes of the lines with the collapsed CQE and with the doorbell records, as they lie in [`QpContext`].
pub(super) const RECORDS_BYTES: u64 = 2 * LINE_BYTES;

pub(super) fn in_range(
    what: &'static str,
    value: u8,
    least: u8,
    most: u8,
) -> Result<(), VerbsError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(VerbsError::argument(
        what,
        value,
        format!("{least} to {most}"),
    ))
}

pub(super) fn in_24_bits(what: &'static str, value: u32) -> Result<(), VerbsError> {
    if value < 1 << 24 {
        return Ok(());
    }
    Err(VerbsError::argument(
        what,
        format!("{value:#x}"),
        "a number of 24 bits",
    ))
}
