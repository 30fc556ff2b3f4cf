//! Regions in all ways that libibverbs and libmlx5 have, and import.

use std::ffi::{c_int, c_void};
use std::io;

use libloading::Symbol;

use super::frame::{Attribute, Frame};
use super::{Device, Mr, Pd, Umem, ibverbs, mlx5, not_null, zero};

impl Pd {
    pub(crate) fn reg_dmabuf(
        &self,
        offset: u64,
        bytes: usize,
        iova: u64,
        fd: c_int,
        access: c_int,
    ) -> io::Result<Mr> {
        let reg = symbol!(
            ibverbs(),
            "ibv_reg_dmabuf_mr",
            fn(*mut c_void, u64, usize, u64, c_int, c_int) -> *mut c_void
        );
        // SAFETY: a live PD; what is no buffer is refused.
        let mr = unsafe { reg(self.0, offset, bytes, iova, fd, access) };
        Ok(Mr(not_null(mr)?))
    }

    /// `ibv_reg_mr_iova2`, for flags and addresses that `ibv_reg_mr` does not let through.
    pub(crate) fn reg_iova(
        &self,
        address: *mut u8,
        bytes: usize,
        iova: u64,
        access: u32,
    ) -> io::Result<Mr> {
        let reg = symbol!(
            ibverbs(),
            "ibv_reg_mr_iova2",
            fn(*mut c_void, *mut c_void, usize, u64, u32) -> *mut c_void
        );
        // SAFETY: a live PD; a range that is not mapped is refused.
        let mr = unsafe { reg(self.0, address.cast(), bytes, iova, access) };
        Ok(Mr(not_null(mr)?))
    }

    pub(crate) fn import_mr(&self, handle: u32) -> io::Result<Mr> {
        let import = symbol!(
            ibverbs(),
            "ibv_import_mr",
            fn(*mut c_void, u32) -> *mut c_void
        );
        // SAFETY: a live PD.
        Ok(Mr(not_null(unsafe { import(self.0, handle) })?))
    }

    pub(crate) fn unimport(self) {
        let unimport = symbol!(ibverbs(), "ibv_unimport_pd", fn(*mut c_void));
        // SAFETY: an imported PD.
        unsafe { unimport(self.0) };
    }
}

impl Mr {
    /// `struct ibv_mr`: context, pd, addr, length, handle, lkey, rkey.
    fn dword(&self, offset: usize) -> u32 {
        // SAFETY: a live `struct ibv_mr` of 48 bytes.
        unsafe { self.0.cast::<u8>().add(offset).cast::<u32>().read() }
    }

    pub(crate) fn handle(&self) -> u32 {
        self.dword(32)
    }

    pub(crate) fn rkey(&self) -> u32 {
        self.dword(40)
    }

    /// What `ibv_rereg_mr` leaves in `errno`.
    pub(crate) fn rereg(
        &self,
        flags: c_int,
        pd: &Pd,
        address: *mut u8,
        bytes: usize,
        access: c_int,
    ) -> io::Result<()> {
        let rereg = symbol!(
            ibverbs(),
            "ibv_rereg_mr",
            fn(*mut c_void, c_int, *mut c_void, *mut c_void, usize, c_int) -> c_int
        );
        // SAFETY: live objects; a range that is not mapped is refused.
        let result = unsafe { rereg(self.0, flags, pd.0, address.cast(), bytes, access) };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn unimport(self) {
        let unimport = symbol!(ibverbs(), "ibv_unimport_mr", fn(*mut c_void));
        // SAFETY: an imported region.
        unsafe { unimport(self.0) };
    }
}

/// `struct mlx5dv_devx_umem_in`.
#[repr(C)]
struct UmemIn {
    address: *mut c_void,
    size: usize,
    access: u32,
    page_sizes: u64,
    comp_mask: u64,
    dmabuf_fd: c_int,
}

impl Device {
    pub(crate) fn reg_umem_dmabuf(
        &self,
        fd: c_int,
        offset: usize,
        bytes: usize,
    ) -> io::Result<Umem> {
        let reg = symbol!(
            mlx5(),
            "mlx5dv_devx_umem_reg_ex",
            fn(*mut c_void, *mut UmemIn) -> *mut u32
        );
        let mut input = UmemIn {
            address: std::ptr::without_provenance_mut(offset),
            size: bytes,
            access: 1,
            page_sizes: u64::MAX << 12,
            comp_mask: 1,
            dmabuf_fd: fd,
        };
        // SAFETY: a live context and its input; what is no buffer is refused.
        let umem = unsafe { reg(self.context, &mut input) };
        Ok(Umem(not_null(umem.cast())?.cast()))
    }

    /// `ibv_import_device`.
    pub(crate) fn import(fd: c_int) -> io::Result<Self> {
        let import = symbol!(ibverbs(), "ibv_import_device", fn(c_int) -> *mut c_void);
        // SAFETY: any descriptor is allowed.
        let context = not_null(unsafe { import(fd) })?;
        Ok(Self { context })
    }

    pub(crate) fn import_pd(&self, handle: u32) -> io::Result<Pd> {
        let import = symbol!(
            ibverbs(),
            "ibv_import_pd",
            fn(*mut c_void, u32) -> *mut c_void
        );
        // SAFETY: a live context.
        Ok(Pd(not_null(unsafe { import(self.context, handle) })?))
    }

    /// The method that `ibv_advise_mr` comes to, which is a call through a table of the context.
    pub(crate) fn advise(&self, pd: &Pd) -> io::Result<()> {
        let sge = [0u64; 2];
        let attributes = [
            (0, 0, u64::from(pd.handle())),
            (1, 8, 0),
            (2, 4, 0),
            (3, 16, sge.as_ptr().expose_provenance() as u64),
        ];
        let attributes = attributes.map(|(id, len, data)| Attribute {
            id,
            len,
            data,
            ..Attribute::default()
        });
        zero(Frame::new(7, 2, &attributes).send(self.command_fd()))
    }
}
