//! Which descriptions fit a program's hints.

// UNSAFETY: structures of C programs are followed by their pointers.
#![expect(unsafe_code, reason = "structures of C")]

use std::ffi::{CStr, c_char};

use libfabric_abi::bindings::{
    FI_ADDR_EFA, FI_EP_RDM, FI_EP_UNSPEC, FI_HMEM, FI_MR_ALLOCATED, FI_MR_BASIC, FI_MR_HMEM,
    FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR, FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL, FI_RMA,
    fi_domain_attr, fi_ep_attr, fi_info, fi_tx_attr,
};

use super::build::{RIGHTS, caps};
use crate::config::{Config, Profile};

/// Makes a description what the hints ask for; or says which of them it does not fit.
///
/// # Safety
///
/// Hints are valid, and `info` was made by `build`.
pub(crate) unsafe fn fit(
    hints: &fi_info,
    info: &mut fi_info,
    profile: Profile,
    config: &Config,
) -> Result<(), &'static str> {
    let asked = hints.caps;
    if asked & !caps(config) != 0 {
        return Err("caps");
    }
    if profile.mode() & !hints.mode != 0 {
        return Err("mode");
    }
    if ![0, FI_ADDR_EFA].contains(&hints.addr_format) {
        return Err("addr_format");
    }
    // SAFETY: the caller's word for both.
    unsafe {
        fit_names(hints, info)?;
        if let (Some(hint), Some(has)) = (hints.ep_attr.as_ref(), info.ep_attr.as_ref()) {
            fit_endpoint(hint, has)?;
        }
        if let (Some(hint), Some(has)) = (hints.tx_attr.as_ref(), info.tx_attr.as_mut()) {
            fit_sends(hint, has)?;
        }
        if let (Some(hint), Some(has)) = (hints.domain_attr.as_ref(), info.domain_attr.as_mut()) {
            let hmem = asked & FI_HMEM != 0;
            fit_domain(hint, has, profile, hmem)?;
        }
    }
    if asked != 0 {
        let rma = asked & FI_RMA != 0 && asked & RIGHTS == 0;
        info.caps = asked | if rma { RIGHTS } else { 0 };
    }
    Ok(())
}

/// # Safety
///
/// As [`fit`].
unsafe fn fit_names(hints: &fi_info, info: &fi_info) -> Result<(), &'static str> {
    // SAFETY: the caller's word.
    unsafe {
        if let (Some(hint), Some(has)) = (hints.fabric_attr.as_ref(), info.fabric_attr.as_ref()) {
            if !is_asked(hint.name, has.name) {
                return Err("fabric_attr.name");
            }
            if !is_asked(hint.prov_name, has.prov_name) {
                return Err("fabric_attr.prov_name");
            }
        }
        if let (Some(hint), Some(has)) = (hints.domain_attr.as_ref(), info.domain_attr.as_ref())
            && !is_asked(hint.name, has.name)
        {
            return Err("domain_attr.name");
        }
    }
    Ok(())
}

/// # Safety
///
/// Texts are null or end with zero.
unsafe fn is_asked(hint: *const c_char, has: *const c_char) -> bool {
    // SAFETY: the caller's word.
    hint.is_null() || !has.is_null() && unsafe { CStr::from_ptr(hint) == CStr::from_ptr(has) }
}

fn fit_endpoint(hint: &fi_ep_attr, has: &fi_ep_attr) -> Result<(), &'static str> {
    if ![FI_EP_UNSPEC, FI_EP_RDM].contains(&hint.type_) {
        return Err("ep_attr.type");
    }
    if hint.max_msg_size > has.max_msg_size {
        return Err("ep_attr.max_msg_size");
    }
    Ok(())
}

fn fit_sends(hint: &fi_tx_attr, has: &mut fi_tx_attr) -> Result<(), &'static str> {
    if hint.msg_order & !has.msg_order != 0 {
        return Err("tx_attr.msg_order");
    }
    if hint.op_flags & !has.op_flags != 0 {
        return Err("tx_attr.op_flags");
    }
    if hint.inject_size > has.inject_size {
        return Err("tx_attr.inject_size");
    }
    if hint.iov_limit > has.iov_limit || hint.rma_iov_limit > has.rma_iov_limit {
        return Err("tx_attr.iov_limit");
    }
    if hint.size > has.size {
        return Err("tx_attr.size");
    }
    has.op_flags = hint.op_flags;
    has.msg_order = hint.msg_order;
    Ok(())
}

fn fit_domain(
    hint: &fi_domain_attr,
    has: &mut fi_domain_attr,
    profile: Profile,
    hmem: bool,
) -> Result<(), &'static str> {
    let mut served = hint.mr_mode;
    let is_basic = served == FI_MR_BASIC as i32;
    if is_basic {
        served |= FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    }
    let needed = profile.mr_mode() | if hmem { FI_MR_HMEM } else { 0 };
    if needed & !served != 0 {
        return Err("domain_attr.mr_mode");
    }
    if hint.data_progress == FI_PROGRESS_AUTO && has.data_progress == FI_PROGRESS_MANUAL {
        return Err("domain_attr.data_progress");
    }
    if hint.mr_key_size > has.mr_key_size {
        return Err("domain_attr.mr_key_size");
    }
    if hint.cq_data_size > has.cq_data_size {
        return Err("domain_attr.cq_data_size");
    }
    // What a program may ask for without need: descriptors of its own memory.
    has.mr_mode = if is_basic {
        FI_MR_BASIC as i32
    } else {
        needed | served & FI_MR_LOCAL
    };
    Ok(())
}
