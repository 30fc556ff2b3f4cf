//! Memory regions, which a QP may read and write, and the keys that name them.

// UNSAFETY: hands memory to the HCA, which reads and writes it behind the compiler's back.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::ffi::c_void;
use std::fmt;
use std::ops::BitOr;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::sys::bindings::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_RELAXED_ORDERING, IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, ibv_mr,
};
use crate::verbs::error::{VerbsError, last_errno};
use crate::verbs::memory::export::{Dmabuf, Export, climb};
use crate::verbs::memory::pd::Pd;
use crate::verbs::rung::Rung;

/// The rights to a region, and the order of writes to it. Local reads are always allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// The right of local reads alone.
    pub const LOCAL_READ: Self = Self(0);
    /// The HCA may write on behalf of local requests: read replies, results of atomics.
    pub const LOCAL_WRITE: Self = Self(IBV_ACCESS_LOCAL_WRITE);
    /// Peers may write. Needs `LOCAL_WRITE`.
    pub const REMOTE_WRITE: Self = Self(IBV_ACCESS_REMOTE_WRITE);
    /// Peers may read.
    pub const REMOTE_READ: Self = Self(IBV_ACCESS_REMOTE_READ);
    /// Peers may do atomics. Needs `LOCAL_WRITE`.
    pub const REMOTE_ATOMIC: Self = Self(IBV_ACCESS_REMOTE_ATOMIC);
    /// All rights above.
    pub const ALL: Self = Self(
        IBV_ACCESS_LOCAL_WRITE
            | IBV_ACCESS_REMOTE_WRITE
            | IBV_ACCESS_REMOTE_READ
            | IBV_ACCESS_REMOTE_ATOMIC,
    );
    /// No right, but an order: writes by this key may overtake earlier writes, by this key or others, on their way through PCIe. Never use
    /// it for memory that a thread polls, since a word there would not show that earlier bytes have arrived.
    pub const RELAXED_ORDERING: Self = Self(IBV_ACCESS_RELAXED_ORDERING);

    /// Returns whether every right of `other` is included.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(in crate::verbs) const fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::LOCAL_WRITE, "LOCAL_WRITE"),
            (Self::REMOTE_WRITE, "REMOTE_WRITE"),
            (Self::REMOTE_READ, "REMOTE_READ"),
            (Self::REMOTE_ATOMIC, "REMOTE_ATOMIC"),
            (Self::RELAXED_ORDERING, "RELAXED_ORDERING"),
        ];
        let set = names.iter().filter(|(bit, _)| self.contains(*bit));
        let names: Vec<_> = std::iter::once("LOCAL_READ")
            .chain(set.map(|(_, name)| *name))
            .collect();
        f.write_str(&names.join(" | "))
    }
}

/// A registered region. Its drop ends its keys for all users.
pub struct Mr {
    pd: Arc<Pd>,
    /// The region of libibverbs. None after it was taken down, or if the application takes it down.
    raw: Option<NonNull<ibv_mr>>,
    addr: u64,
    bytes: u64,
    lkey: u32,
    rkey: u32,
    export: Export,
}

