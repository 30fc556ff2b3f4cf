//! Calls on an address vector.

use std::ffi::{c_char, c_int, c_void};
use std::slice;

use libfabric_abi::FI_ADDR_NOTAVAIL;
use libfabric_abi::bindings::{fi_ops, fi_ops_av, fid, fid_av};
use libfabric_abi::errors::FI_ENOSYS;

use crate::engine::ADDRESS_BYTES;
use crate::guard;
use crate::handles;
use crate::objects::Vector;
use crate::rules::Rule;

use super::{c_functions, given, object, table};

pub(super) static OPS: fi_ops = object::ops(close);

pub(super) static AV: fi_ops_av = fi_ops_av {
    size: size_of::<fi_ops_av>(),
    insert: Some(insert),
    insertsvc: Some(insertsvc),
    insertsym: None,
    remove: Some(remove),
    lookup: Some(lookup),
    straddr: None,
    av_set: None,
};

const _: fn(&'static fi_ops_av) -> *mut fi_ops_av = table;

c_functions! {
    /// `fi_close`.
    fn close(object: *mut fid) -> c_int, guard::status {
        let vector = handles::find::<Vector>(object)?;
        vector.endpoints.none("the address vector")?;
        handles::retire(object);
        vector.domain.users.remove();
        Ok(())
    }

    /// `fi_av_insert`.
    fn insert(
        av: *mut fid_av, addresses: *const c_void, count: usize, numbers: *mut u64, flags: u64, _context: *mut c_void,
    ) -> c_int, guard::number {
        let vector = handles::find::<Vector>(av)?;
        if flags != 0 {
            return Err(Rule::Flags.broken(format_args!("(fi_av_insert: {flags:#x})")));
        }
        if count > 0 {
            given(addresses, "addr")?;
        }
        let mut inserted = 0;
        for at in 0..count {
            // SAFETY: C has so many addresses, one after the other.
            let bytes = unsafe {
                slice::from_raw_parts(addresses.cast::<u8>().add(at * ADDRESS_BYTES), ADDRESS_BYTES)
            };
            let number = vector.insert(bytes);
            inserted += c_int::from(number != FI_ADDR_NOTAVAIL);
            if !numbers.is_null() {
                // SAFETY: C has room for a number of each.
                unsafe { numbers.add(at).write(number) };
            }
        }
        Ok(inserted)
    }

    /// `fi_av_insertsvc`: addresses here are no names of hosts.
    fn insertsvc(
        av: *mut fid_av, _node: *const c_char, _service: *const c_char, _number: *mut u64, _flags: u64, _context: *mut c_void,
    ) -> c_int, guard::number {
        handles::find::<Vector>(av)?;
        Err(FI_ENOSYS)
    }

    /// `fi_av_remove`.
    fn remove(av: *mut fid_av, numbers: *mut u64, count: usize, _flags: u64) -> c_int, guard::status {
        let vector = handles::find::<Vector>(av)?;
        for at in 0..count {
            given(numbers, "fi_addr")?;
            // SAFETY: C has so many.
            let number = unsafe { *numbers.add(at) };
            vector.remove(number)?;
        }
        Ok(())
    }

    /// `fi_av_lookup`.
    fn lookup(av: *mut fid_av, number: u64, place: *mut c_void, room: *mut usize) -> c_int, guard::status {
        let vector = handles::find::<Vector>(av)?;
        given(room, "addrlen")?;
        let address = vector.address(number)?;
        // SAFETY: C's place with so much room.
        unsafe {
            let bytes = (*room).min(ADDRESS_BYTES);
            if !place.is_null() {
                place.cast::<u8>().copy_from_nonoverlapping(address.bytes().as_ptr(), bytes);
            }
            room.write(ADDRESS_BYTES);
        }
        Ok(())
    }
}
