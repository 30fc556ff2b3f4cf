//! Registered memory of a device without DevX, and keys for parts of it, which are registrations of their own.
//!
//! A registration may name its bytes by other addresses than those at which they lie. So a key of a grant is named by addresses that no
//! other key has had, as an indirect key of DevX is, and a late request by a dead key whose number has come back finds nothing. A memory
//! window cannot do that: it names bytes by the addresses of its region.

// UNSAFETY: hands memory to the NIC, which reads and writes it behind the compiler's back.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::fmt;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sys::bindings::ibv_mr;
use crate::verbs::error::{VerbsError, last_errno};
use crate::verbs::memory::export::{Dmabuf, Export, climb};
use crate::verbs::memory::mr::Access;
use crate::verbs::plain::domain::PlainPd;
use crate::verbs::rung::Rung;

/// Memory to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainRange {
    /// Address of the first byte.
    pub(crate) address: u64,
    /// Length in bytes.
    pub(crate) bytes: u64,
    /// The address by which requests name the first byte. It has the same place in its page as the byte.
    pub(crate) named: u64,
}

/// A registered region. Its drop ends its keys for all users.
pub(crate) struct PlainMr {
    pd: Arc<PlainPd>,
    /// The region of libibverbs. None after it was taken down.
    raw: Option<NonNull<ibv_mr>>,
    lkey: u32,
    rkey: u32,
    export: Export,
}

// SAFETY: libibverbs objects may be used from any thread; this one is only named in its deregistration.
unsafe impl Send for PlainMr {}
// SAFETY: as for Send.
unsafe impl Sync for PlainMr {}

impl PlainMr {
    /// Registers memory by the first of `dmabufs` that the device takes, or by its address.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for a range that is empty, wraps around, or has more bytes than a region of the device;
    /// [`VerbsError::Missing`]; [`VerbsError::Call`]; [`VerbsError::Export`] with each rung's reason if more than one was tried.
    ///
    /// # Safety
    ///
    /// The memory stays allocated until the region is dropped, and no Rust reference to it exists meanwhile but to atomics. Each dmabuf is
    /// the same memory.
    pub(crate) unsafe fn register(
        pd: &Arc<PlainPd>,
        range: &PlainRange,
        access: Access,
        dmabufs: &[Dmabuf<'_>],
    ) -> Result<Self, VerbsError> {
        check(pd, range)?;
        let ((raw, lkey, rkey), export) = climb(dmabufs, Rung::Address, |dmabuf| {
            // SAFETY: the caller's promise.
            let raw = unsafe { register_as(pd, range, access, dmabuf) }?;
            // SAFETY: libibverbs returned a region, whose fields do not change while it is registered.
            let (lkey, rkey) = unsafe { (raw.as_ref().lkey, raw.as_ref().rkey) };
            Ok((raw, lkey, rkey))
        })?;
        Ok(Self {
            pd: Arc::clone(pd),
            raw: Some(raw),
            lkey,
            rkey,
            export,
        })
    }

    /// Returns the key for local requests.
    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Returns the key for peers.
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Returns the way in which the device reaches the memory.
    pub(crate) fn export(&self) -> &Export {
        &self.export
    }

    /// Ends the keys for all users. After a failure the caller may call again; after a success this does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's answer: the keys still name the memory.
    pub(crate) fn deregister(&mut self) -> Result<(), VerbsError> {
        let Some(raw) = self.raw else {
            return Ok(());
        };
        let context = self.pd.context();
        // SAFETY: the region is registered, and only this call takes it down; if it has, no code names it again.
        match unsafe { context.rdma().ibv_dereg_mr(raw.as_ptr()) } {
            0 => {
                self.raw = None;
                Ok(())
            }
            errno => Err(context.failed("ibv_dereg_mr", errno)),
        }
    }
}

/// Refuses ranges that no registration can have.
fn check(pd: &PlainPd, range: &PlainRange) -> Result<(), VerbsError> {
    let PlainRange {
        address,
        bytes,
        named,
    } = *range;
    let ends = [address, named].map(|first| first.checked_add(bytes));
    if bytes == 0 || ends.contains(&None) {
        let value = format!("{bytes} bytes at {address:#x}, named {named:#x}");
        let limit = "at least one byte, without wrapping around";
        return Err(VerbsError::argument("memory region", value, limit));
    }
    let (context, most) = (pd.context(), pd.context().limits().region);
    if bytes > most {
        let limit = format!("at most {most}, the most of {}", context.name());
        let what = "bytes of a memory region";
        return Err(VerbsError::argument(what, bytes, limit));
    }
    Ok(())
}

/// Registers memory on one rung: by `dmabuf`, or by the address.
///
/// # Safety
///
/// As [`PlainMr::register`].
unsafe fn register_as(
    pd: &PlainPd,
    range: &PlainRange,
    access: Access,
    dmabuf: Option<&Dmabuf<'_>>,
) -> Result<NonNull<ibv_mr>, VerbsError> {
    let PlainRange {
        address,
        bytes,
        named,
    } = *range;
    let context = pd.context();
    let rdma = context.rdma();
    let in_bounds = |value: u64| {
        let fits = usize::try_from(value);
        fits.map_err(|_| VerbsError::argument("memory region", value, usize::MAX))
    };
    let (length, start) = (in_bounds(bytes)?, in_bounds(address)?);
    let flags = i32::try_from(access.bits())
        .map_err(|_| VerbsError::argument("access", access.bits(), i32::MAX))?;
    let start = std::ptr::with_exposed_provenance_mut(start);
    let (call, raw) = match dmabuf {
        Some(Dmabuf { fd, offset, .. }) => {
            rdma.has("ibv_reg_dmabuf_mr")?;
            let fd = fd.as_raw_fd();
            // SAFETY: the domain is alive, `fd` is open through the call; the memory is the caller's, which keeps it.
            let raw =
                unsafe { rdma.ibv_reg_dmabuf_mr(pd.raw(), *offset, length, named, fd, flags) };
            ("ibv_reg_dmabuf_mr", raw)
        }
        None if named == address => {
            // SAFETY: the domain is alive; the memory is the caller's, which keeps it.
            let raw = unsafe { rdma.ibv_reg_mr(pd.raw(), start, length, flags) };
            ("ibv_reg_mr", raw)
        }
        None => {
            rdma.has("ibv_reg_mr_iova")?;
            // SAFETY: as above.
            let raw = unsafe { rdma.ibv_reg_mr_iova(pd.raw(), start, length, named, flags) };
            ("ibv_reg_mr_iova", raw)
        }
    };
    let rung = dmabuf.map_or(Rung::Address, Dmabuf::rung);
    NonNull::new(raw).ok_or_else(|| context.failed(call, last_errno()).on(rung))
}

impl Drop for PlainMr {
    fn drop(&mut self) {
        if let Err(error) = self.deregister() {
            tracing::error!("leaked: {error}");
        }
    }
}

impl fmt::Debug for PlainMr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainMr")
            .field("lkey", &format_args!("{:#x}", self.lkey))
            .field("rkey", &format_args!("{:#x}", self.rkey))
            .finish_non_exhaustive()
    }
}
