//! Doorbell registers.
//!
//! A UAR page of 4 KiB holds two registers. Every QP gets a register of its own. Silicon allows two QPs to share a register. But for a
//! software HCA a register is plain memory, in which a second store could overwrite the first before the HCA has looked.
//!
//! A QP without doorbell record rings at a third place of the page, where every store counts. So it gets the whole page. libmlx5 hands out
//! registers and not pages, so the other registers of such a page are kept idle.

// UNSAFETY: calls into libmlx5; the register itself is only ever named by its address.
#![expect(unsafe_code, reason = "calls into libmlx5")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mlx5_prm::doorbell::{doorbell_value, uar};

use crate::sys::bindings::mlx5dv_devx_uar;
use crate::verbs::device::open::OpenDevice;
use crate::verbs::error::{VerbsError, last_errno};

/// `MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED` (rdma-core 48 and later): a page that is not cached, and that libmlx5's other users do not share.
const NC_DEDICATED: u32 = 1 << 31;
/// `MLX5DV_UAR_ALLOC_TYPE_BF`: BlueFlame; libmlx5 hands out one register of a page at a time. (The plain non-cached kind is one page that
/// all askers of a context share, so it is not used here.)
const BF: u32 = 0;

/// Returns the kinds of page in the order of preference. Non-cached pages have four registers, of which the software HCA knows two.
fn kinds(soft: bool) -> &'static [u32] {
    if soft { &[BF] } else { &[NC_DEDICATED, BF] }
}

/// The largest number of registers that are allocated in search of a fitting one: more than a process can have pages.
const MOST_TURNS: usize = 1 << 14;

/// A register that libmlx5 has handed out.
#[derive(Clone, Copy)]
struct Raw {
    uar: NonNull<mlx5dv_devx_uar>,
    page_id: u32,
    page_addr: u64,
    addr: u64,
}

// SAFETY: DevX calls may come from any thread; the handle is only named when it is freed.
unsafe impl Send for Raw {}
// SAFETY: as for Send.
unsafe impl Sync for Raw {}

impl Raw {
    fn alloc(device: &OpenDevice, soft: bool) -> Result<Self, VerbsError> {
        let mut errno = 0;
        for kind in kinds(soft) {
            // SAFETY: the context is open.
            let raw = unsafe { device.rdma().mlx5dv_devx_alloc_uar(device.raw(), *kind) };
            match NonNull::new(raw) {
                Some(raw) => return Self::checked(device, raw),
                None => errno = last_errno(),
            }
        }
        Err(device.failed("mlx5dv_devx_alloc_uar", errno))
    }

    fn checked(device: &OpenDevice, raw: NonNull<mlx5dv_devx_uar>) -> Result<Self, VerbsError> {
        // SAFETY: libmlx5 returned it, and does not change it while it is allocated.
        let uar = unsafe { raw.as_ref() };
        let page_addr = uar.base_addr.expose_provenance() as u64;
        let register = Self {
            uar: raw,
            page_id: uar.page_id,
            page_addr,
            addr: uar.reg_addr.expose_provenance() as u64,
        };
        let offset = register.addr.wrapping_sub(page_addr);
        let inside = offset < uar::PAGE_BYTES as u64 && offset.is_multiple_of(8);
        if !inside || register.page_id >= 1 << 24 {
            let value = format!("{offset:#x} in page {:#x}", register.page_id);
            register.free(device);
            let limit = "inside a page with a number of 24 bits";
            return Err(device.bad_reply("doorbell register", value, limit));
        }
        Ok(register)
    }

    fn free(self, device: &OpenDevice) {
        // SAFETY: it is allocated, and the caller owns it and forgets it.
        unsafe { device.rdma().mlx5dv_devx_free_uar(self.uar.as_ptr()) };
    }
}

/// The users of the pages of a context, by the address of the page.
#[derive(Default)]
struct Pages(BTreeMap<u64, Page>);

enum Page {
    /// The registers in use.
    Registers(BTreeSet<u64>),
    /// The page of one QP. These registers of the page were handed out since and lie idle.
    Whole(Vec<Raw>),
}

/// Hands out the doorbell registers of a context.
pub(super) struct Registers {
    device: Arc<OpenDevice>,
    /// True if the device is the software HCA.
    soft: bool,
    pages: Arc<Mutex<Pages>>,
    /// The register that QPs share if they ask for a shared one.
    shared: Mutex<Weak<DoorbellRegister>>,
}

impl Registers {
    pub(super) fn new(device: &Arc<OpenDevice>, soft: bool) -> Self {
        Self {
            device: Arc::clone(device),
            soft,
            pages: Arc::default(),
            shared: Mutex::default(),
        }
    }

    /// Takes a register that no other code of this process uses.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`] if the device has none left; [`VerbsError::BadReply`] if libmlx5 hands out a register that is in use or is not
    /// inside a page.
    pub(super) fn alloc(&self) -> Result<Arc<DoorbellRegister>, VerbsError> {
        let mut pages = locked(&self.pages);
        // Each turn but the last takes one more register of a page that belongs to one QP. Such a page has few registers.
        for _ in 0..=MOST_TURNS {
            let raw = Raw::alloc(&self.device, self.soft)?;
            match pages.0.entry(raw.page_addr).or_insert_with(Page::empty) {
                Page::Whole(idle) => idle.push(raw),
                Page::Registers(used) => {
                    if !used.insert(raw.addr) {
                        // If this code freed the register, the QP that has it would lose it.
                        let offset = raw.addr - raw.page_addr;
                        let value = format!("{offset:#x} in page {:#x}", raw.page_id);
                        return Err(self.device.bad_reply(
                            "doorbell register",
                            value,
                            "one not in use",
                        ));
                    }
                    return Ok(self.register(raw, raw.addr));
                }
            }
        }
        Err(self
            .device
            .bad_reply("doorbell registers", MOST_TURNS, "one on a page to share"))
    }

