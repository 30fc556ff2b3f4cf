//! Writes from one domain to another by calls of the library alone: no lane, no book of operations, no registry of endpoints. The rate of
//! an engine is compared with that of this loop.
//!
//! One thread posts, and reads the queue of this end. Another one reads the queue of the other end meanwhile, as the worker of a peer does:
//! some providers land bytes only then. Neither sleeps, so the queues have no descriptor. The writes ask for what an engine's ask for: a
//! completion of each, after its delivery.

// UNSAFETY: gives contexts and memory to the library, by addresses.
#![expect(unsafe_code, reason = "objects of the library")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use libfabric_abi::bindings::{
    FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_EAGAIN, FI_EAVAIL, FI_WAIT_NONE, fi_cq_data_entry,
    fi_msg_rma, fi_rma_iov, fid_cq, fid_ep,
};
use libfabric_abi::calls::{fi_cq_read, fi_writemsg};
use libfabric_abi::later::{fi_cq_err_entry, fi_cq_readerr};

use super::choice::OfiDevice;
use super::contexts::Pool;
use super::cq;
use super::domain::Domain;
use super::endpoint::{address_of, enabled, iovec_of};
use super::error::OfiError;
use super::lkeys::Desc;
use super::memory::{OfiRegistration, Registrar};
use super::object::Owned;
use crate::deadline::Looks;
use crate::provider::{AnyMemory, BareWrite, Cause, HostMemory, LocalRange, ProviderError};
use crate::verbs::VerbsError;

/// The most completions of one call of the library.
const REAP: usize = 64;
/// The most writes that an endpoint gets before the next one has its turn, so that all endpoints carry a share.
const TURN: usize = 16;
/// The most endpoints.
const MOST_ENDPOINTS: u16 = 8;
/// log2 of the most operations of an endpoint: all endpoints together have fewer than 2^16.
const MOST_LOG_DEPTH: u8 = 12;
/// Longest time in which nothing is taken or completes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Endpoints from one domain to another, and the memory of both ends.
pub(crate) struct BareFabric {
    /// The ends are closed before the contexts go.
    here: End,
    there: End,
    contexts: Contexts,
    /// Why a write has failed.
    failed: Option<Cause>,
}

/// What one end has.
struct End {
    /// These are closed in this order.
    endpoints: Vec<Owned<fid_ep>>,
    cq: Owned<fid_cq>,
    registration: OfiRegistration,
    registrar: Arc<Registrar>,
    domain: Arc<Domain>,
    /// The memory that is registered.
    address: u64,
    bytes: u64,
    /// The numbers of the other end's endpoints in the address vector.
    peers: Vec<u64>,
}

/// The contexts of all endpoints of this end.
struct Contexts {
    pool: Pool,
    /// Of each endpoint the contexts that no write has.
    free: Vec<Vec<u16>>,
    /// The number of contexts of an endpoint.
    each: u16,
}

/// A thread that writes.
struct Writer<'a> {
    here: &'a End,
    contexts: &'a mut Contexts,
    /// What the provider is given for memory of this end.
    desc: *mut c_void,
    rkey: u64,
    /// What is added to an address of the other end, so that it is what writes name.
    base: u64,
}

impl BareFabric {
    /// Makes `count` endpoints at each end, each of which has `1 << log_depth` operations under way, or as many as the provider queues.
    pub(crate) fn new(
        devices: [&OfiDevice; 2],
        memories: [&Arc<HostMemory>; 2],
        count: u32,
        log_depth: u8,
    ) -> Result<Self, ProviderError> {
        let few = u16::try_from(count).ok();
        let few = few.filter(|count| (1..=MOST_ENDPOINTS).contains(count));
        let count = few.ok_or_else(|| {
            let limit = format!("1 to {MOST_ENDPOINTS}");
            VerbsError::argument("endpoints without an engine", count, limit)
        })?;
        let most = u16::try_from(devices[0].facts().depth).unwrap_or(u16::MAX);
        let depth = 1u16 << log_depth.min(MOST_LOG_DEPTH);
        // A provider that says 0 does not say how many it queues.
        let depth = if most == 0 { depth } else { most.min(depth) };
        let end = |end: usize| End::new(devices[end], memories[end], count, depth);
        let [here, there] = [0, 1].map(end);
        let (mut here, mut there) = (here?, there?);
        // Some providers want the address of an endpoint that writes, too.
        here.meet(&there)?;
        there.meet(&here)?;
        Ok(Self {
            here,
            there,
            contexts: Contexts::new(count, depth),
            failed: None,
        })
    }

