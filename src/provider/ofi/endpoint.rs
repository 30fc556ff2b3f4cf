//! An endpoint: made, posted to, closed. It is of one lane of one connection, for one life of that lane.

// UNSAFETY: gives contexts and memory to the library, by addresses.
#![expect(unsafe_code, reason = "objects of the library")]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use libc::iovec;
use libfabric_abi::Version;
use libfabric_abi::bindings::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_EAGAIN, FI_ENOKEY, FI_HMEM_P2P_REQUIRED,
    FI_OPT_ENDPOINT, FI_OPT_FI_HMEM_P2P, FI_RECV, FI_REMOTE_CQ_DATA, FI_TRANSMIT, fi_msg_rma,
    fi_rma_iov, fid_cq, fid_ep,
};
use libfabric_abi::calls::{
    fi_enable, fi_endpoint, fi_ep_bind, fi_getname, fi_readmsg, fi_setopt, fi_writemsg,
};
use libfabric_abi::later::FI_OPT_SHARED_MEMORY_PERMITTED;

use super::book::{Op, Refused};
use super::contexts::Pool;
use super::cq::Cq;
use super::domain::{Domain, EndpointPlace};
use super::error::{MOST_ADDRESS, OfiError};
use super::lkeys::State as LocalKeys;
use super::object::Owned;
use super::registry::{Ear, data_of};
use super::split::MOST_RANGES;
#[cfg(test)]
use super::trial::{LATE, Planted};
use crate::provider::{Cause, LaneCounts, LocalRange};

/// The first number of a lane. No QP has one, and no lane that copies.
const FIRST: u32 = 1 << 30;
/// The API version from which on an endpoint is asked not to go by memory that it shares with others of its machine.
const SHARES: Version = Version::new(1, 21);

/// How many lanes were made in this process.
static LANES: AtomicU32 = AtomicU32::new(0);

/// An endpoint of a lane.
#[derive(Debug)]
pub(super) struct Endpoint {
    number: u32,
    /// The tag by which peers name the lane, when they count.
    tag: u16,
    address: Vec<u8>,
    /// None: it is closed.
    open: Mutex<Option<Open>>,
    peer: OnceLock<Peer>,
    /// What has counted by the lane. The lane leaves it when it is dropped.
    counts: OnceLock<LaneCounts>,
    ear: Arc<Ear>,
    pool: Arc<Pool>,
    cq: Arc<Cq>,
    domain: Arc<Domain>,
}

#[derive(Debug)]
struct Open {
    endpoint: Owned<fid_ep>,
    place: EndpointPlace,
}

/// The endpoint of the other end.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// Its number in the address vector.
    address: u64,
    tag: u16,
}

/// An endpoint that may be open, for posts. It is not closed meanwhile.
pub(super) struct Poster<'a> {
    open: MutexGuard<'a, Option<Open>>,
    of: &'a Endpoint,
}

impl Endpoint {
    /// Makes an endpoint with room for `depth` operations under way beside its first.
    pub(super) fn new(domain: &Arc<Domain>, cq: &Arc<Cq>, depth: u16) -> Result<Self, OfiError> {
        let place = domain.place()?;
        let endpoint = cq.still(|| enabled(domain, cq.object()))?;
        let address = address_of(domain, &endpoint)?;
        let pool = Arc::new(Pool::new(depth.saturating_add(1)));
        let number = FIRST | LANES.fetch_add(1, Ordering::Relaxed) & (FIRST - 1);
        let ear = Arc::new(Ear::default());
        Ok(Self {
            number,
            tag: cq.add(&pool, number, &ear)?,
            address,
            open: Mutex::new(Some(Open { endpoint, place })),
            peer: OnceLock::new(),
            counts: OnceLock::new(),
            ear,
            pool,
            cq: Arc::clone(cq),
            domain: Arc::clone(domain),
        })
    }