    /// Takes a page that no other code of this process uses, and returns the page's register for queues without doorbell record.
    ///
    /// # Errors
    ///
    /// As [`Registers::alloc`].
    pub(super) fn without_record(&self) -> Result<Arc<DoorbellRegister>, VerbsError> {
        let mut pages = locked(&self.pages);
        // Registers on pages in use. They are kept until a free page is found, since libmlx5 would hand them out again.
        let mut aside = Vec::new();
        let mut found = Err(self
            .device
            .bad_reply("doorbell pages", MOST_TURNS, "one not in use"));
        for _ in 0..=MOST_TURNS {
            match Raw::alloc(&self.device, self.soft) {
                Ok(raw) => match pages.0.entry(raw.page_addr).or_insert_with(Page::empty) {
                    Page::Whole(idle) => idle.push(raw),
                    Page::Registers(used) if !used.is_empty() => aside.push(raw),
                    page @ Page::Registers(_) => {
                        *page = Page::Whole(Vec::new());
                        found = Ok(raw);
                        break;
                    }
                },
                Err(error) => {
                    found = Err(error);
                    break;
                }
            }
        }
        for raw in aside {
            raw.free(&self.device);
        }
        drop(pages);
        found.map(|raw| self.register(raw, raw.page_addr + uar::NO_RECORD as u64))
    }

    /// Returns the register that all callers of this function share.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Capability`] on the software HCA, which would lose doorbells; else as [`Registers::alloc`].
    pub(super) fn shared(&self) -> Result<Arc<DoorbellRegister>, VerbsError> {
        if self.soft {
            return Err(self.device.lacks(
                "a doorbell register shared by QPs",
                "not possible on the software HCA",
                "one register per QP: share_doorbell_register = false",
            ));
        }
        let mut shared = locked(&self.shared);
        if let Some(register) = shared.upgrade() {
            return Ok(register);
        }
        let register = self.alloc()?;
        *shared = Arc::downgrade(&register);
        Ok(register)
    }

    fn register(&self, raw: Raw, addr: u64) -> Arc<DoorbellRegister> {
        Arc::new(DoorbellRegister {
            device: Arc::clone(&self.device),
            pages: Arc::clone(&self.pages),
            raw,
            addr,
        })
    }
}

/// Locks `of`, also after a panic, since no code panics half-way through a change of this state.
fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One doorbell register. libmlx5 counts the users of its page and unmaps it with the device.
pub struct DoorbellRegister {
    device: Arc<OpenDevice>,
    pages: Arc<Mutex<Pages>>,
    raw: Raw,
    /// The address at which the QP rings. It differs from libmlx5's register if the page belongs to one QP.
    addr: u64,
}

impl DoorbellRegister {
    /// Returns the number by which commands name the page.
    #[must_use]
    pub(crate) fn page_id(&self) -> u32 {
        self.raw.page_id
    }

    /// Returns the address in this process at which the page of [`uar::PAGE_BYTES`] is mapped, write-only.
    #[must_use]
    pub fn page_addr(&self) -> u64 {
        self.raw.page_addr
    }

    /// Returns the address of the register. A doorbell is one 8-byte store to it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Rings, so that `qpn` runs up to `next_index`. The caller has written before what the HCA must find in memory.
    pub(super) fn ring(&self, qpn: u32, next_index: u16) {
        let Ok(addr) = usize::try_from(self.addr) else {
            return;
        };
        let value = doorbell_value(next_index, qpn);
        // SAFETY: the register lies in its page (checked when it was made), on 8 bytes, and is mapped while `self` lives. All
        // code only stores to it.
        let register = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(addr)) };
        // Release: orders everything that is visible to this thread before the store. The fence empties a write-combining buffer.
        register.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Arms a CQ. `value` is the CQ's arm word and number, and goes to the place in the page where CQs are armed.
    pub(super) fn arm(&self, value: u64) {
        let Ok(addr) = usize::try_from(self.raw.page_addr + uar::CQ_ARM as u64) else {
            return;
        };
        // SAFETY: inside the page (checked when the register was made), on 8 bytes, and mapped while `self` lives; all code only
        // stores to it.
        let place = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(addr)) };
        place.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

impl Page {
    fn empty() -> Self {
        Self::Registers(BTreeSet::new())
    }
}

impl Drop for DoorbellRegister {
    fn drop(&mut self) {
        let mut pages = locked(&self.pages);
        let page_addr = self.raw.page_addr;
        match pages.0.get_mut(&page_addr) {
            Some(Page::Whole(idle)) => {
                for raw in std::mem::take(idle) {
                    raw.free(&self.device);
                }
                pages.0.remove(&page_addr);
            }
            Some(Page::Registers(used)) => {
                used.remove(&self.raw.addr);
                if used.is_empty() {
                    pages.0.remove(&page_addr);
                }
            }
            None => {}
        }
        // QPs that ring the register hold this, so no such QP is left.
        self.raw.free(&self.device);
    }
}

impl fmt::Debug for DoorbellRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoorbellRegister")
            .field("page_id", &self.raw.page_id)
            .field(
                "offset",
                &format_args!("{:#x}", self.addr.wrapping_sub(self.raw.page_addr)),
            )
            .finish_non_exhaustive()
    }
}
