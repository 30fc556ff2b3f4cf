//! What the library says of its domains.

// UNSAFETY: lists of the library are made, read and freed.
#![expect(unsafe_code, reason = "structures of the library")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::ptr::{NonNull, null};

use libfabric_abi::Functions;
use libfabric_abi::bindings::{
    FI_BUS_PCI, FI_DELIVERY_COMPLETE, FI_ENODATA, FI_EP_RDM, FI_HMEM, FI_PROGRESS_MANUAL,
    FI_PROV_ATTR_ONLY, FI_READ, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA, FI_THREAD_SAFE, FI_WRITE,
    fi_info, fid_nic,
};

use super::facts::{Facts, MODE, MR_MODE, all_modes};
use super::library::Library;

/// What is asked of a provider.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) provider: &'a str,
    /// RMA over RDM endpoints.
    pub(super) rma: bool,
    /// Completions that say that all bytes have landed.
    pub(super) delivery: bool,
    /// Memory of GPUs.
    pub(super) gpus: bool,
    /// True if the provider may ask for modes that no engine serves.
    pub(super) any_mode: bool,
}

impl<'a> Ask<'a> {
    /// Asks for RMA over RDM endpoints, and no more.
    pub(super) fn bare(provider: &'a str) -> Self {
        Self {
            provider,
            rma: true,
            delivery: false,
            gpus: false,
            any_mode: false,
        }
    }
}

/// A description of the library, which is a copy of this process.
pub(super) struct Info {
    raw: NonNull<fi_info>,
    functions: Functions,
    facts: Facts,
}

// SAFETY: the copy belongs to this value alone, and the library only reads it.
unsafe impl Send for Info {}
// SAFETY: as for Send.
unsafe impl Sync for Info {}

impl Info {
    /// Returns the description in numbers.
    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns the description for a call of the library.
    pub(super) fn as_ptr(&self) -> *mut fi_info {
        self.raw.as_ptr()
    }

    /// Copies the first description of a list.
    ///
    /// # Safety
    /// The pointer is to a description of this library.
    unsafe fn copy(functions: &Functions, first: *const fi_info) -> Option<Self> {
        // SAFETY: the caller's promise.
        let raw = NonNull::new(unsafe { (functions.fi_dupinfo)(first) })?;
        Some(Self {
            raw,
            functions: *functions,
            // SAFETY: the library has just made it.
            facts: unsafe { facts_of(raw.as_ptr()) },
        })
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: the copy belongs to this value, and nothing has a pointer to it any more.
        unsafe { (self.functions.fi_freeinfo)(self.raw.as_ptr()) }
    }
}

impl fmt::Debug for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.fmt(f)
    }
}

/// Returns what the library finds, the best first. An error is its own number, positive. Finding nothing is none.
pub(super) fn ask(library: &Library, ask: &Ask<'_>) -> Result<Vec<Info>, c_int> {
    let functions = library.functions();
    // SAFETY: of null it makes an empty description.
    let hints = NonNull::new(unsafe { (functions.fi_dupinfo)(null()) });
    let hints = hints.ok_or(libc::ENOMEM)?;
    // SAFETY: the hints have just been made, with all their attributes, and belong to this function.
    let found = unsafe {
        fill(hints.as_ptr(), ask);
        list(library, 0, hints.as_ptr())
    };
    // SAFETY: nothing has a pointer to the hints any more.
    unsafe { (functions.fi_freeinfo)(hints.as_ptr()) };
    found
}

