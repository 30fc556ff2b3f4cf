//! Commands of memory keys: keys of memory in a UMEM, and keys that refer to other keys. Regions registered by the kernel's call and memory
//! windows are keys too, but these commands do not reach them.

use super::syndrome;
use crate::device::command::call::{Call, Outcome, Refusal, umem_part};
use crate::device::limits;
use crate::device::memory::Access;
use crate::device::memory::keys::{Backing, Kind, MemoryKey};
use crate::device::memory::translation::{ENTRY_BYTES, Mode, RawEntry, Translation};
use crate::device::names::DevxObject;
use crate::device::state::HcaState;
use mlx5_prm::cmd::Status;
use mlx5_prm::mkey::{CreateMkeyIn, DestroyMkeyIn, Mkc};

/// Length of the input up to `mkey_umem_offset`.
const CREATE_BYTES: usize = 0x70;

pub(super) fn create(call: &mut Call<'_>) -> Outcome {
    call.need_input(CREATE_BYTES)?;
    let input = CreateMkeyIn::from_prefix(call.input);
    let list = call.input.get(CreateMkeyIn::BYTES..).unwrap_or(&[]);
    let context = call.context;
    let mkc = *input.mkc();
    let hca = match call.slot() {
        Ok(slot) => &mut slot.state,
        Err(refusal) => return Err(refusal),
    };
    if hca.pds.get(mkc.pd()) != Some(&context) {
        return Err(Refusal::bad_resource(syndrome::NO_SUCH_PD));
    }
    if mkc.bsf_en() != 0 || mkc.bsf_octword_size() != 0 || mkc.crypto_en() != 0 {
        return Err(Refusal::bad_param(syndrome::MKEY_SIGNATURE));
    }
    if input.input_mkey_index() != 0 {
        return Err(Refusal::bad_param(syndrome::MKEY_BY_NAME));
    }
    if hca.is_over_long(mkc.len()) {
        return Err(Refusal::bad_param(syndrome::MKEY_LENGTH));
    }
    if mkc.length64() != 0 || mkc.start_addr().checked_add(mkc.len()).is_none() {
        return Err(Refusal::bad_param(syndrome::MKEY_RANGE));
    }
    let (kind, backing) = match mkc.access_mode() {
        Mkc::ACCESS_MODE_MTT => over_umem(hca, context, &input)?,
        Mkc::ACCESS_MODE_KLM => over_keys(&input, Mode::Klm, list)?,
        Mkc::ACCESS_MODE_KSM => {
            let log_bytes = mkc.log_page_size();
            over_keys(&input, Mode::Ksm { log_bytes }, list)?
        }
        _ => return Err(Refusal::bad_param(syndrome::MKEY_MODE)),
    };
    let key = MemoryKey {
        context,
        pdn: mkc.pd(),
        // This is an 8-bit field.
        variant: mkc.mkey_7_0().to_be_bytes()[3],
        kind,
        free: mkc.free() != 0,
        qpn: Some(mkc.qpn()).filter(|qpn| !matches!(*qpn, 0 | Mkc::ANY_QP)),
        remote_invalidate: mkc.en_rinval() != 0,
        iova: mkc.start_addr(),
        bytes: mkc.len(),
        backing,
        access: Access::of_context(&mkc),
        mapping: None,
    };
    let index = hca.keys.insert(key).ok_or(Refusal::FULL)?;
    call.reply_number(index);
    Ok(Some(DevxObject::Mkey(index)))
}

/// Returns kind and backing of a key for memory in one piece, in a UMEM.
fn over_umem(
    hca: &HcaState,
    context: u32,
    input: &CreateMkeyIn,
) -> Result<(Kind, Backing), Refusal> {
    let umem = input.mkey_umem_id();
    if input.mkc().free() != 0 {
        return Err(Refusal::bad_param(syndrome::MKEY_MODE));
    }
    let region = umem_part(
        hca,
        context,
        umem,
        input.mkey_umem_offset(),
        input.mkc().len(),
        syndrome::MKEY_RANGE,
    )?;
    Ok((Kind::Umem(umem), Backing::Direct(region)))
}

