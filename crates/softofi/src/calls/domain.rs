//! Calls on a domain.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use libfabric_abi::bindings::{
    FI_CLASS_AV, FI_CLASS_CQ, FI_CLASS_DOMAIN, FI_COMPLETION, FI_MR_LOCAL, FI_TRANSMIT_COMPLETE,
    FI_WAIT_FD, FI_WAIT_NONE, FI_WAIT_UNSPEC, fi_av_attr, fi_cq_attr, fi_info, fi_ops,
    fi_ops_domain, fid, fid_av, fid_cq, fid_domain, fid_ep,
};
use libfabric_abi::errors::FI_ENODATA;

use crate::config::{Profile, of_domain, of_environment};
use crate::guard;
use crate::handles::{self, Object};
use crate::objects::{Domain, Endpoint, Fabric, Format, Queue, Vector};
use crate::rules::Rule;

use super::{
    c_functions, completions, endpoint, given, hand_over, head, object, registration, table, vector,
};

/// Entries of a completion queue whose size the program leaves open.
const DEFAULT_SIZE: usize = 1024;

static OPS: fi_ops = object::ops(close);

static DOMAIN: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: Some(av_open),
    cq_open: Some(cq_open),
    endpoint: Some(open_endpoint),
    scalable_ep: None,
    cntr_open: None,
    poll_open: None,
    stx_ctx: None,
    srx_ctx: None,
    query_atomic: None,
    query_collective: None,
    endpoint2: None,
};

/// `fi_domain`.
///
/// # Safety
///
/// The description and what it names are C's, and valid; the place is null or may be written.
pub(super) unsafe fn open(
    fabric: Arc<Fabric>,
    info: &fi_info,
    place: *mut *mut fid_domain,
    context: *mut c_void,
) -> Result<(), c_int> {
    given(place, "domain")?;
    given(info.domain_attr, "info->domain_attr")?;
    given(info.fabric_attr, "info->fabric_attr")?;
    // SAFETY: not null, and valid by the caller's word.
    let (domain, of_fabric) = unsafe { (&*info.domain_attr, &*info.fabric_attr) };
    // SAFETY: texts of C.
    let (name, fabric_name) = unsafe { (text(domain.name), text(of_fabric.name)) };
    let profile = fabric_name.as_deref().and_then(Profile::named);
    let profile = profile.ok_or(FI_ENODATA)?;
    let config = match name.as_deref().and_then(of_domain) {
        Some(config) => config,
        None => of_environment().map_err(|_| FI_ENODATA)?.config,
    };
    let needs = domain.mr_mode != 1 && domain.mr_mode & FI_MR_LOCAL != 0;
    let needs = needs || profile.mr_mode() & FI_MR_LOCAL != 0;
    fabric.domains.add();
    let domain = Arc::new(Domain::new(fabric, config, profile, needs));
    let seen = fid_domain {
        fid: head(FI_CLASS_DOMAIN, &OPS, context),
        ops: table(&DOMAIN),
        mr: table(&registration::MR),
    };
    let pointer = handles::publish(seen, Object::Domain(domain));
    // SAFETY: C's place for it.
    unsafe { hand_over(place, pointer) };
    Ok(())
}

/// # Safety
///
/// Null, or a text that ends with zero.
unsafe fn text(words: *const c_char) -> Option<String> {
    if words.is_null() {
        return None;
    }
    // SAFETY: the caller's word.
    let words = unsafe { CStr::from_ptr(words) };
    words.to_str().ok().map(str::to_owned)
}

c_functions! {
    /// `fi_close`.
    fn close(object: *mut fid) -> c_int, guard::status {
        let domain = handles::find::<Domain>(object)?;
        domain.users.none("the domain")?;
        handles::retire(object);
        domain.end();
        domain.fabric.domains.remove();
        Ok(())
    }

    /// `fi_av_open`.
    fn av_open(domain: *mut fid_domain, attr: *mut fi_av_attr, place: *mut *mut fid_av, context: *mut c_void) -> c_int,
        guard::status {
        let domain = handles::find::<Domain>(domain)?;
        given(attr, "attr")?;
        given(place, "av")?;
        // SAFETY: C's attribute.
        let flags = unsafe { (*attr).flags };
        if flags != 0 {
            return Err(Rule::Flags.broken(format_args!("(fi_av_open: {flags:#x})")));
        }
        domain.users.add();
        let seen = fid_av { fid: head(FI_CLASS_AV, &vector::OPS, context), ops: table(&vector::AV) };
        let pointer = handles::publish(seen, Object::Vector(Arc::new(Vector::new(domain))));
        // SAFETY: C's place for it.
        unsafe { hand_over(place, pointer) };
        Ok(())
    }

    /// `fi_cq_open`.
    fn cq_open(domain: *mut fid_domain, attr: *mut fi_cq_attr, place: *mut *mut fid_cq, context: *mut c_void) -> c_int,
        guard::status {
        let domain = handles::find::<Domain>(domain)?;
        given(attr, "attr")?;
        given(place, "cq")?;
        // SAFETY: C's attribute.
        let attr = unsafe { &*attr };
        let waits = match attr.wait_obj {
            FI_WAIT_NONE => false,
            FI_WAIT_FD | FI_WAIT_UNSPEC if domain.config.wait => true,
            object => return Err(Rule::WaitObject.broken(format_args!("({object})"))),
        };
        let format = Format::of(attr.format, domain.profile)?;
        let size = if attr.size == 0 { DEFAULT_SIZE } else { attr.size };
        domain.users.add();
        let queue = match Queue::new(domain.clone(), format, size, waits) {
            Ok(queue) => Arc::new(queue),
            Err(error) => {
                domain.users.remove();
                return Err(error);
            }
        };
        let seen = fid_cq { fid: head(FI_CLASS_CQ, &completions::OPS, context), ops: table(&completions::CQ) };
        let pointer = handles::publish(seen, Object::Queue(queue));
        // SAFETY: C's place for it.
        unsafe { hand_over(place, pointer) };
        Ok(())
    }

    /// `fi_endpoint`.
    fn open_endpoint(domain: *mut fid_domain, info: *mut fi_info, place: *mut *mut fid_ep, context: *mut c_void) -> c_int,
        guard::status {
        let domain = handles::find::<Domain>(domain)?;
        given(info, "info")?;
        given(place, "ep")?;
        // SAFETY: C's description and its attributes.
        let (caps, op_flags) = unsafe {
            let sends = (*info).tx_attr.as_ref();
            ((*info).caps, sends.map_or(FI_COMPLETION | FI_TRANSMIT_COMPLETE, |tx| tx.op_flags))
        };
        let seen = endpoint::seen(context);
        let endpoint = Arc::new(Endpoint::new(domain, caps, op_flags));
        let pointer = handles::publish(seen, Object::Endpoint(endpoint));
        // SAFETY: C's place for it.
        unsafe { hand_over(place, pointer) };
        Ok(())
    }
}
