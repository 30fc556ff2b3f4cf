//! An application that opens a device itself, by libibverbs alone, and then hands it to Warpverbs.

// UNSAFETY: calls into libibverbs, as an application makes them.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::ffi::{CStr, c_char, c_int, c_void};

use libloading::Library;
use softhca::Hca;

/// `IBV_ACCESS_LOCAL_WRITE`.
const LOCAL_WRITE: c_int = 1;

/// The open device and the protection domain of an application. The application must close them itself, because dropping this closes
/// nothing.
#[derive(Debug)]
#[must_use]
pub struct Application {
    verbs: Library,
    context: *mut c_void,
    pd: *mut c_void,
}

// SAFETY: libibverbs may be called from any thread.
unsafe impl Send for Application {}
// SAFETY: as for Send.
unsafe impl Sync for Application {}

impl Application {
    /// Opens `hca` and allocates a protection domain.
    pub fn open(hca: &Hca) -> Self {
        // SAFETY: the library has no initialiser but for its own state, and its functions have these types (verbs.h).
        unsafe {
            let verbs = Library::new("libibverbs.so.1").expect("libibverbs");
            let list = verbs
                .get::<unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void>("ibv_get_device_list")
                .expect("a function");
            let free = verbs
                .get::<unsafe extern "C" fn(*mut *mut c_void)>("ibv_free_device_list")
                .expect("a function");
            let name_of = verbs
                .get::<unsafe extern "C" fn(*mut c_void) -> *const c_char>("ibv_get_device_name")
                .expect("a function");
            let mut count = 0;
            let devices = list(&raw mut count);
            assert!(!devices.is_null());
            let mut all =
                (0..usize::try_from(count).expect("a count")).map(|nth| *devices.add(nth));
            let device = all.find(|device| {
                CStr::from_ptr(name_of(*device)).to_bytes() == hca.name().as_bytes()
            });
            let device = device.expect("the device is listed");
            let context = call(&verbs, "ibv_open_device", device);
            free(devices);
            let pd = call(&verbs, "ibv_alloc_pd", context);
            Self { verbs, context, pd }
        }
    }

    /// Returns the application's `struct ibv_context *`.
    #[must_use]
    pub fn context(&self) -> *mut c_void {
        self.context
    }

    /// Returns the application's `struct ibv_pd *`.
    #[must_use]
    pub fn pd(&self) -> *mut c_void {
        self.pd
    }

    /// Checks that context and domain work: registers memory and deregisters it.
    pub fn check_works(&self) {
        let mut memory = [0u64; 512];
        // SAFETY: the types are those of verbs.h; the memory lives for longer than it is registered.
        unsafe {
            let register = self
                .verbs
                .get::<unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int) -> *mut c_void>(
                    "ibv_reg_mr",
                )
                .expect("a function");
            let start = memory.as_mut_ptr().cast();
            let mr = register(self.pd, start, size_of_val(&memory), LOCAL_WRITE);
            assert!(!mr.is_null(), "{}", std::io::Error::last_os_error());
            end(&self.verbs, "ibv_dereg_mr", mr);
        }
    }

    /// Closes context and domain. libibverbs and the kernel refuse that while an object made of them is left.
    pub fn close(self) {
        // SAFETY: both are open, and named no more.
        unsafe {
            end(&self.verbs, "ibv_dealloc_pd", self.pd);
            end(&self.verbs, "ibv_close_device", self.context);
        }
    }
}

/// Calls a function of libibverbs that makes an object of another one.
///
/// # Safety
///
/// `function` is such a function, and takes the object `of`.
unsafe fn call(verbs: &Library, function: &str, of: *mut c_void) -> *mut c_void {
    // SAFETY: the caller's promise.
    let made = unsafe {
        verbs
            .get::<unsafe extern "C" fn(*mut c_void) -> *mut c_void>(function)
            .expect("a function")(of)
    };
    assert!(
        !made.is_null(),
        "{function}: {}",
        std::io::Error::last_os_error()
    );
    made
}

/// Calls a function of libibverbs that ends an object.
///
/// # Safety
///
/// `function` is such a function, and nobody uses the object `what` any more.
unsafe fn end(verbs: &Library, function: &str, what: *mut c_void) {
    // SAFETY: the caller's promise.
    let errno = unsafe {
        verbs
            .get::<unsafe extern "C" fn(*mut c_void) -> c_int>(function)
            .expect("a function")(what)
    };
    assert_eq!(errno, 0, "{function}");
}