    /// Returns the number of the lane.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn tag(&self) -> u16 {
        self.tag
    }

    pub(super) fn address(&self) -> &[u8] {
        &self.address
    }

    pub(super) fn ear(&self) -> &Ear {
        &self.ear
    }

    pub(super) fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// Returns the number of the context of the first write.
    pub(super) fn first_context(&self) -> u16 {
        self.pool.count() - 1
    }

    /// Takes the endpoint of the other end.
    pub(super) fn meet(&self, address: &[u8], tag: u16) -> Result<(), OfiError> {
        let address = self.domain.insert(address)?;
        if self.peer.set(Peer { address, tag }).is_err() {
            // It has met already, and no step of a connection does that.
            self.domain.remove(address);
        }
        Ok(())
    }

    /// Takes what has counted by the lane, which is dropped.
    pub(super) fn leave(&self, counts: LaneCounts) {
        // An endpoint has one lane, so it is set once.
        let _ = self.counts.set(counts);
    }

    /// Returns what has counted by the lane. None: the lane is not dropped.
    pub(super) fn counts(&self) -> Option<LaneCounts> {
        self.counts.get().cloned()
    }

    /// Returns the endpoint for posts.
    pub(super) fn poster(&self) -> Poster<'_> {
        Poster {
            open: self.open(),
            of: self,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.open().is_none()
    }

    /// Closes the endpoint: nothing of it lands any more, and the provider uses no context and no memory of it. After a failure it can be
    /// called again.
    pub(super) fn close(&self) -> Result<(), OfiError> {
        let mut open = self.open();
        let Some(Open { endpoint, place }) = open.take() else {
            return Ok(());
        };
        #[cfg(test)]
        if self.planted() == Some(Planted::LateClose) {
            drop(open);
            self.close_late(Open { endpoint, place });
            return Ok(());
        }
        if let Err((endpoint, refused)) = self.cq.still(|| endpoint.close()) {
            *open = Some(Open { endpoint, place });
            return Err(self.domain.error("fi_close", i64::from(refused)));
        }
        drop(open);
        if let Some(peer) = self.peer.get() {
            self.domain.remove(peer.address);
        }
        self.cq.close(&self.pool);
        Ok(())
    }

    /// Returns the defect that a test has planted in the domain.
    #[cfg(test)]
    pub(super) fn planted(&self) -> Option<Planted> {
        self.domain.trial().planted
    }

    /// Closes the endpoint later, while all others take it for closed.
    #[cfg(test)]
    fn close_late(&self, open: Open) {
        let (cq, domain) = (Arc::clone(&self.cq), Arc::clone(&self.domain));
        // The provider has the contexts until then.
        let (pool, peer) = (Arc::clone(&self.pool), self.peer.get().copied());
        std::thread::spawn(move || {
            std::thread::sleep(LATE);
            let Open { endpoint, place } = open;
            if let Err((_, refused)) = cq.still(|| endpoint.close()) {
                tracing::error!("an endpoint is not closed: {refused}");
            }
            if let Some(peer) = peer {
                domain.remove(peer.address);
            }
            drop((pool, place));
        });
        self.cq.close(&self.pool);
    }

    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // If the library refuses, the queue keeps the contexts.
        if let Err(error) = self.close() {
            tracing::error!("an endpoint stays: {error}");
        }
    }
}

impl Poster<'_> {
    /// Posts an operation with this context.
    pub(super) fn post(&self, op: &Op, context: u16, keys: &LocalKeys) -> Result<(), Refused> {
        let flushed = Refused::Failed(Cause::FLUSHED);
        let (Some(open), Some(peer)) = (&*self.open, self.of.peer.get()) else {
            return Err(flushed);
        };
        let mut ranges = [EMPTY; MOST_RANGES];
        let mut descs = [null_mut(); MOST_RANGES];
        let places = ranges.iter_mut().zip(&mut descs);
        for ((range, desc), local) in places.zip(op.piece.ranges()) {
            let key = keys.desc(local.key);
            let key = key.ok_or(Refused::Failed(Cause::of_libfabric(no_key(), 0)))?;
            (*range, *desc) = (iovec_of(local), key.as_ptr());
        }
        if !self.of.cq.take_credit() {
            return Err(Refused::Again);
        }
        self.of.ear.begin();
        let remote = fi_rma_iov {
            addr: op.remote,
            len: usize::try_from(op.piece.bytes()).unwrap_or(usize::MAX),
            key: op.key.into(),
        };
        let message = fi_msg_rma {
            msg_iov: ranges.as_ptr(),
            desc: descs.as_mut_ptr(),
            iov_count: op.piece.ranges().len(),
            addr: peer.address,
            rma_iov: &raw const remote,
            rma_iov_count: 1,
            context: self.of.pool.context(context),
            data: op.counter.map_or(0, |counter| data_of(peer.tag, counter)),
        };
        let counts = op.counter.map_or(0, |_| FI_REMOTE_CQ_DATA);
        let endpoint = open.endpoint.as_ptr();
        // SAFETY: the endpoint is open, and stays so during the call. The lists live during the call; their ranges are of memory that is
        // registered, which its owner keeps until the operation has completed or the endpoint is closed. The context is no other
        // operation's before.
        let posted = unsafe {
            if op.is_read {
                fi_readmsg(endpoint, &raw const message, FI_COMPLETION)
            } else {
                let flags = FI_COMPLETION | FI_DELIVERY_COMPLETE | counts;
                fi_writemsg(endpoint, &raw const message, flags)
            }
        };
        if posted == 0 {
            return Ok(());
        }
        self.of.cq.give_credits(self.of.ear.end().into());
        if posted == -(FI_EAGAIN as isize) {
            return Err(Refused::Again);
        }
        let errno = i32::try_from(posted.unsigned_abs()).unwrap_or(i32::MAX);
        Err(Refused::Failed(Cause::of_libfabric(errno, 0)))
    }
}

