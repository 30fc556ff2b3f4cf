//! Calls on a fabric.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use libfabric_abi::Version;
use libfabric_abi::bindings::{
    FI_CLASS_FABRIC, fi_eq_attr, fi_fabric_attr, fi_info, fi_ops, fi_ops_fabric, fid, fid_domain,
    fid_eq, fid_fabric,
};
use libfabric_abi::errors::{FI_ENODATA, FI_ENOSYS};

use crate::config::{Profile, of_environment};
use crate::guard;
use crate::handles::{self, Object};
use crate::objects::{Fabric, Queue, Users};
use crate::rules::Rule;
use crate::watch;

use super::{c_functions, domain, given, hand_over, head, object, table};

static OPS: fi_ops = fi_ops {
    ops_open: Some(ops_open),
    ..object::ops(close)
};

static FABRIC: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(open_domain),
    passive_ep: None,
    eq_open: Some(eq_open),
    wait_open: None,
    trywait: Some(trywait),
    domain2: None,
};

/// `fi_fabric`.
///
/// # Safety
///
/// As C calls it.
pub(crate) unsafe fn open(
    attr: *mut fi_fabric_attr,
    place: *mut *mut fid_fabric,
    context: *mut c_void,
) -> Result<(), c_int> {
    given(attr, "attr")?;
    given(place, "fabric")?;
    // SAFETY: not null, and valid by the word of C.
    let attr = unsafe { &*attr };
    let api = Version(attr.api_version);
    let least = Version::new(1, 0);
    let api = if api < least { least } else { api };
    let latest = of_environment().map_or(libfabric_abi::LATEST_API, |it| it.config.api);
    if api > latest {
        return Err(Rule::ApiVersion.broken(format_args!("(fi_fabric: {api}, not {latest})")));
    }
    if !attr.name.is_null() {
        // SAFETY: a text of C.
        let name = unsafe { CStr::from_ptr(attr.name) };
        if name.to_str().ok().and_then(Profile::named).is_none() {
            return Err(FI_ENODATA);
        }
    }
    let fabric = Arc::new(Fabric {
        api,
        domains: Users::default(),
    });
    let seen = fid_fabric {
        fid: head(FI_CLASS_FABRIC, &OPS, context),
        ops: table(&FABRIC),
        api_version: api.0,
    };
    let pointer = handles::publish(seen, Object::Fabric(fabric));
    // SAFETY: C's place for it.
    unsafe { hand_over(place, pointer) };
    Ok(())
}

c_functions! {
    /// `fi_close`.
    fn close(object: *mut fid) -> c_int, guard::status {
        let fabric = handles::find::<Fabric>(object)?;
        fabric.domains.none("the fabric")?;
        handles::retire(object);
        Ok(())
    }

    /// `fi_domain`.
    fn open_domain(
        fabric: *mut fid_fabric, info: *mut fi_info, place: *mut *mut fid_domain, context: *mut c_void,
    ) -> c_int, guard::status {
        let fabric = handles::find::<Fabric>(fabric)?;
        given(info, "info")?;
        // SAFETY: C's description and its place for the domain.
        unsafe { domain::open(fabric, &*info, place, context) }
    }

    /// `fi_eq_open`: nothing here has events of control.
    fn eq_open(fabric: *mut fid_fabric, _attr: *mut fi_eq_attr, _eq: *mut *mut fid_eq, _context: *mut c_void) -> c_int,
        guard::status {
        handles::find::<Fabric>(fabric)?;
        Err(FI_ENOSYS)
    }

    /// `fi_trywait`.
    fn trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int, guard::status {
        handles::find::<Fabric>(fabric)?;
        given(fids, "fids")?;
        for at in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: C has so many.
            let queue = handles::find::<Queue>(unsafe { *fids.add(at) })?;
            if !queue.may_sleep()? {
                return Err(libfabric_abi::errors::FI_EAGAIN);
            }
        }
        Ok(())
    }

    /// `fi_open_ops`: the table by which tests look into the library.
    fn ops_open(
        fabric: *mut fid, name: *const c_char, _flags: u64, ops: *mut *mut c_void, _context: *mut c_void,
    ) -> c_int, guard::status {
        handles::find::<Fabric>(fabric)?;
        given(name, "name")?;
        given(ops, "ops")?;
        // SAFETY: a text of C.
        if unsafe { CStr::from_ptr(name) } != watch::NAME {
            return Err(FI_ENOSYS);
        }
        // SAFETY: C's place for it.
        unsafe { hand_over(ops, watch::table().cast()) };
        Ok(())
    }
}