// SAFETY: libibverbs objects may be used from any thread; this one is only named in its deregistration.
unsafe impl Send for Mr {}
// SAFETY: as for Send.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers `bytes` bytes at `addr`, which is host memory or GPU memory that the kernel can pin.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for a range that is empty, wraps around or has more bytes than [`Caps::max_mr_size`], or for remote
    /// rights to write without the local right; [`VerbsError::Call`] if the kernel refuses.
    ///
    /// [`Caps::max_mr_size`]: crate::verbs::Caps::max_mr_size
    ///
    /// # Safety
    ///
    /// The memory stays allocated until the result is dropped. No code holds a Rust reference to any of it while a request that
    /// names one of the keys may run. The HCA reads and writes it at any time, and with remote rights every peer that knows the
    /// rkey does.
    pub unsafe fn register(
        pd: &Arc<Pd>,
        addr: u64,
        bytes: u64,
        access: Access,
    ) -> Result<Self, VerbsError> {
        // SAFETY: the caller's promise.
        unsafe { Self::register_as(pd, addr, bytes, access, None) }
    }

    /// Takes a region that the application has registered in a domain that it has handed over by [`Pd::adopt`]. Requests may name its keys
    /// as long as the application keeps the region registered.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for null, or a region of another domain.
    ///
    /// # Safety
    ///
    /// `raw` is null or a `struct ibv_mr *` that is registered. The region stays registered until the result has been dropped and no
    /// request names a key of it.
    pub unsafe fn adopt(pd: &Arc<Pd>, raw: *mut c_void) -> Result<Self, VerbsError> {
        let refused = |value: &str| {
            let limit = "a struct ibv_mr of the domain that was adopted";
            VerbsError::argument("adopted memory region", value, limit)
        };
        let raw = NonNull::new(raw.cast::<ibv_mr>()).ok_or_else(|| refused("null"))?;
        // SAFETY: a registered region, whose fields do not change.
        let region = unsafe { raw.as_ref() };
        if region.pd != pd.raw() {
            return Err(refused("one of another domain"));
        }
        Ok(Self {
            pd: Arc::clone(pd),
            // The application takes the region down.
            raw: None,
            addr: region.addr.expose_provenance() as u64,
            bytes: region.length as u64,
            lkey: region.lkey,
            rkey: region.rkey,
            export: Export::first_try(Rung::Address),
        })
    }

    /// Registers `bytes` bytes at `addr` by the best of `dmabufs` that the HCA accepts, or else by the address. [`Mr::export`] returns the
    /// way. Requests name the same addresses in each case.
    ///
    /// # Errors
    ///
    /// As [`Mr::register`]; [`VerbsError::Export`] with each rung's reason if more than one was tried.
    ///
    /// # Safety
    ///
    /// As [`Mr::register`], and each dmabuf is the same memory.
    pub unsafe fn exported(
        pd: &Arc<Pd>,
        addr: u64,
        bytes: u64,
        access: Access,
        dmabufs: &[Dmabuf<'_>],
    ) -> Result<Self, VerbsError> {
        let (mut mr, export) = climb(dmabufs, Rung::Address, |dmabuf| {
            // SAFETY: the caller's promise.
            unsafe { Self::register_as(pd, addr, bytes, access, dmabuf) }
        })?;
        mr.export = export;
        Ok(mr)
    }

    /// Registers memory on this rung and on no other. `dmabuf` is the dmabuf of that rung, if it needs one.
    ///
    /// # Errors
    ///
    /// As [`Mr::register`].
    ///
    /// # Safety
    ///
    /// As [`Mr::exported`].
    pub(crate) unsafe fn on(
        pd: &Arc<Pd>,
        addr: u64,
        bytes: u64,
        access: Access,
        rung: Rung,
        dmabuf: Option<&Dmabuf<'_>>,
    ) -> Result<Self, VerbsError> {
        // SAFETY: the caller's promise.
        let registered = unsafe { Self::register_as(pd, addr, bytes, access, dmabuf) };
        let mut mr = registered.map_err(|refusal| refusal.on(rung))?;
        mr.export = Export::first_try(rung);
        Ok(mr)
    }

    /// Registers memory on one rung: by `dmabuf`, or by the address.
    ///
    /// # Safety
    ///
    /// As [`Mr::exported`].
    pub(in crate::verbs) unsafe fn register_as(
        pd: &Arc<Pd>,
        addr: u64,
        bytes: u64,
        access: Access,
        dmabuf: Option<&Dmabuf<'_>>,
    ) -> Result<Self, VerbsError> {
        let context = pd.context();
        check(addr, bytes, access)?;
        let most = context.caps().max_mr_size();
        if bytes > most {
            let limit = format!("at most {most}, the most of {}", context.name());
            return Err(VerbsError::argument(
                "bytes of a memory region",
                bytes,
                limit,
            ));
        }
        let length = usize::try_from(bytes)
            .map_err(|_| VerbsError::argument("memory region", bytes, usize::MAX))?;
        let flags = i32::try_from(access.bits())
            .map_err(|_| VerbsError::argument("access", access.bits(), i32::MAX))?;
        let start = std::ptr::with_exposed_provenance_mut(
            usize::try_from(addr)
                .map_err(|_| VerbsError::argument("memory region", addr, usize::MAX))?,
        );
        let (rdma, pd_raw) = (context.rdma(), pd.raw());
        context.count_command();
        let (call, raw) = match dmabuf {
            Some(Dmabuf { fd, offset, .. }) => {
                rdma.has("ibv_reg_dmabuf_mr")?;
                let fd = fd.as_raw_fd();
                // SAFETY: the domain is alive, `fd` is open through the call; the memory is the caller's, which keeps it.
                let raw =
                    unsafe { rdma.ibv_reg_dmabuf_mr(pd_raw, *offset, length, addr, fd, flags) };
                ("ibv_reg_dmabuf_mr", raw)
            }
            None => {
                // SAFETY: the domain is alive; the memory is the caller's, which keeps it.
                let raw = unsafe { rdma.ibv_reg_mr(pd_raw, start, length, flags) };
                ("ibv_reg_mr", raw)
            }
        };
        let rung = dmabuf.map_or(Rung::Address, Dmabuf::rung);
        let raw = NonNull::new(raw).ok_or_else(|| context.failed(call, last_errno()).on(rung))?;
        // SAFETY: libibverbs returned a region, whose fields do not change while it is registered.
        let (lkey, rkey) = unsafe { (raw.as_ref().lkey, raw.as_ref().rkey) };
        Ok(Self {
            pd: Arc::clone(pd),
            raw: Some(raw),
            addr,
            bytes,
            lkey,
            rkey,
            export: Export::first_try(rung),
        })
    }

    /// Returns the way in which the HCA reaches the memory.
    #[must_use]
    pub fn export(&self) -> &Export {
        &self.export
    }

    /// Returns the address of the first byte, from which on requests name addresses.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the key for local requests.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Returns the key for peers.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }
}

