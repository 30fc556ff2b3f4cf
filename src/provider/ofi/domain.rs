//! A domain, open, with the address vector of all its endpoints.

// UNSAFETY: opens objects of the library, and gives addresses of peers to it.
#![expect(unsafe_code, reason = "objects of the library")]

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libfabric_abi::bindings::{
    FI_AV_TABLE, FI_AV_UNSPEC, fi_av_attr, fid_av, fid_domain, fid_fabric,
};
use libfabric_abi::calls::{fi_av_insert, fi_av_open, fi_av_remove, fi_domain};
use libfabric_abi::{FI_ADDR_NOTAVAIL, Version};

use super::choice::OfiDevice;
use super::error::{MOST_ADDRESS, OfiError};
use super::facts::Facts;
use super::info::Info;
use super::object::Owned;
#[cfg(test)]
use super::trial::Trial;

/// The number of peers for which an address vector is made. It grows.
const PEERS: usize = 64;

/// A domain of libfabric.
#[derive(Debug)]
pub(super) struct Domain {
    /// These three are closed in this order, after all that was made on them, which has an `Arc` of this.
    av: Owned<fid_av>,
    domain: Owned<fid_domain>,
    fabric: Owned<fid_fabric>,
    device: OfiDevice,
    /// The number of endpoints that are open.
    endpoints: AtomicUsize,
}

/// The place of an endpoint among those that a domain has.
#[derive(Debug)]
pub(super) struct EndpointPlace(Arc<Domain>);

impl Domain {
    /// Opens a domain.
    pub(super) fn open(device: &OfiDevice) -> Result<Self, OfiError> {
        let (library, info) = (&device.library, device.info.as_ptr());
        let failed = |call, result| library.error(call, device.name(), i64::from(result));
        let mut fabric = null_mut();
        // SAFETY: the description is of this library, and has the attributes of its fabric, since the library lists none without.
        let opened = unsafe {
            (library.functions().fi_fabric)((*info).fabric_attr, &raw mut fabric, null_mut())
        };
        if opened != 0 {
            return Err(failed("fi_fabric", opened));
        }
        // SAFETY: the library has just opened it.
        let fabric = unsafe { Owned::<fid_fabric>::new(fabric) };
        let mut domain = null_mut();
        // SAFETY: the fabric is open, and the description is one of its domains.
        let opened = unsafe { fi_domain(fabric.as_ptr(), info, &raw mut domain, null_mut()) };
        if opened != 0 {
            return Err(failed("fi_domain", opened));
        }
        // SAFETY: the library has just opened it.
        let domain = unsafe { Owned::<fid_domain>::new(domain) };
        // SAFETY: the description is of this library, and has the attributes of its domain, as above.
        let type_ = match unsafe { (*(*info).domain_attr).av_type } {
            FI_AV_UNSPEC => FI_AV_TABLE,
            type_ => type_,
        };
        let mut attr = fi_av_attr {
            type_,
            count: PEERS,
            ..fi_av_attr::default()
        };
        let mut av = null_mut();
        // SAFETY: the domain is open, and the attributes live during the call.
        let opened = unsafe { fi_av_open(domain.as_ptr(), &raw mut attr, &raw mut av, null_mut()) };
        if opened != 0 {
            return Err(failed("fi_av_open", opened));
        }
        Ok(Self {
            // SAFETY: the library has just opened it.
            av: unsafe { Owned::new(av) },
            domain,
            fabric,
            device: device.clone(),
            endpoints: AtomicUsize::new(0),
        })
    }

    pub(super) fn name(&self) -> &str {
        self.device.name()
    }

    pub(super) fn facts(&self) -> &Facts {
        self.device.facts()
    }

    /// Returns what a test changes in the domain.
    #[cfg(test)]
    pub(super) fn trial(&self) -> Trial {
        self.device.trial
    }

    pub(super) fn info(&self) -> &Info {
        &self.device.info
    }

    /// Returns the API version that was asked for.
    pub(super) fn api(&self) -> Version {
        self.device.library.api()
    }

    /// Returns the domain for a call.
    pub(super) fn as_ptr(&self) -> *mut fid_domain {
        self.domain.as_ptr()
    }

    pub(super) fn fabric(&self) -> &Owned<fid_fabric> {
        &self.fabric
    }

    pub(super) fn av(&self) -> &Owned<fid_av> {
        &self.av
    }

    /// Returns the error of a call.
    pub(super) fn error(&self, call: &'static str, result: i64) -> OfiError {
        self.device.library.error(call, self.name(), result)
    }

    /// Counts one more endpoint, if the domain has as many.
    pub(super) fn place(self: &Arc<Self>) -> Result<EndpointPlace, OfiError> {
        let count = self.endpoints.fetch_add(1, Ordering::Relaxed) + 1;
        // From here on the place is counted, and given back when it is dropped.
        let place = EndpointPlace(Arc::clone(self));
        let most = self.facts().endpoints;
        if most > 0 && count > most {
            let domain = self.name().to_owned();
            return Err(OfiError::Endpoints {
                domain,
                count,
                most,
            });
        }
        Ok(place)
    }

    /// Takes the address of a peer's endpoint. Returns the number that stands for it.
    pub(super) fn insert(&self, address: &[u8]) -> Result<u64, OfiError> {
        // A provider reads as many bytes as its addresses have, which the peer's claim does not change.
        let mut padded = [0; MOST_ADDRESS];
        let bytes = address.len();
        let own = padded.get_mut(..bytes).filter(|own| !own.is_empty());
        own.ok_or(OfiError::Address { bytes })?
            .copy_from_slice(address);
        let mut number = FI_ADDR_NOTAVAIL;
        // SAFETY: the vector is open; the address is of the longest form, and lives during the call.
        let taken = unsafe {
            let from = padded.as_ptr().cast();
            fi_av_insert(self.av.as_ptr(), from, 1, &raw mut number, 0, null_mut())
        };
        match taken {
            1 if number != FI_ADDR_NOTAVAIL => Ok(number),
            0 | 1 => Err(self.error(
                "fi_av_insert",
                i64::from(libfabric_abi::bindings::FI_EINVAL),
            )),
            refused => Err(self.error("fi_av_insert", i64::from(refused))),
        }
    }

    /// Gives the number of a peer's endpoint back.
    pub(super) fn remove(&self, mut number: u64) {
        // SAFETY: the vector is open, and has given the number out.
        let refused = unsafe { fi_av_remove(self.av.as_ptr(), &raw mut number, 1, 0) };
        if refused != 0 {
            let error = self.error("fi_av_remove", i64::from(refused));
            tracing::warn!("the address of a peer stays: {error}");
        }
    }
}

impl Drop for EndpointPlace {
    fn drop(&mut self) {
        self.0.endpoints.fetch_sub(1, Ordering::Relaxed);
    }
}