const EMPTY: iovec = iovec {
    iov_base: null_mut(),
    iov_len: 0,
};

pub(super) fn iovec_of(range: &LocalRange) -> iovec {
    let address = usize::try_from(range.address).unwrap_or_default();
    iovec {
        iov_base: std::ptr::with_exposed_provenance_mut::<c_void>(address),
        iov_len: range.bytes as usize,
    }
}

/// Returns the error of a key that is not to be had.
fn no_key() -> i32 {
    i32::try_from(FI_ENOKEY).unwrap_or(i32::MAX)
}

/// Makes an endpoint that can send and be written to.
pub(super) fn enabled(domain: &Domain, cq: &Owned<fid_cq>) -> Result<Owned<fid_ep>, OfiError> {
    let failed = |call, result: c_int| domain.error(call, i64::from(result));
    let mut endpoint = null_mut();
    // SAFETY: the domain is open, and the description is its own.
    let opened = unsafe {
        let info = domain.info().as_ptr();
        fi_endpoint(domain.as_ptr(), info, &raw mut endpoint, null_mut())
    };
    if opened != 0 {
        return Err(failed("fi_endpoint", opened));
    }
    // SAFETY: the library has just opened it.
    let endpoint = unsafe { Owned::<fid_ep>::new(endpoint) };
    set_options(domain, &endpoint)?;
    // SAFETY: all objects are open, and of one domain.
    unsafe {
        let av = domain.av().as_fid();
        let bound = fi_ep_bind(endpoint.as_ptr(), av, 0);
        if bound != 0 {
            return Err(failed("fi_ep_bind", bound));
        }
        let bound = fi_ep_bind(endpoint.as_ptr(), cq.as_fid(), FI_TRANSMIT | FI_RECV);
        if bound != 0 {
            return Err(failed("fi_ep_bind", bound));
        }
        match fi_enable(endpoint.as_fid()) {
            0 => Ok(endpoint),
            refused => Err(failed("fi_enable", refused)),
        }
    }
}

/// Asks the provider to copy no memory of GPUs by way of the host, and to leave memory that endpoints of a machine share alone.
fn set_options(domain: &Domain, endpoint: &Owned<fid_ep>) -> Result<(), OfiError> {
    if domain.facts().takes_gpus() {
        let option = i32::try_from(FI_OPT_FI_HMEM_P2P).unwrap_or(i32::MAX);
        let required = i32::try_from(FI_HMEM_P2P_REQUIRED).unwrap_or(i32::MAX);
        let set = set(endpoint, option, &required);
        if set != 0 {
            return Err(domain.error("fi_setopt(FI_HMEM_P2P_REQUIRED)", i64::from(set)));
        }
    }
    if domain.api() >= SHARES {
        // Providers that know no such memory refuse the option.
        let _ = set(endpoint, FI_OPT_SHARED_MEMORY_PERMITTED, &false);
    }
    Ok(())
}

/// Sets an option of an endpoint. `T` is the type that the manual gives the option.
fn set<T>(endpoint: &Owned<fid_ep>, option: c_int, value: &T) -> c_int {
    let level = i32::try_from(FI_OPT_ENDPOINT).unwrap_or(i32::MAX);
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the endpoint is open and not enabled, and the value lives during the call.
    unsafe { fi_setopt(endpoint.as_ptr(), level, option, value, size_of::<T>()) }
}

/// Returns the address by which peers reach an endpoint.
pub(super) fn address_of(domain: &Domain, endpoint: &Owned<fid_ep>) -> Result<Vec<u8>, OfiError> {
    let mut address = vec![0; MOST_ADDRESS];
    let mut bytes = address.len();
    // SAFETY: the endpoint is open, and there is room for so many bytes.
    let got = unsafe {
        let into = address.as_mut_ptr().cast();
        fi_getname(endpoint.as_ptr(), into, &raw mut bytes)
    };
    if !(1..=MOST_ADDRESS).contains(&bytes) {
        return Err(OfiError::Address { bytes });
    }
    if got != 0 {
        return Err(domain.error("fi_getname", i64::from(got)));
    }
    address.truncate(bytes);
    Ok(address)
}
