//! The unmodified libibverbs and libmlx5 of the machine, opened with dlopen, as the tests need them.
//!
//! Written by hand and not shared with the runtime's bindings: the HCA is tested against the libraries, not
//! against what the runtime makes of them.

// UNSAFETY: calls into C libraries.
#![expect(unsafe_code, reason = "calls into libibverbs and libmlx5")]
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod frame;
mod memory;
pub(crate) use softhca_rig::patience;

pub(crate) use memory::Memory;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, ptr};

use libloading::{Library, Symbol};
/// Links the HCA into the test program: without this line the linker would leave it out.
use softhca as _;

fn ibverbs() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| load("libibverbs.so.1"))
}

fn mlx5() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| load("libmlx5.so.1"))
}

fn load(file: &str) -> Library {
    // SAFETY: the initialisers of the RDMA libraries have no requirements.
    unsafe { Library::new(file) }
        .unwrap_or_else(|error| panic!("{error}: install libibverbs1 and ibverbs-providers"))
}

/// `symbol!(library, "name", fn(..) -> ..)`: the function, typed.
macro_rules! symbol {
    ($library:expr, $name:literal, fn($($argument:ty),*) $(-> $result:ty)?) => {{
        type Function = unsafe extern "C" fn($($argument),*) $(-> $result)?;
        let symbol: Symbol<'static, Function> = {
            // SAFETY: the signature is that of the library's header.
            unsafe { $library.get($name.as_bytes()) }.unwrap()
        };
        symbol
    }};
}

pub(crate) mod pair;
pub(crate) mod queue_pair;
pub(crate) mod raw;
mod regions;
pub(crate) mod verbs;

/// Names in `ibv_get_device_list`.
pub(crate) fn device_names() -> Vec<String> {
    with_list(|devices| devices.iter().map(|&device| name(device)).collect())
}

fn name(device: *mut c_void) -> String {
    let get = symbol!(
        ibverbs(),
        "ibv_get_device_name",
        fn(*mut c_void) -> *const c_char
    );
    // SAFETY: a device of a live list, whose name is a C string.
    unsafe { CStr::from_ptr(get(device)) }
        .to_str()
        .unwrap()
        .to_owned()
}

fn with_list<T>(body: impl FnOnce(&[*mut c_void]) -> T) -> T {
    let get = symbol!(
        ibverbs(),
        "ibv_get_device_list",
        fn(*mut c_int) -> *mut *mut c_void
    );
    let free = symbol!(ibverbs(), "ibv_free_device_list", fn(*mut *mut c_void));
    let mut count = 0;
    // SAFETY: `count` is writable.
    let list = unsafe { get(&mut count) };
    assert!(!list.is_null(), "{}", io::Error::last_os_error());
    // SAFETY: the list has `count` entries and lives until it is freed below.
    let result = body(unsafe { std::slice::from_raw_parts(list, count.try_into().unwrap()) });
    // SAFETY: made by ibv_get_device_list.
    unsafe { free(list) };
    result
}

/// An opened device; closed when it is dropped.
pub(crate) struct Device {
    pub(crate) context: *mut c_void,
}

// SAFETY: verbs contexts may be used by any thread.
unsafe impl Send for Device {}
// SAFETY: as above; libibverbs locks by itself.
unsafe impl Sync for Device {}

#[repr(C)]
struct ContextAttr {
    flags: u32,
    comp_mask: u64,
}

impl Device {
    /// Opens the device `name` by `mlx5dv_open_device`, with DevX.
    pub(crate) fn open(wanted: &str) -> io::Result<Self> {
        let open = symbol!(
            mlx5(),
            "mlx5dv_open_device",
            fn(*mut c_void, *mut ContextAttr) -> *mut c_void
        );
        with_list(|devices| {
            let found = devices.iter().find(|&&device| name(device) == wanted);
            let &device = found.unwrap_or_else(|| panic!("{wanted} is not in the list"));
            let mut attr = ContextAttr {
                flags: 1,
                comp_mask: 0,
            };
            // SAFETY: a device of a live list, and attributes.
            let context = unsafe { open(device, &mut attr) };
            let context = not_null(context)?;
            Ok(Self { context })
        })
    }

    pub(crate) fn command_fd(&self) -> c_int {
        // `struct ibv_context`: device, 32 function pointers, then cmd_fd.
        const FD: usize = 8 + 32 * 8;
        // SAFETY: the context is a `struct ibv_context`.
        unsafe { self.context.cast::<u8>().add(FD).cast::<c_int>().read() }
    }

    pub(crate) fn alloc_pd(&self) -> io::Result<Pd> {
        let alloc = symbol!(ibverbs(), "ibv_alloc_pd", fn(*mut c_void) -> *mut c_void);
        // SAFETY: a live context.
        Ok(Pd(not_null(unsafe { alloc(self.context) })?))
    }

    pub(crate) fn eqn(&self, vector: u32) -> io::Result<u32> {
        let query = symbol!(
            mlx5(),
            "mlx5dv_devx_query_eqn",
            fn(*mut c_void, u32, *mut u32) -> c_int
        );
        let mut eqn = 0;
        // SAFETY: a live context and a place for the number.
        zero(unsafe { query(self.context, vector, &mut eqn) })?;
        Ok(eqn)
    }

