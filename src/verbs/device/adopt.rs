//! Contexts and domains that the application has made: the checks of them, and the number of their uses.
//!
//! An object of libibverbs holds addresses of functions of its library and its provider, and lies in lists of that library. So the
//! libibverbs loaded here cannot use a context that another copy has opened. Another copy is one that the application brings along or has
//! linked statically.

// UNSAFETY: reads what an application hands over by address, and asks the loader to which file a function belongs.
#![expect(unsafe_code, reason = "objects of libibverbs by address")]

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sys::Rdma;
use crate::sys::bindings::{ibv_context, ibv_device, ibv_pd};
use crate::verbs::device::list::text;
use crate::verbs::error::{CommandError, VerbsError};

/// Returns how many times this process uses the application's context or domain at `raw`, which
/// [`Context::adopt`](crate::verbs::Context::adopt) or [`Pd::adopt`](crate::verbs::Pd::adopt) has taken. At 0 the application may close it.
/// An object in it that the HCA refuses to destroy counts for ever.
#[must_use]
pub fn adopted(raw: *const c_void) -> usize {
    in_use().get(&raw.addr()).copied().unwrap_or(0)
}

/// Returns the number of uses, by address.
fn in_use() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    static IN_USE: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One use of an object of the application.
pub(in crate::verbs) struct Adoption(usize);

impl Adoption {
    /// Notes the only use of a context. Doorbell registers are shared out for each [`Context`](crate::verbs::Context), so each context has
    /// one `Context`.
    pub(in crate::verbs) fn of_context(
        raw: NonNull<ibv_context>,
        device: &str,
    ) -> Result<Self, VerbsError> {
        let address = raw.as_ptr().addr();
        match in_use().entry(address) {
            Entry::Vacant(vacant) => {
                vacant.insert(1);
                Ok(Self(address))
            }
            Entry::Occupied(_) => Err(VerbsError::argument(
                "adopted context",
                format!("one of {device} that is adopted already"),
                "another one, or a clone of what the first call returned",
            )),
        }
    }

    /// Notes one more use of a domain.
    pub(in crate::verbs) fn of_domain(raw: NonNull<ibv_pd>) -> Self {
        let address = raw.as_ptr().addr();
        *in_use().entry(address).or_insert(0) += 1;
        Self(address)
    }
}

impl Drop for Adoption {
    fn drop(&mut self) {
        if let Entry::Occupied(mut uses) = in_use().entry(self.0) {
            *uses.get_mut() -= 1;
            if *uses.get() == 0 {
                uses.remove();
            }
        }
    }
}

/// The first fields of `struct ibv_context`. All releases of libibverbs since 1.1 have these fields, for programs compiled against its
/// first header. The library that opens a context sets the two functions to its own.
#[repr(C)]
struct ContextHead {
    device: *mut ibv_device,
    query_device: *const c_void,
    query_port: *const c_void,
}

/// The first field of `struct ibv_pd`.
#[repr(C)]
struct DomainHead {
    context: *mut ibv_context,
}

/// Returns a context and its device, after a check that `rdma` has opened the context.
///
/// # Safety
///
/// `raw` is null or an open context of some libibverbs.
pub(in crate::verbs) unsafe fn checked(
    rdma: &Rdma,
    raw: *mut c_void,
) -> Result<(NonNull<ibv_context>, NonNull<ibv_device>), VerbsError> {
    let no_context = |value: &str| {
        let limit = "an open struct ibv_context";
        VerbsError::argument("adopted context", value, limit)
    };
    let raw = NonNull::new(raw.cast::<ibv_context>()).ok_or_else(|| no_context("null"))?;
    // SAFETY: an open context begins with these fields, which do not change while it is open.
    let head = unsafe { raw.cast::<ContextHead>().as_ref() };
    let device =
        NonNull::new(head.device).ok_or_else(|| no_context("a context without a device"))?;
    let own = rdma.ibv_query_port.as_ref().ok();
    let own = own.and_then(|function| library_of(*function as *const c_void));
    let of_it = [head.query_port, head.query_device].map(library_of);
    if own.is_some() && of_it.contains(&own) {
        return Ok((raw, device));
    }
    // SAFETY: a device outlives its contexts, and its name does not change.
    let name = text(unsafe { &device.as_ref().name });
    let path = |library: Option<Library>| {
        library.map_or_else(|| "an unknown file".to_owned(), |library| library.path)
    };
    let [of_it, _] = of_it;
    Err(VerbsError::Capability {
        device: name,
        what: "libibverbs of the adopted context",
        has: path(of_it),
        needed: format!(
            "{}, which this process has loaded with libmlx5: let the application link that one dynamically",
            path(own)
        ),
    })
}

/// A file that the loader has mapped.
#[derive(PartialEq, Eq)]
struct Library {
    base: usize,
    path: String,
}

/// Returns the library in which a function lies.
fn library_of(function: *const c_void) -> Option<Library> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked about; `info` is written during the call.
    if unsafe { libc::dladdr(function, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: it consists of pointers, which are null where nothing was written.
    let info = unsafe { info.assume_init() };
    let path = NonNull::new(info.dli_fname.cast_mut())?;
    Some(Library {
        base: info.dli_fbase.addr(),
        // SAFETY: the loader's own string, which lives as long as the library is mapped; one that is used here stays.
        path: unsafe { CStr::from_ptr(path.as_ptr()) }
            .to_string_lossy()
            .into_owned(),
    })
}

/// Returns the error that DevX is off, if `error` is of a command that never reached the HCA. The context was not opened by this library.
pub(in crate::verbs) fn without_devx(error: VerbsError) -> VerbsError {
    match error {
        VerbsError::Command { device, source } if source.status == CommandError::NO_REPLY => {
            VerbsError::Capability {
                device,
                what: "DevX of the adopted context",
                has: format!("off ({source})"),
                needed: "on: mlx5dv_open_device with MLX5DV_CONTEXT_FLAGS_DEVX, or ibv_open_device of rdma-core 32 or later".to_owned(),
            }
        }
        other => other,
    }
}

/// Returns the domain at `raw`, after a check that it belongs to `context`, which is a context of `device`.
///
/// # Safety
///
/// `raw` is null or an allocated domain.
pub(in crate::verbs) unsafe fn domain_of(
    context: *mut ibv_context,
    device: &str,
    raw: *mut c_void,
) -> Result<NonNull<ibv_pd>, VerbsError> {
    let refused = |value: &str| {
        let limit = format!("a struct ibv_pd of the context of {device} that was adopted");
        VerbsError::argument("adopted domain", value, limit)
    };
    let raw = NonNull::new(raw.cast::<ibv_pd>()).ok_or_else(|| refused("null"))?;
    // SAFETY: a domain begins with its context, which does not change.
    let of = unsafe { raw.cast::<DomainHead>().as_ref() }.context;
    if of == context {
        Ok(raw)
    } else {
        Err(refused("one of another context"))
    }
}
