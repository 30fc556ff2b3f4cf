//! The seven functions that are symbols. The version script gives them the versions that they have in libfabric 1.17.

// UNSAFETY: symbols of C, with pointers of C.
#![expect(unsafe_code, reason = "symbols of a C interface")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use libfabric_abi::bindings::{
    FI_NUMERICHOST, FI_PROV_ATTR_ONLY, FI_SOURCE, fi_fabric_attr, fi_info, fid_fabric,
};
use libfabric_abi::errors::{FI_EINVAL, FI_ENODATA, FI_ENOMEM};
use libfabric_abi::{LATEST_API, Version};

use crate::calls;
use crate::config::{ConfigError, Profile, of_environment, of_node};
use crate::guard;
use crate::info;
use crate::rules::{Rule, say};
use crate::text;

/// `fi_getinfo(3)`.
///
/// # Safety
///
/// As libfabric's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_getinfo(
    version: u32,
    node: *const c_char,
    _service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    place: *mut *mut fi_info,
) -> c_int {
    guard::status(|| {
        if place.is_null() {
            return Err(FI_EINVAL);
        }
        // SAFETY: C's text, hints and place; a text is null or ends with zero.
        unsafe {
            let node = (!node.is_null()).then(|| CStr::from_ptr(node));
            place.write(null_mut());
            let list = find(Version(version), node, flags, hints.as_ref())?;
            place.write(list);
        }
        Ok(())
    })
}

/// # Safety
///
/// Hints and what they name are valid.
unsafe fn find(
    version: Version,
    node: Option<&CStr>,
    flags: u64,
    hints: Option<&fi_info>,
) -> Result<*mut fi_info, c_int> {
    let node = node.and_then(|node| node.to_str().ok());
    let numbered = match node.and_then(of_node) {
        Some(numbered) => numbered,
        None => of_environment(),
    };
    let numbered = numbered.map_err(|error| refuse(&error))?;
    let config = &*numbered.config;
    if version > config.api {
        let has = config.api;
        return Err(Rule::ApiVersion.broken(format_args!("(fi_getinfo: {version}, not {has})")));
    }
    if flags & !(FI_PROV_ATTR_ONLY | FI_SOURCE | FI_NUMERICHOST) != 0 {
        return Err(Rule::Flags.broken(format_args!("(fi_getinfo: {flags:#x})")));
    }
    let mut found: Vec<*mut fi_info> = Vec::new();
    for profile in &config.profiles {
        if *profile == Profile::EfaDirect && version < LATEST_API {
            continue;
        }
        for nic in 0..config.nics {
            let place = info::Place {
                nic,
                config: numbered.number,
                api: version,
            };
            let pointer = info::build(*profile, config, place);
            // SAFETY: made a moment ago, or null without memory.
            let info = unsafe { pointer.as_mut() }.ok_or(FI_ENOMEM)?;
            // SAFETY: the caller's word for the hints.
            let fits = hints.map_or(Ok(()), |hints| unsafe {
                info::fit(hints, info, *profile, config)
            });
            if fits.is_ok() {
                found.push(pointer);
            } else {
                // SAFETY: nobody else has it.
                unsafe { info::free_all(pointer) };
            }
        }
    }
    for pair in found.windows(2) {
        // SAFETY: descriptions that were made here.
        unsafe { (*pair[0]).next = pair[1] };
    }
    found.first().copied().ok_or(FI_ENODATA)
}

fn refuse(error: &ConfigError) -> c_int {
    say(&format!("softofi: its configuration: {error}"));
    FI_EINVAL
}

/// `fi_freeinfo(3)`.
///
/// # Safety
///
/// As libfabric's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_freeinfo(info: *mut fi_info) {
    // SAFETY: the word of C.
    guard::value((), || unsafe { info::free_all(info) });
}

/// `fi_dupinfo(3)`; of null it is `fi_allocinfo(3)`.
///
/// # Safety
///
/// As libfabric's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_dupinfo(other: *const fi_info) -> *mut fi_info {
    // SAFETY: the word of C.
    guard::value(null_mut(), || match unsafe { other.as_ref() } {
        // SAFETY: as above.
        Some(other) => unsafe { info::duplicate(other) },
        None => info::empty(),
    })
}

/// `fi_fabric(3)`.
///
/// # Safety
///
/// As libfabric's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_fabric(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the word of C.
    guard::status(|| unsafe { calls::open_fabric(attr, fabric, context) })
}

/// `fi_version(3)`: what the configuration says.
#[unsafe(no_mangle)]
pub extern "C" fn fi_version() -> u32 {
    guard::value(LATEST_API.0, || {
        of_environment().map_or(LATEST_API.0, |it| it.config.api.0)
    })
}

/// `fi_strerror(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn fi_strerror(error: c_int) -> *const c_char {
    guard::value(c"".as_ptr(), || text::of_error(error))
}

/// `fi_tostr(3)`, without the words.
#[unsafe(no_mangle)]
pub extern "C" fn fi_tostr(_data: *const c_void, kind: u32) -> *const c_char {
    guard::value(c"".as_ptr(), || text::of_data(kind))
}