/// Returns the names of all providers of the library.
pub(super) fn providers(library: &Library) -> Vec<String> {
    // SAFETY: there are no hints.
    let all = unsafe { list(library, FI_PROV_ATTR_ONLY, null()) };
    let all = all.unwrap_or_default();
    let mut names: Vec<String> = all
        .into_iter()
        .map(|it| it.facts.provider.clone())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Writes what is asked into empty hints.
///
/// # Safety
/// The hints have all their attributes.
unsafe fn fill(hints: *mut fi_info, ask: &Ask<'_>) {
    // SAFETY: the caller's promise. The library frees the name as `free` does.
    unsafe {
        let (domain, fabric) = ((*hints).domain_attr, (*hints).fabric_attr);
        if let Ok(name) = CString::new(ask.provider) {
            (*fabric).prov_name = libc::strdup(name.as_ptr());
        }
        (*hints).mode = MODE;
        (*domain).mr_mode = MR_MODE;
        if ask.any_mode {
            ((*hints).mode, (*domain).mr_mode) = all_modes();
        }
        if ask.rma {
            (*hints).caps = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
            (*(*hints).ep_attr).type_ = FI_EP_RDM;
            (*domain).threading = FI_THREAD_SAFE;
        }
        if ask.gpus {
            (*hints).caps |= FI_HMEM;
        }
        if ask.delivery {
            (*(*hints).tx_attr).op_flags = FI_DELIVERY_COMPLETE;
        }
    }
}

/// Returns copies of what the library lists.
///
/// # Safety
/// The hints are null, or a description of this library.
unsafe fn list(library: &Library, flags: u64, hints: *const fi_info) -> Result<Vec<Info>, c_int> {
    let (functions, api) = (library.functions(), library.api().0);
    let mut first = std::ptr::null_mut();
    // SAFETY: the caller's promise; the node is null or a text; the library writes the list to `first`.
    let result = unsafe {
        let node = library.node();
        (functions.fi_getinfo)(api, node, null(), flags, hints, &raw mut first)
    };
    match result {
        0 => {}
        refused if refused == -FI_ENODATA => return Ok(Vec::new()),
        refused => return Err(refused.saturating_abs()),
    }
    let (mut all, mut next) = (Vec::new(), first);
    while !next.is_null() {
        // SAFETY: the library has made the list, which is freed below.
        unsafe {
            all.extend(Info::copy(functions, next));
            next = (*next).next;
        }
    }
    // SAFETY: only copies are left.
    unsafe { (functions.fi_freeinfo)(first) };
    Ok(all)
}

/// Returns a description in numbers.
///
/// # Safety
/// It is a description of the library. Attributes may be missing.
unsafe fn facts_of(info: *const fi_info) -> Facts {
    let mut facts = Facts::default();
    // SAFETY: the caller's promise. Each attribute is read where there is one.
    unsafe {
        (facts.caps, facts.mode) = ((*info).caps, (*info).mode);
        facts.addresses = (*info).addr_format;
        if let Some(fabric) = (*info).fabric_attr.as_ref() {
            facts.provider = text(fabric.prov_name);
            facts.fabric = text(fabric.name);
        }
        if let Some(domain) = (*info).domain_attr.as_ref() {
            facts.domain = text(domain.name);
            facts.mr_mode = domain.mr_mode;
            facts.key_bytes = domain.mr_key_size;
            facts.cq_data = domain.cq_data_size;
            facts.endpoints = domain.ep_cnt;
            facts.needs_progress = domain.data_progress == FI_PROGRESS_MANUAL;
        }
        if let Some(endpoint) = (*info).ep_attr.as_ref() {
            facts.most_bytes = endpoint.max_msg_size;
        }
        if let Some(send) = (*info).tx_attr.as_ref() {
            (facts.ranges, facts.depth) = (send.iov_limit, send.size);
        }
        (facts.speed_mbps, facts.pci) = nic((*info).nic);
    }
    facts
}

/// Returns the speed of a NIC in Mbit/s, and its address on the PCI bus.
///
/// # Safety
/// It is a NIC of the library, or null.
unsafe fn nic(nic: *const fid_nic) -> (u32, Option<String>) {
    // SAFETY: the caller's promise. Each attribute is read where there is one, and the union by its kind.
    unsafe {
        let Some(nic) = nic.as_ref() else {
            return (0, None);
        };
        let speed = nic
            .link_attr
            .as_ref()
            .map_or(0, |link| link.speed / 1_000_000);
        let bus = nic
            .bus_attr
            .as_ref()
            .filter(|bus| bus.bus_type == FI_BUS_PCI);
        let pci = bus.map(|bus| {
            let at = bus.attr.pci;
            let (domain, bus, device) = (at.domain_id, at.bus_id, at.device_id);
            format!("{domain:04x}:{bus:02x}:{device:02x}.{}", at.function_id)
        });
        (u32::try_from(speed).unwrap_or(u32::MAX), pci)
    }
}

/// Returns a text of the library. Null is empty.
///
/// # Safety
/// It is null, or ends with zero.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}
