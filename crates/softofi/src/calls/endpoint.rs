//! Calls on an endpoint, without what it posts.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use libfabric_abi::bindings::{
    FI_CLASS_EP, FI_ENABLE, FI_HMEM_P2P_DISABLED, FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, fi_ops,
    fi_ops_cm, fi_ops_ep, fid, fid_ep,
};
use libfabric_abi::errors::{FI_EINVAL, FI_ENOPROTOOPT, FI_ENOSYS, FI_EOPNOTSUPP, FI_ETOOSMALL};
use libfabric_abi::later::{
    FI_OPT_CUDA_API_PERMITTED, FI_OPT_INJECT_RMA_SIZE, FI_OPT_MAX_RMA_SIZE,
    FI_OPT_SHARED_MEMORY_PERMITTED,
};

use crate::engine::ADDRESS_BYTES;
use crate::guard;
use crate::handles::{self, Object};
use crate::objects::Endpoint;
use crate::rules::Rule;

use super::{c_functions, given, head, none, object, rma, table};

static OPS: fi_ops = fi_ops {
    bind: Some(bind),
    control: Some(control),
    ..object::ops(close)
};

static EP: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
    tx_ctx: None,
    rx_ctx: None,
    rx_size_left: None,
    tx_size_left: None,
};

static CM: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: None,
    getname: Some(getname),
    getpeer: None,
    connect: None,
    listen: None,
    accept: None,
    reject: None,
    shutdown: None,
    join: None,
};

/// What C sees of an endpoint. It has no tagged messages and no collectives, so their tables are null.
pub(super) fn seen(context: *mut c_void) -> fid_ep {
    fid_ep {
        fid: head(FI_CLASS_EP, &OPS, context),
        ops: table(&EP),
        cm: table(&CM),
        msg: table(&none::MSG),
        rma: table(&rma::RMA),
        tagged: null_mut(),
        atomic: table(&none::ATOMIC),
        collective: null_mut(),
    }
}

c_functions! {
    /// `fi_close`.
    fn close(object: *mut fid) -> c_int, guard::status {
        let endpoint = handles::find::<Endpoint>(object)?;
        endpoint.close()?;
        handles::retire(object);
        Ok(())
    }

    /// `fi_ep_bind`.
    fn bind(object: *mut fid, other: *mut fid, flags: u64) -> c_int, guard::status {
        let endpoint = handles::find::<Endpoint>(object)?;
        match handles::object(other)? {
            Object::Queue(queue) => endpoint.bind_queue(queue, flags),
            Object::Vector(vector) => endpoint.bind_vector(vector),
            other => {
                let name = other.name();
                Err(Rule::OtherHandle.broken(format_args!("({name} to an endpoint)")))
            }
        }
    }

    /// `fi_enable`.
    fn control(object: *mut fid, command: c_int, _arg: *mut c_void) -> c_int, guard::status {
        let endpoint = handles::find::<Endpoint>(object)?;
        if command != FI_ENABLE as c_int {
            return Err(FI_ENOSYS);
        }
        endpoint.enable()
    }

    /// `fi_getname`.
    fn getname(object: *mut fid, place: *mut c_void, room: *mut usize) -> c_int, guard::status {
        let endpoint = handles::find::<Endpoint>(object)?;
        given(room, "addrlen")?;
        let address = endpoint.address()?;
        // SAFETY: C's place, with so much room.
        unsafe {
            let has = *room;
            room.write(ADDRESS_BYTES);
            if has < ADDRESS_BYTES || place.is_null() {
                return Err(FI_ETOOSMALL);
            }
            place.cast::<u8>().copy_from_nonoverlapping(address.bytes().as_ptr(), ADDRESS_BYTES);
        }
        Ok(())
    }

    /// `fi_setopt`: only what a program must be able to say to a provider that copies through the host.
    fn setopt(object: *mut fid, level: c_int, name: c_int, value: *const c_void, len: usize) -> c_int, guard::status {
        let endpoint = handles::find::<Endpoint>(object)?;
        endpoint.is_new()?;
        given(value, "optval")?;
        if level != FI_OPT_ENDPOINT as c_int {
            return Err(FI_ENOPROTOOPT);
        }
        if name == FI_OPT_FI_HMEM_P2P as c_int {
            if len < size_of::<c_int>() {
                return Err(FI_EINVAL);
            }
            // SAFETY: C's value, an int by the manual.
            let wanted = unsafe { value.cast::<c_int>().read_unaligned() };
            let is_known = (0..=FI_HMEM_P2P_DISABLED as c_int).contains(&wanted);
            return if is_known { Ok(()) } else { Err(FI_EINVAL) };
        }
        match name {
            FI_OPT_CUDA_API_PERMITTED | FI_OPT_SHARED_MEMORY_PERMITTED => Ok(()),
            _ => Err(FI_ENOPROTOOPT),
        }
    }

    /// `fi_getopt`.
    fn getopt(object: *mut fid, level: c_int, name: c_int, value: *mut c_void, room: *mut usize) -> c_int, guard::status {
        let endpoint = handles::find::<Endpoint>(object)?;
        given(value, "optval")?;
        given(room, "optlen")?;
        let profile = endpoint.domain.profile;
        let number = match name {
            FI_OPT_MAX_RMA_SIZE if level == FI_OPT_ENDPOINT as c_int => profile.longest(),
            FI_OPT_INJECT_RMA_SIZE if level == FI_OPT_ENDPOINT as c_int => profile.inline_bytes(),
            _ => return Err(FI_ENOPROTOOPT),
        };
        // SAFETY: C's place, with so much room.
        unsafe {
            let has = room.read();
            room.write(size_of::<usize>());
            if has < size_of::<usize>() {
                return Err(FI_ETOOSMALL);
            }
            value.cast::<usize>().write_unaligned(number);
        }
        Ok(())
    }

    /// `fi_cancel`, which EFA has for messages only.
    fn cancel(object: *mut fid, _context: *mut c_void) -> isize, guard::count {
        handles::find::<Endpoint>(object)?;
        Err(FI_EOPNOTSUPP)
    }
}