/// Returns kind and backing of a key for pieces of other keys. The pieces come now, from the list in the command, or later, from UMR WQEs.
fn over_keys(input: &CreateMkeyIn, mode: Mode, list: &[u8]) -> Result<(Kind, Backing), Refusal> {
    let mkc = input.mkc();
    let room = mkc.translations_octword_size();
    if room > 1 << limits::LOG_KEY_LIST {
        return Err(Refusal::new(Status::LIM_ERR, syndrome::MKEY_LIST_TOO_LONG));
    }
    let listed = input.translations_octword_actual_size();
    let entries = list.chunks_exact(ENTRY_BYTES);
    let entries: Vec<RawEntry> = entries
        .take(listed as usize)
        .filter_map(|entry| entry.try_into().ok())
        .collect();
    if entries.len() < listed as usize {
        return Err(Refusal::new(Status::BAD_INP_LEN, syndrome::INPUT_TOO_SHORT));
    }
    let made = Translation::new(mode, room as usize).with(0, &entries);
    let made = made.map_err(|_| Refusal::bad_param(syndrome::MKEY_LIST))?;
    // The list must cover all that the key covers, unless the key is set up later.
    let last = mkc.len().checked_sub(1);
    if mkc.free() == 0 && last.is_some_and(|last| made.at(last).is_none()) {
        return Err(Refusal::bad_param(syndrome::MKEY_LIST));
    }
    let kind = Kind::Indirect {
        umr: mkc.umr_en() != 0,
    };
    Ok((kind, Backing::Indirect(Box::new(made))))
}

pub(super) fn destroy(call: &mut Call<'_>) -> Outcome {
    let index = DestroyMkeyIn::from_prefix(call.input).mkey_index();
    find(call, index)?;
    call.hca()?.end_key(index);
    Ok(None)
}

/// Replies with a header (16 bytes) and the context of the key.
pub(super) fn query(call: &mut Call<'_>) -> Outcome {
    let index = DestroyMkeyIn::from_prefix(call.input).mkey_index();
    let mkc = context_of(find(call, index)?);
    let mut reply = [0; 16 + Mkc::BYTES];
    reply[16..].copy_from_slice(mkc.as_bytes());
    call.reply(&reply);
    Ok(None)
}

fn context_of(key: &MemoryKey) -> Mkc {
    let bit = |right| u32::from(key.access.covers(right));
    let (mode, room, log_bytes) = match &key.backing {
        Backing::Direct(_) => (Mkc::ACCESS_MODE_MTT, 0, 0),
        Backing::Indirect(list) => {
            // The value is at most 2^LOG_KEY_LIST.
            let room = u32::try_from(list.limit()).unwrap_or(u32::MAX);
            match list.mode {
                Mode::Klm => (Mkc::ACCESS_MODE_KLM, room, 0),
                Mode::Ksm { log_bytes } => (Mkc::ACCESS_MODE_KSM, room, log_bytes),
            }
        }
    };
    Mkc::default()
        .with_free(key.free.into())
        .with_access_mode_1_0(mode & 3)
        .with_umr_en(matches!(key.kind, Kind::Indirect { umr: true }).into())
        .with_lr(bit(Access::LOCAL_READ))
        .with_lw(bit(Access::LOCAL_WRITE))
        .with_rr(bit(Access::REMOTE_READ))
        .with_rw(bit(Access::REMOTE_WRITE))
        .with_a(bit(Access::REMOTE_ATOMIC))
        .with_qpn(key.qpn.unwrap_or(Mkc::ANY_QP))
        .with_mkey_7_0(key.variant.into())
        .with_en_rinval(key.remote_invalidate.into())
        .with_pd(key.pdn)
        .with_start_addr(key.iova)
        .with_len(key.bytes)
        .with_translations_octword_size(room)
        .with_log_page_size(log_bytes)
}

fn find<'a>(call: &'a mut Call<'_>, index: u32) -> Result<&'a MemoryKey, Refusal> {
    let context = call.context;
    call.hca()?
        .keys
        .get(index)
        .filter(|key| {
            key.context == context && matches!(key.kind, Kind::Umem(_) | Kind::Indirect { .. })
        })
        .ok_or(Refusal::bad_resource(syndrome::NO_SUCH_MKEY))
}
