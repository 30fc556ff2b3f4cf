//! Commands of memory keys: those over a UMEM. Regions registered by the kernel's call are keys too, but not of these.

use super::super::context::DevxObject;
use super::super::keys::{Access, Backing, MemoryKey};
use super::super::syndrome;
use super::{Call, Outcome, Refusal, umem_part};
use mlx5_prm::mkey::{CreateMkeyIn, DestroyMkeyIn, Mkc};

/// Bytes of the input up to `mkey_umem_offset`.
const CREATE_BYTES: usize = 0x70;

pub(super) fn create(call: &mut Call<'_>) -> Outcome {
    call.need_input(CREATE_BYTES)?;
    let input = CreateMkeyIn::from_prefix(call.input);
    let context = call.context;
    let mkc = *input.mkc();
    let hca = call.hca()?;
    if mkc.access_mode() != Mkc::ACCESS_MODE_MTT || mkc.free() != 0 || mkc.length64() != 0 {
        return Err(Refusal::bad_param(syndrome::MKEY_MODE));
    }
    if hca.pds.get(mkc.pd()) != Some(&context) {
        return Err(Refusal::bad_resource(syndrome::NO_SUCH_PD));
    }
    if mkc.start_addr().checked_add(mkc.len()).is_none() {
        return Err(Refusal::bad_param(syndrome::MKEY_RANGE));
    }
    let region = umem_part(
        hca,
        context,
        input.mkey_umem_id(),
        input.mkey_umem_offset(),
        mkc.len(),
        syndrome::MKEY_RANGE,
    )?;
    let rights = [
        (mkc.lr(), Access::LOCAL_READ),
        (mkc.lw(), Access::LOCAL_WRITE),
        (mkc.rr(), Access::REMOTE_READ),
        (mkc.rw(), Access::REMOTE_WRITE),
        (mkc.a(), Access::REMOTE_ATOMIC),
    ];
    let access = rights
        .into_iter()
        .filter(|(bit, _)| *bit != 0)
        .fold(Access::default(), |all, (_, right)| all.with(right));
    let index = hca
        .keys
        .insert(MemoryKey {
            context,
            pdn: mkc.pd(),
            // An 8-bit field.
            variant: mkc.mkey_7_0().to_be_bytes()[3],
            iova: mkc.start_addr(),
            bytes: region.bytes(),
            backing: Backing::Direct(region),
            access,
            umem: Some(input.mkey_umem_id()),
        })
        .ok_or(Refusal::FULL)?;
    call.reply_number(index);
    Ok(Some(DevxObject::Mkey(index)))
}

pub(super) fn destroy(call: &mut Call<'_>) -> Outcome {
    let index = DestroyMkeyIn::from_prefix(call.input).mkey_index();
    find(call, index)?;
    call.hca()?.keys.remove(index);
    Ok(None)
}

/// Header (16 bytes) and context of the answer.
pub(super) fn query(call: &mut Call<'_>) -> Outcome {
    let index = DestroyMkeyIn::from_prefix(call.input).mkey_index();
    let key = find(call, index)?;
    let bit = |right| u32::from(key.access.covers(right));
    let mkc = Mkc::default()
        .with_access_mode_1_0(Mkc::ACCESS_MODE_MTT)
        .with_lr(bit(Access::LOCAL_READ))
        .with_lw(bit(Access::LOCAL_WRITE))
        .with_rr(bit(Access::REMOTE_READ))
        .with_rw(bit(Access::REMOTE_WRITE))
        .with_a(bit(Access::REMOTE_ATOMIC))
        .with_qpn(0x00ff_ffff)
        .with_mkey_7_0(key.variant.into())
        .with_pd(key.pdn)
        .with_start_addr(key.iova)
        .with_len(key.bytes);
    let mut reply = [0; 16 + Mkc::BYTES];
    reply[16..].copy_from_slice(mkc.as_bytes());
    call.reply(&reply);
    Ok(None)
}

fn find<'a>(call: &'a mut Call<'_>, index: u32) -> Result<&'a MemoryKey, Refusal> {
    let context = call.context;
    call.hca()?
        .keys
        .get(index)
        .filter(|key| key.context == context && key.umem.is_some())
        .ok_or(Refusal::bad_resource(syndrome::NO_SUCH_MKEY))
}
