//! UAR pages of a context.

use super::refuse::{no_context, own, refuse_busy};
use crate::device::error::DeviceError;
use crate::device::names::UarPage;
use crate::device::objects::uar::{Uar, UarSpace};
use crate::device::state::HcaState;
use mlx5_prm::cmd::Opcode;
use mlx5_prm::doorbell::uar;

/// Makes a UAR page.
pub(super) fn alloc(hca: &mut HcaState, context: u32) -> Result<UarPage, DeviceError> {
    hca.strike(Opcode::ALLOC_UAR)?;
    let full = DeviceError::Full {
        what: "UAR page",
        limit: UarSpace::PAGES,
    };
    let Some(open) = hca.contexts.get_mut(context) else {
        return Err(no_context(context));
    };
    let index = open.pages.insert(()).ok_or(full)?;
    let page = match open.space.map(index as usize) {
        Ok(page) => page,
        Err(error) => {
            open.pages.remove(index);
            return Err(error);
        }
    };
    let page = Uar {
        context,
        index,
        page,
        cqs: Vec::new(),
        qps: Vec::new(),
    };
    let page_id = hca.uars.insert(page).ok_or(full)?;
    Ok(UarPage {
        page_id,
        offset: UarSpace::offset(index as usize),
        bytes: uar::PAGE_BYTES as u64,
    })
}

/// Ends a UAR page that no QP or CQ uses any more.
pub(super) fn free(hca: &mut HcaState, context: u32, page_id: u32) -> Result<(), DeviceError> {
    let found = hca
        .uars
        .get(page_id)
        .is_some_and(|uar| uar.context == context);
    own(found, "UAR page", page_id)?;
    refuse_busy("UAR page", page_id, users(hca, page_id))?;
    hca.strike(Opcode::DEALLOC_UAR)?;
    if let Some(page) = hca.uars.remove(page_id)
        && let Some(open) = hca.contexts.get_mut(context)
    {
        open.pages.remove(page.index);
    }
    Ok(())
}

fn users(hca: &HcaState, page_id: u32) -> usize {
    hca.cqs.iter().filter(|(_, cq)| cq.uar == page_id).count()
        + hca.qps.iter().filter(|(_, qp)| qp.uar == page_id).count()
}