    /// `flags`: 0 BlueFlame, 1 non-cached.
    pub(crate) fn alloc_uar(&self, flags: u32) -> io::Result<Uar> {
        let alloc = symbol!(
            mlx5(),
            "mlx5dv_devx_alloc_uar",
            fn(*mut c_void, u32) -> *mut UarFields
        );
        // SAFETY: a live context.
        let uar = not_null(unsafe { alloc(self.context, flags) }.cast())?;
        Ok(Uar(uar.cast()))
    }

    /// Registers all of `memory`, which must outlive the registration.
    pub(crate) fn reg_umem(&self, memory: &Memory, access: u32) -> io::Result<Umem> {
        let reg = symbol!(
            mlx5(),
            "mlx5dv_devx_umem_reg",
            fn(*mut c_void, *mut c_void, usize, u32) -> *mut u32
        );
        // SAFETY: a live context; the memory is mapped.
        let umem = unsafe {
            reg(
                self.context,
                memory.address().cast(),
                memory.bytes(),
                access,
            )
        };
        Ok(Umem(not_null(umem.cast())?.cast()))
    }

    /// Sends a general command.
    pub(crate) fn general(&self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let send = symbol!(
            mlx5(),
            "mlx5dv_devx_general_cmd",
            fn(*mut c_void, *const c_void, usize, *mut c_void, usize) -> c_int
        );
        // SAFETY: a live context and two buffers with their lengths.
        zero(unsafe {
            send(
                self.context,
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        })
    }

    /// Sends a command that creates an object.
    pub(crate) fn create(&self, input: &[u8], output: &mut [u8]) -> io::Result<Object> {
        let send = symbol!(
            mlx5(),
            "mlx5dv_devx_obj_create",
            fn(*mut c_void, *const c_void, usize, *mut c_void, usize) -> *mut c_void
        );
        // SAFETY: a live context and two buffers with their lengths.
        let object = unsafe {
            send(
                self.context,
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        };
        Ok(Object(not_null(object)?))
    }

    /// Returns the GID at `index` of port 1.
    pub(crate) fn gid(&self, index: c_int) -> io::Result<[u8; 16]> {
        let query = symbol!(
            ibverbs(),
            "ibv_query_gid",
            fn(*mut c_void, u8, c_int, *mut [u8; 16]) -> c_int
        );
        let mut gid = [0; 16];
        // SAFETY: a live context and a place for the GID.
        zero(unsafe { query(self.context, 1, index, &mut gid) })?;
        Ok(gid)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let close = symbol!(ibverbs(), "ibv_close_device", fn(*mut c_void) -> c_int);
        // SAFETY: opened once, closed once.
        assert_eq!(unsafe { close(self.context) }, 0);
    }
}

/// `struct mlx5dv_devx_uar`.
#[repr(C)]
pub(crate) struct UarFields {
    pub(crate) reg_addr: *mut c_void,
    pub(crate) base_addr: *mut c_void,
    pub(crate) page_id: u32,
    pub(crate) mmap_off: i64,
    pub(crate) comp_mask: u64,
}

pub(crate) struct Uar(*mut UarFields);

impl std::ops::Deref for Uar {
    type Target = UarFields;

    fn deref(&self) -> &UarFields {
        // SAFETY: valid until it is freed in Drop.
        unsafe { &*self.0 }
    }
}

impl Uar {
    /// One 8-byte store to the doorbell register.
    pub(crate) fn ring(&self, value: u64) {
        // SAFETY: the register is mapped, writable and aligned until Drop; others access it by atomics, too.
        let register = unsafe { AtomicU64::from_ptr(self.reg_addr.cast()) };
        register.store(value, Ordering::Release);
    }
}

impl Drop for Uar {
    fn drop(&mut self) {
        let free = symbol!(mlx5(), "mlx5dv_devx_free_uar", fn(*mut UarFields));
        // SAFETY: allocated once, freed once.
        unsafe { free(self.0) };
    }
}

pub(crate) struct Umem(*mut u32);

impl Umem {
    pub(crate) fn id(&self) -> u32 {
        // SAFETY: `struct mlx5dv_devx_umem` begins with the id, and lives until Drop.
        unsafe { self.0.read() }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        let dereg = symbol!(mlx5(), "mlx5dv_devx_umem_dereg", fn(*mut u32) -> c_int);
        // SAFETY: registered once, deregistered once.
        assert_eq!(unsafe { dereg(self.0) }, 0);
    }
}

pub(crate) struct Object(*mut c_void);

impl Object {
    /// `struct mlx5dv_devx_obj`: context, handle.
    pub(crate) fn handle(&self) -> u32 {
        // SAFETY: a live object.
        unsafe { self.0.cast::<u8>().add(8).cast::<u32>().read() }
    }

    pub(crate) fn modify(&self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let send = symbol!(
            mlx5(),
            "mlx5dv_devx_obj_modify",
            fn(*mut c_void, *const c_void, usize, *mut c_void, usize) -> c_int
        );
        // SAFETY: a live object and two buffers with their lengths.
        zero(unsafe {
            send(
                self.0,
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        })
    }

    pub(crate) fn query(&self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let send = symbol!(
            mlx5(),
            "mlx5dv_devx_obj_query",
            fn(*mut c_void, *const c_void, usize, *mut c_void, usize) -> c_int
        );
        // SAFETY: a live object and two buffers with their lengths.
        zero(unsafe {
            send(
                self.0,
                input.as_ptr().cast(),
                input.len(),
                output.as_mut_ptr().cast(),
                output.len(),
            )
        })
    }

    /// Destroys it; on failure it still exists.
    pub(crate) fn destroy(self) -> Result<(), (Self, io::Error)> {
        let destroy = symbol!(mlx5(), "mlx5dv_devx_obj_destroy", fn(*mut c_void) -> c_int);
        // SAFETY: a live object.
        zero(unsafe { destroy(self.0) }).map_err(|error| (self, error))
    }
}

/// Protection domain; freed by [`Pd::dealloc`] only.
pub(crate) struct Pd(*mut c_void);

#[repr(C)]
struct PdNumber {
    pdn: u32,
    comp_mask: u64,
}

impl Pd {
    /// Returns the number by which commands name it, from `mlx5dv_init_obj`.
    pub(crate) fn pdn(&self) -> u32 {
        let init = symbol!(
            mlx5(),
            "mlx5dv_init_obj",
            fn(*mut [*mut c_void; 14], u64) -> c_int
        );
        let mut number = PdNumber {
            pdn: 0,
            comp_mask: 0,
        };
        // `struct mlx5dv_obj`: seven pairs of pointers, of which the PD's is the last.
        let mut object = [ptr::null_mut(); 14];
        object[12] = self.0;
        object[13] = (&raw mut number).cast();
        // SAFETY: a `struct mlx5dv_obj` whose PD members point to a PD and to a place for its number.
        zero(unsafe { init(&mut object, 1 << 6) }).unwrap();
        number.pdn
    }

    /// `struct ibv_pd`: context, handle.
    pub(crate) fn handle(&self) -> u32 {
        // SAFETY: a live `struct ibv_pd`.
        unsafe { self.0.cast::<u8>().add(8).cast::<u32>().read() }
    }

    /// Registers all of `memory`, which must outlive the registration.
    pub(crate) fn reg_mr(&self, memory: &Memory, access: u32) -> io::Result<Mr> {
        self.reg_range(memory.address(), memory.bytes(), access)
    }

    pub(crate) fn reg_range(&self, address: *mut u8, bytes: usize, access: u32) -> io::Result<Mr> {
        let reg = symbol!(
            ibverbs(),
            "ibv_reg_mr",
            fn(*mut c_void, *mut c_void, usize, c_int) -> *mut c_void
        );
        let access = access.try_into().unwrap();
        // SAFETY: a live PD; a range that is not mapped is refused.
        Ok(Mr(not_null(unsafe {
            reg(self.0, address.cast(), bytes, access)
        })?))
    }

    /// Frees it; on failure it still exists.
    pub(crate) fn dealloc(self) -> Result<(), (Self, io::Error)> {
        let dealloc = symbol!(ibverbs(), "ibv_dealloc_pd", fn(*mut c_void) -> c_int);
        // SAFETY: a live PD.
        zero(unsafe { dealloc(self.0) }).map_err(|error| (self, error))
    }
}

pub(crate) struct Mr(*mut c_void);

impl Mr {
    /// `struct ibv_mr`: context, pd, addr, length, handle, lkey, rkey.
    pub(crate) fn lkey(&self) -> u32 {
        // SAFETY: a live `struct ibv_mr`.
        unsafe { self.0.cast::<u8>().add(36).cast::<u32>().read() }
    }

    pub(crate) fn dereg(self) -> io::Result<()> {
        let dereg = symbol!(ibverbs(), "ibv_dereg_mr", fn(*mut c_void) -> c_int);
        // SAFETY: a live region.
        zero(unsafe { dereg(self.0) })
    }
}

fn not_null(pointer: *mut c_void) -> io::Result<*mut c_void> {
    if pointer.is_null() {
        return Err(io::Error::last_os_error());
    }
    Ok(pointer)
}

/// A call that returns 0 or an error number (some of them -1 and errno).
fn zero(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        error => Err(io::Error::from_raw_os_error(error.abs())),
    }
}

/// `ioctl` with an address given as a number: `errno`, or 0.
pub(crate) fn ioctl(fd: c_int, request: libc::c_ulong, address: u64) -> c_int {
    // SAFETY: the HCA checks the address; other descriptors are not passed.
    match unsafe { libc::ioctl(fd, request, address) } {
        -1 => io::Error::last_os_error().raw_os_error().unwrap(),
        _ => 0,
    }
}

pub(crate) fn is_open(fd: c_int) -> bool {
    // SAFETY: F_GETFD takes no argument.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

pub(crate) fn close(fd: c_int) {
    // SAFETY: a descriptor that no other code of this process knows of.
    unsafe { libc::close(fd) };
}
