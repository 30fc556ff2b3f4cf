//! A command on its way: the objects that it works on, and how it is refused.

use crate::device::command::syndrome;
use crate::device::memory::Region;
use crate::device::names::DevxObject;
use crate::device::state::{Fabric, HcaState, Slot};
use mlx5_prm::cmd::{CreateOut, Status};

/// The kind of call by which a command may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device) enum Class {
    Create,
    Modify,
    Query,
    Destroy,
    General,
}

/// The reason why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: Status,
    pub(super) syndrome: u32,
}

impl Refusal {
    pub(super) const fn new(status: Status, syndrome: u32) -> Self {
        Self { status, syndrome }
    }

    pub(super) const fn bad_param(syndrome: u32) -> Self {
        Self::new(Status::BAD_PARAM, syndrome)
    }

    pub(super) const fn bad_resource(syndrome: u32) -> Self {
        Self::new(Status::BAD_RES, syndrome)
    }

    pub(super) const FULL: Self = Self::new(Status::NO_RES, syndrome::NO_MORE_OBJECTS);
}

/// The HCA, the context and the buffers that a command works on.
pub(super) struct Call<'a> {
    pub(super) fabric: &'a mut Fabric,
    pub(super) hca: usize,
    pub(super) context: u32,
    pub(super) input: &'a [u8],
    pub(super) output: &'a mut [u8],
}

impl Call<'_> {
    /// Returns the HCA and its wire. They exist: the context that this call came through is open.
    pub(super) fn slot(&mut self) -> Result<&mut Slot, Refusal> {
        self.fabric.slot(self.hca).ok_or(Refusal::new(
            Status::BAD_SYS_STATE,
            syndrome::NO_SUCH_DEVICE,
        ))
    }

    /// Returns the state of the HCA that the context of this call has opened.
    pub(super) fn hca(&mut self) -> Result<&mut HcaState, Refusal> {
        Ok(&mut self.slot()?.state)
    }

    /// Refuses inputs shorter than `bytes`.
    pub(super) fn need_input(&self, bytes: usize) -> Result<(), Refusal> {
        if self.input.len() < bytes {
            return Err(Refusal::new(Status::BAD_INP_LEN, syndrome::INPUT_TOO_SHORT));
        }
        Ok(())
    }

    /// Writes a reply to the output, as much of it as the buffer holds.
    pub(super) fn reply(&mut self, reply: &[u8]) {
        let bytes = self.output.len().min(reply.len());
        self.output[..bytes].copy_from_slice(&reply[..bytes]);
    }

    /// Replies with the number of a new object.
    pub(super) fn reply_number(&mut self, number: u32) {
        // PANIC: numbers of objects have 24 bits.
        self.reply(CreateOut::default().with_number(number).as_bytes());
    }
}

pub(super) type Outcome = Result<Option<DevxObject>, Refusal>;

/// Returns a part of a UMEM of this context. `outside` is the syndrome of a part that does not fit.
pub(super) fn umem_part(
    hca: &HcaState,
    context: u32,
    id: u32,
    offset: u64,
    bytes: u64,
    outside: u32,
) -> Result<Region, Refusal> {
    let umem = hca
        .umems
        .get(id)
        .filter(|umem| umem.context == context)
        .ok_or(Refusal::bad_resource(syndrome::NO_SUCH_UMEM))?;
    umem.region
        .part(offset, bytes)
        .ok_or(Refusal::bad_param(outside))
}

/// Returns where a ring starts in its UMEM: after `offset` bytes and `page_offset` units of 64 bytes.
pub(super) fn ring_start(offset: u64, page_offset: u32) -> Result<u64, Refusal> {
    let start = offset
        .checked_add(u64::from(page_offset) * 64)
        .ok_or(Refusal::bad_param(syndrome::QUEUE_OUTSIDE_UMEM))?;
    if !start.is_multiple_of(64) {
        return Err(Refusal::bad_param(syndrome::QUEUE_MISALIGNED));
    }
    Ok(start)
}

/// Returns the doorbell record of 8 bytes at `offset` of a UMEM.
pub(super) fn record_part(
    hca: &HcaState,
    context: u32,
    id: u32,
    offset: u64,
) -> Result<Region, Refusal> {
    let record = umem_part(hca, context, id, offset, 8, syndrome::DBR_OUTSIDE_UMEM)?;
    if !record.address().is_multiple_of(8) {
        return Err(Refusal::bad_param(syndrome::DBR_MISALIGNED));
    }
    Ok(record)
}

/// Refuses a UAR page that does not belong to this context.
pub(super) fn need_uar(hca: &HcaState, context: u32, page_id: u32) -> Result<(), Refusal> {
    hca.uars
        .get(page_id)
        .filter(|uar| uar.context == context)
        .map(|_| ())
        .ok_or(Refusal::bad_resource(syndrome::NO_SUCH_UAR))
}
