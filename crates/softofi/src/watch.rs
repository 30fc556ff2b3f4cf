//! How tests look into a libsoftofi.so that they, or a program with them, have opened: a table of operations by the name `softofi`.
//!
//! The library has one copy of its counters for the process, whoever opened it; the crate that a test links has others, which nobody uses.

// UNSAFETY: a table of C functions, and its use.
#![expect(unsafe_code, reason = "functions of a C interface")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null_mut, with_exposed_provenance};

use libfabric_abi::bindings::{fi_fabric_attr, fid_fabric};
use libfabric_abi::{Functions, calls};

use crate::counts::Count;
use crate::guard;
use crate::objects::dmabuf;
use crate::rules;

pub use crate::objects::DmaBuf;

/// Of the table, for `fi_open_ops` on a fabric.
pub(crate) const NAME: &CStr = c"softofi";

/// Longest line of a rule.
const LINE: usize = 1024;

#[repr(C)]
struct Table {
    size: usize,
    count: extern "C" fn(which: u32) -> u64,
    dmabuf: unsafe extern "C" fn(number: usize, place: *mut DmaBuf) -> c_int,
    rule: unsafe extern "C" fn(number: usize, place: *mut c_char, room: usize) -> c_int,
}

static TABLE: Table = Table {
    size: size_of::<Table>(),
    count,
    dmabuf: read_dmabuf,
    rule: read_rule,
};

pub(crate) fn table() -> *mut c_void {
    (&raw const TABLE).cast_mut().cast()
}

extern "C" fn count(which: u32) -> u64 {
    guard::value(u64::MAX, || {
        let count = Count::ALL.get(which as usize);
        count.map_or(u64::MAX, |count| count.value())
    })
}

/// # Safety
///
/// The place may be written.
unsafe extern "C" fn read_dmabuf(number: usize, place: *mut DmaBuf) -> c_int {
    guard::value(0, || match dmabuf(number) {
        Some(found) => {
            // SAFETY: the caller's word.
            unsafe { place.write(found) };
            1
        }
        None => 0,
    })
}

/// # Safety
///
/// The place has so much room.
unsafe extern "C" fn read_rule(number: usize, place: *mut c_char, room: usize) -> c_int {
    guard::value(0, || match rules::line(number) {
        Some(line) if room > 0 => {
            let bytes = line.len().min(room - 1);
            // SAFETY: the caller's word; a zero ends what is copied.
            unsafe {
                place
                    .cast::<u8>()
                    .copy_from_nonoverlapping(line.as_ptr(), bytes);
                place.add(bytes).write(0);
            }
            1
        }
        _ => 0,
    })
}

/// Looks into an open library.
#[derive(Debug)]
pub struct Watch {
    fabric: usize,
    table: usize,
}

impl Watch {
    /// Of a library that was opened by its path. None: it is no softofi.
    #[must_use]
    pub fn open(functions: &Functions) -> Option<Self> {
        let mut fabric: *mut fid_fabric = null_mut();
        let mut attr = fi_fabric_attr {
            api_version: functions.api_version().0,
            ..fi_fabric_attr::default()
        };
        // SAFETY: a structure and a place that live here. Other libraries refuse an attribute without names.
        let opened = unsafe { (functions.fi_fabric)(&raw mut attr, &raw mut fabric, null_mut()) };
        if opened != 0 || fabric.is_null() {
            return None;
        }
        let mut table: *mut c_void = null_mut();
        // SAFETY: a fabric that was opened a moment ago, a text, and a place that lives here.
        let found = unsafe {
            calls::fi_open_ops(
                &raw mut (*fabric).fid,
                NAME.as_ptr(),
                0,
                &raw mut table,
                null_mut(),
            )
        };
        let watch = Self {
            fabric: fabric.expose_provenance(),
            table: table.expose_provenance(),
        };
        (found == 0 && !table.is_null()).then_some(watch)
    }

    /// What has been counted so far.
    #[must_use]
    pub fn count(&self, count: Count) -> u64 {
        (self.table().count)(count as u32)
    }

    /// What was registered by `FI_MR_DMABUF`, by its number from 0.
    #[must_use]
    pub fn dmabuf(&self, number: usize) -> Option<DmaBuf> {
        let mut found = DmaBuf {
            fd: 0,
            offset: 0,
            len: 0,
            base: 0,
            access: 0,
            iface: 0,
            error: 0,
        };
        // SAFETY: a place that lives here.
        let is_there = unsafe { (self.table().dmabuf)(number, &raw mut found) };
        (is_there == 1).then_some(found)
    }

    /// Lines of the rules that were broken, the first 1,000 of the process.
    #[must_use]
    pub fn rules(&self) -> Vec<String> {
        let lines = (0..).map_while(|number| {
            let mut line = [0u8; LINE];
            // SAFETY: a place that lives here, and its room.
            let is_there =
                unsafe { (self.table().rule)(number, line.as_mut_ptr().cast(), line.len()) };
            let line = CStr::from_bytes_until_nul(&line).ok()?;
            (is_there == 1).then(|| line.to_string_lossy().into_owned())
        });
        lines.collect()
    }

    fn table(&self) -> &Table {
        // SAFETY: the library has the table for the life of the process. It is of the same release: src/library.rs links this crate.
        unsafe { &*with_exposed_provenance::<Table>(self.table) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let fabric = with_exposed_provenance::<fid_fabric>(self.fabric).cast_mut();
        // SAFETY: opened by `open`, and closed once.
        unsafe { calls::fi_close(&raw mut (*fabric).fid) };
    }
}