    /// Posts all `writes` to the endpoints in turn, and takes their completions.
    pub(crate) fn run(&mut self, writes: &[BareWrite]) -> Result<(), Cause> {
        if let Some(cause) = self.failed {
            return Err(cause);
        }
        let is_over = AtomicBool::new(false);
        let (over, queue) = (&is_over, &self.there.cq);
        let mut writer = Writer {
            here: &self.here,
            contexts: &mut self.contexts,
            desc: self.here.desc(),
            rkey: self.there.registration.rkey().into(),
            base: self.there.base(),
        };
        let done = thread::scope(|scope| {
            let serves = move || serve(queue, over);
            let served = thread::Builder::new().name("wv-bare".to_owned());
            let done = match served.spawn_scoped(scope, serves) {
                Ok(_) => writer.write(writes),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
                    Err(Cause::of_system(errno))
                }
            };
            over.store(true, Ordering::Release);
            done
        });
        self.failed = done.err();
        done
    }
}

impl Drop for BareFabric {
    fn drop(&mut self) {
        for endpoint in self.here.endpoints.drain(..) {
            if let Err((endpoint, refused)) = endpoint.close() {
                tracing::error!("{endpoint:?} is not closed: {refused}");
                // The provider may use the contexts for as long as the process lives.
                let pool = std::mem::replace(&mut self.contexts.pool, Pool::new(0));
                std::mem::forget(pool);
            }
        }
    }
}

impl End {
    fn new(
        device: &OfiDevice,
        memory: &Arc<HostMemory>,
        count: u16,
        depth: u16,
    ) -> Result<Self, ProviderError> {
        let domain = Arc::new(Domain::open(device)?);
        let registrar = Arc::new(Registrar::new(&domain)?);
        let registration = registrar.register(&AnyMemory::from(memory))?;
        let cq = cq::open(&domain, u32::from(count) * u32::from(depth), FI_WAIT_NONE)?;
        let endpoints = (0..count).map(|_| enabled(&domain, &cq));
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            endpoints,
            cq,
            registration,
            registrar,
            domain,
            address: memory.address(),
            bytes: memory.bytes(),
            peers: Vec::new(),
        })
    }

    /// Takes the addresses of the other end's endpoints.
    fn meet(&mut self, other: &Self) -> Result<(), OfiError> {
        for endpoint in &other.endpoints {
            let address = address_of(&other.domain, endpoint)?;
            self.peers.push(self.domain.insert(&address)?);
        }
        Ok(())
    }

    fn desc(&self) -> *mut c_void {
        let keys = self.registrar.lkeys.read();
        let desc = keys.desc(self.registration.lkey());
        desc.map_or(null_mut(), Desc::as_ptr)
    }

    fn base(&self) -> u64 {
        let named = self.registrar.place_of(self.address);
        named.wrapping_sub(self.address)
    }

    /// Returns whether the write reads only memory that is registered.
    fn has(&self, write: &BareWrite) -> bool {
        let offset = write.local.checked_sub(self.address);
        let end = offset.and_then(|offset| offset.checked_add(write.bytes.into()));
        end.is_some_and(|end| end <= self.bytes)
    }
}

impl Contexts {
    fn new(endpoints: u16, each: u16) -> Self {
        let of = |endpoint: u16| (endpoint * each..(endpoint + 1) * each).collect::<Vec<_>>();
        Self {
            pool: Pool::new(endpoints * each),
            free: (0..endpoints).map(of).collect(),
            each,
        }
    }

    /// Gives back the context at this address. Returns false if there is none.
    fn give(&mut self, address: usize) -> bool {
        let Some(number) = self.pool.number_at(address) else {
            return false;
        };
        let endpoint = usize::from(number / self.each);
        let free = self.free.get_mut(endpoint);
        free.map(|free| free.push(number)).is_some()
    }
}