impl Mr {
    /// Ends the keys for all users, and returns an error if that failed. A plain drop only logs the error. After a success this does
    /// nothing.
    ///
    /// # Errors
    ///
    /// The kernel's answer: the keys still name the memory. The caller may call again.
    pub fn deregister(&mut self) -> Result<(), VerbsError> {
        let Some(raw) = self.raw else {
            return Ok(());
        };
        let context = self.pd.context();
        context.count_command();
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

/// Refuses ranges and rights that no registration can have.
fn check(addr: u64, bytes: u64, access: Access) -> Result<(), VerbsError> {
    if bytes == 0 || addr.checked_add(bytes).is_none() {
        return Err(VerbsError::argument(
            "memory region",
            format!("{bytes} bytes at {addr:#x}"),
            "at least one byte, without wrapping around",
        ));
    }
    let writes = [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
    if writes.iter().any(|right| access.contains(*right)) && !access.contains(Access::LOCAL_WRITE) {
        return Err(VerbsError::argument(
            "access of a memory region",
            format!("{access:?}"),
            "LOCAL_WRITE with remote rights to write",
        ));
    }
    Ok(())
}

impl Drop for Mr {
    fn drop(&mut self) {
        if let Err(error) = self.deregister() {
            tracing::error!("leaked: {error}");
            self.pd.keep_adopted();
        }
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mr")
            .field("addr", &format_args!("{:#x}", self.addr))
            .field("bytes", &self.bytes)
            .field("lkey", &format_args!("{:#x}", self.lkey))
            .field("rkey", &format_args!("{:#x}", self.rkey))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_print_by_name_and_combine() {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        assert_eq!(
            format!("{access:?}"),
            "LOCAL_READ | LOCAL_WRITE | REMOTE_WRITE"
        );
        assert!(Access::ALL.contains(access) && !access.contains(Access::REMOTE_ATOMIC));
    }
}