impl Writer<'_> {
    /// Posts all `writes`, and takes their completions.
    fn write(&mut self, writes: &[BareWrite]) -> Result<(), Cause> {
        let mut entries = [fi_cq_data_entry::default(); REAP];
        let (mut left, mut under_way) = (writes, 0_usize);
        let mut looks = Looks::within(PATIENCE);
        while !left.is_empty() || under_way > 0 {
            let mut taken = 0;
            for endpoint in 0..self.here.endpoints.len() {
                let (now, _) = left.split_at(TURN.min(left.len()));
                let count = self.post_each(endpoint, now)?;
                left = &left[count..];
                taken += count;
            }
            let found = read(&self.here.cq, &mut entries)?;
            let done = entries[..found].iter();
            let done = done.filter(|entry| self.contexts.give(entry.op_context.addr()));
            under_way = (under_way + taken).saturating_sub(done.count());
            if taken + found > 0 {
                looks = Looks::within(PATIENCE);
                continue;
            }
            if looks.next().is_none() {
                return Err(Cause::of_system(libc::ETIMEDOUT));
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// Posts as many of these writes as the endpoint takes now. Returns how many those are.
    fn post_each(&mut self, endpoint: usize, writes: &[BareWrite]) -> Result<usize, Cause> {
        for (nth, write) in writes.iter().enumerate() {
            let Some(context) = self.contexts.free[endpoint].pop() else {
                return Ok(nth);
            };
            if !self.post(endpoint, write, context)? {
                self.contexts.free[endpoint].push(context);
                return Ok(nth);
            }
        }
        Ok(writes.len())
    }

    /// Posts a write. Returns false if it is to be tried again.
    fn post(&self, endpoint: usize, write: &BareWrite, context: u16) -> Result<bool, Cause> {
        if !self.here.has(write) {
            return Err(Cause::of_system(libc::EFAULT));
        }
        let range = iovec_of(&LocalRange {
            address: write.local,
            key: 0,
            bytes: write.bytes,
        });
        let mut desc = self.desc;
        let remote = fi_rma_iov {
            addr: write.remote.wrapping_add(self.base),
            len: write.bytes as usize,
            key: self.rkey,
        };
        let message = fi_msg_rma {
            msg_iov: &raw const range,
            desc: &raw mut desc,
            iov_count: 1,
            addr: self.here.peers[endpoint],
            rma_iov: &raw const remote,
            rma_iov_count: 1,
            context: self.contexts.pool.context(context),
            data: 0,
        };
        let flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
        let endpoint = self.here.endpoints[endpoint].as_ptr();
        // SAFETY: the endpoint is open. The lists live during the call; the range is of memory that is registered and kept until the endpoint
        // is closed. The context is no other write's, and stays until the endpoint is closed.
        match unsafe { fi_writemsg(endpoint, &raw const message, flags) } {
            0 => Ok(true),
            posted if posted == -(FI_EAGAIN as isize) => Ok(false),
            posted => Err(cause(posted)),
        }
    }
}

/// Reads a queue until `over`. Only this drives what the provider does at the other end.
fn serve(queue: &Owned<fid_cq>, over: &AtomicBool) {
    let mut entries = [fi_cq_data_entry::default(); REAP];
    while !over.load(Ordering::Acquire) {
        // A write that is refused here fails at the end that has posted it, too.
        let _ = read(queue, &mut entries);
        thread::yield_now();
    }
}

/// Takes completions. Returns how many.
fn read(queue: &Owned<fid_cq>, entries: &mut [fi_cq_data_entry; REAP]) -> Result<usize, Cause> {
    // SAFETY: the queue is open, and the entries are of its format and as many as `REAP`.
    let read = unsafe { fi_cq_read(queue.as_ptr(), entries.as_mut_ptr().cast(), REAP) };
    if let Ok(count) = usize::try_from(read) {
        return Ok(count.min(REAP));
    }
    if read == -(FI_EAGAIN as isize) {
        return Ok(0);
    }
    if read != -(FI_EAVAIL as isize) {
        return Err(cause(read));
    }
    let mut entry = fi_cq_err_entry::default();
    // SAFETY: the queue is open. The entry gives no room for data of the provider.
    let read = unsafe { fi_cq_readerr(queue.as_ptr(), &mut entry, 0) };
    if read > 0 {
        Err(Cause::of_libfabric(entry.err, entry.prov_errno))
    } else {
        Ok(0)
    }
}

/// Returns the cause that a call has failed with this result.
fn cause(result: isize) -> Cause {
    let errno = i32::try_from(result.unsigned_abs()).unwrap_or(i32::MAX);
    Cause::of_libfabric(errno, 0)
}
