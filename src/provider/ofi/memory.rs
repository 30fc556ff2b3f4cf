//! Registrations of memory, and the keys of grants, which are registrations of their own.

// UNSAFETY: gives memory that is kept here to the library.
#![expect(unsafe_code, reason = "registered memory")]

use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::iovec;
use libfabric_abi::Version;
use libfabric_abi::bindings::{
    FI_HMEM_CUDA, FI_READ, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_WRITE, fi_mr_attr__bindgen_ty_1,
    fid_mr,
};
use libfabric_abi::calls::{fi_mr_desc, fi_mr_key};
use libfabric_abi::later::{FI_MR_DMABUF, fi_mr_attr, fi_mr_dmabuf, fi_mr_memory, fi_mr_regattr};

use super::domain::Domain;
use super::error::OfiError;
use super::lkeys::{Desc, LocalKeys, Named};
use super::object::Owned;
use super::rkeys::RemoteKeys;
#[cfg(test)]
use super::trial::Planted;
use crate::gpu::MemoryDmabuf;
use crate::provider::{AnyMemory, GpuMemory, HostMemory, ProviderError};
use crate::verbs::{Access, KeyRange};

/// The API version from which on memory of a GPU is given by a DMA-BUF.
const DMABUFS: Version = Version::new(1, 20);
/// How many keys in a row may be known to peers, or be others than those that the provider has just got back.
const TRIES: usize = 256;

/// What registers memory on one domain.
#[derive(Debug)]
pub(super) struct Registrar {
    /// Registrations of a page of no use. They hold keys that peers know of earlier memory, so that the provider does not give them again.
    /// They are closed before the domain.
    parked: Mutex<Vec<Parked>>,
    page: Arc<HostMemory>,
    pub(super) lkeys: Arc<LocalKeys>,
    pub(super) rkeys: Arc<RemoteKeys>,
    domain: Arc<Domain>,
}

#[derive(Debug)]
struct Parked {
    key: u32,
    #[expect(dead_code, reason = "held for its drop")]
    registration: Owned<fid_mr>,
}

/// A registration of which peers have the key.
#[derive(Debug)]
struct Keyed {
    /// None: it is closed.
    registration: Option<Owned<fid_mr>>,
    rkey: u32,
    /// The memory, which is dropped after the registration.
    memory: AnyMemory,
    registrar: Arc<Registrar>,
}

/// Memory that is registered on a domain.
#[derive(Debug)]
pub(crate) struct OfiRegistration {
    keyed: Keyed,
    lkey: u32,
    way: String,
}

/// The key of a grant.
#[derive(Debug)]
pub(crate) struct OfiKey(Keyed);

/// Part of a memory.
#[derive(Clone, Copy, Debug)]
struct Part {
    address: u64,
    bytes: u64,
}

impl Registrar {
    pub(super) fn new(domain: &Arc<Domain>) -> Result<Self, ProviderError> {
        let facts = domain.facts();
        Ok(Self {
            parked: Mutex::default(),
            page: Arc::new(HostMemory::new(4096)?),
            lkeys: Arc::default(),
            rkeys: Arc::new(RemoteKeys::new(domain.name(), facts.chooses_keys())),
            domain: Arc::clone(domain),
        })
    }

    /// Returns what peers name for the first byte of a registration at this address.
    pub(super) fn place_of(&self, address: u64) -> u64 {
        if self.domain.facts().by_address() {
            address
        } else {
            0
        }
    }

    /// Registers all of a memory for this side and for peers.
    pub(super) fn register(
        self: &Arc<Self>,
        memory: &AnyMemory,
    ) -> Result<OfiRegistration, ProviderError> {
        let part = Part {
            address: memory.address(),
            bytes: memory.bytes(),
        };
        let (keyed, way) = self.keyed(memory, part, Access::ALL)?;
        let named = Named {
            desc: keyed.desc(),
            memory: memory.clone(),
        };
        let lkey = self.lkeys.add(named).ok_or_else(|| OfiError::KeysUsedUp {
            domain: self.domain.name().to_owned(),
        });
        Ok(OfiRegistration {
            lkey: lkey?,
            keyed,
            way,
        })
    }

    /// Makes a key for peers over part of a registered memory.
    pub(super) fn key(
        self: &Arc<Self>,
        range: &KeyRange,
        access: Access,
    ) -> Result<OfiKey, ProviderError> {
        let facts = self.domain.facts();
        if !facts.ends_keys() {
            let provider = facts.provider.clone();
            return Err(OfiError::KeysStay { provider }.into());
        }
        let memory = self.lkeys.memory(range.lkey);
        let memory = memory.ok_or_else(|| OfiError::NotRegistered {
            domain: self.domain.name().to_owned(),
            lkey: range.lkey,
        })?;
        let part = Part {
            address: range.address,
            bytes: range.bytes,
        };
        let (first, bytes) = (memory.address(), memory.bytes());
        let offset = part.address.wrapping_sub(first);
        if offset.checked_add(part.bytes).is_none_or(|end| end > bytes) {
            return Err(ProviderError::Range {
                offset,
                bytes: part.bytes,
                has: bytes,
            });
        }
        let (keyed, _) = self.keyed(&memory, part, access)?;
        Ok(OfiKey(keyed))
    }

    /// Registers part of a memory by a key that no peer knows of earlier memory. Returns also in which way the memory was given.
    fn keyed(
        self: &Arc<Self>,
        memory: &AnyMemory,
        part: Part,
        access: Access,
    ) -> Result<(Keyed, String), ProviderError> {
        // No key of a provider that chooses is made or dies meanwhile.
        let mut parked = self.parked();
        parked.retain(|parked| self.rkeys.knows(parked.key));
        for _ in 0..TRIES {
            // Memory of the program is never tried with a key that a peer may know: for that moment it would be open to late requests.
            if self.domain.facts().chooses_keys() && self.park_next(&mut parked)? {
                continue;
            }
            let (registration, way) = self.given(memory, part, access)?;
            // SAFETY: it is open.
            let key = unsafe { fi_mr_key(registration.as_ptr()) };
            if let Some(rkey) = self.rkeys.take(key)? {
                let keyed = Keyed {
                    registration: Some(registration),
                    rkey,
                    memory: memory.clone(),
                    registrar: Arc::clone(self),
                };
                return Ok((keyed, way));
            }
            // The provider has not given the key that it had just got back.
            let domain = self.domain.name();
            tracing::warn!("{domain} gives key {key:#x} again, which a peer may know: it ends");
        }
        let domain = self.domain.name().to_owned();
        let tries = TRIES;
        Err(OfiError::KnownKeys { domain, tries }.into())
    }

    /// Learns by a page of no use which key the provider gives next, and holds the key if a peer may know it. Returns whether it does.
    fn park_next(&self, parked: &mut Vec<Parked>) -> Result<bool, ProviderError> {
        let part = Part {
            address: self.page.address(),
            bytes: self.page.bytes(),
        };
        let page = AnyMemory::from(&self.page);
        let (registration, _) = self.given(&page, part, Access::LOCAL_WRITE)?;
        // SAFETY: it is open.
        let key = unsafe { fi_mr_key(registration.as_ptr()) };
        let known = u32::try_from(key).ok().filter(|it| self.rkeys.knows(*it));
        if let Some(key) = known {
            parked.push(Parked { key, registration });
        }
        Ok(known.is_some())
    }

    /// Notes that a key is dead, and holds it if the provider would give it next.
    fn die(&self, key: u32, parked: &mut Vec<Parked>) {
        self.rkeys.die(key);
        if self.rkeys.knows(key)
            && let Err(error) = self.park_next(parked)
        {
            // The next registration tries it before it takes a key.
            tracing::debug!("key {key:#x} is not held: {error}");
        }
    }

    fn parked(&self) -> MutexGuard<'_, Vec<Parked>> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives part of a memory to the provider. Returns also in which way.
    fn given(
        &self,
        memory: &AnyMemory,
        part: Part,
        access: Access,
    ) -> Result<(Owned<fid_mr>, String), ProviderError> {
        match memory {
            AnyMemory::Host(_) => {
                let registration = self.by_address(part, access, None)?;
                Ok((registration, "by its address".to_owned()))
            }
            AnyMemory::Gpu(memory) => self.of_gpu(memory, part, access),
        }
    }

    /// Gives memory of a GPU to the provider, by a DMA-BUF or by its address.
    fn of_gpu(
        &self,
        memory: &Arc<GpuMemory>,
        part: Part,
        access: Access,
    ) -> Result<(Owned<fid_mr>, String), ProviderError> {
        let refused = |why: String| {
            ProviderError::from(OfiError::NoGpuMemory {
                domain: self.domain.name().to_owned(),
                gpu: memory.gpu().label(),
                why,
            })
        };
        let dmabufs = memory.dmabufs()?;
        if memory.gpu().slot().is_none() && dmabufs.is_empty() {
            // Its memory is the host's.
            let registration = self.by_address(part, access, None)?;
            return Ok((registration, "by its address".to_owned()));
        }
        if !self.domain.facts().takes_gpus() {
            return Err(refused("the provider has no FI_HMEM".to_owned()));
        }
        let mut reasons = Vec::new();
        if self.domain.api() < DMABUFS {
            let has = self.domain.api();
            reasons.push(format!("libfabric {has} takes no DMA-BUF, which 1.20 does"));
        } else {
            for dmabuf in &dmabufs {
                match self.by_dmabuf(memory, dmabuf, part, access) {
                    Ok(registration) => return Ok((registration, "by a DMA-BUF".to_owned())),
                    Err(error) => reasons.push(error.to_string()),
                }
            }
        }
        match self.by_address(part, access, Some(memory)) {
            Ok(registration) => {
                reasons.insert(0, "by its address (FI_HMEM_CUDA)".to_owned());
                Ok((registration, reasons.join("; ")))
            }
            Err(error) => {
                reasons.push(error.to_string());
                Err(refused(reasons.join("; ")))
            }
        }
    }

    fn by_address(
        &self,
        part: Part,
        access: Access,
        gpu: Option<&Arc<GpuMemory>>,
    ) -> Result<Owned<fid_mr>, OfiError> {
        let range = iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(
                usize::try_from(part.address).unwrap_or_default(),
            ),
            iov_len: usize::try_from(part.bytes).unwrap_or(usize::MAX),
        };
        let memory = fi_mr_memory {
            mr_iov: &raw const range,
        };
        self.registered(memory, access, gpu, 0)
    }

    fn by_dmabuf(
        &self,
        memory: &Arc<GpuMemory>,
        dmabuf: &MemoryDmabuf,
        part: Part,
        access: Access,
    ) -> Result<Owned<fid_mr>, OfiError> {
        let offset = dmabuf.offset + (part.address - memory.address());
        let base = usize::try_from(part.address.wrapping_sub(offset)).unwrap_or_default();
        let given = fi_mr_dmabuf {
            fd: dmabuf.fd.as_raw_fd(),
            offset,
            len: usize::try_from(part.bytes).unwrap_or(usize::MAX),
            base_addr: std::ptr::without_provenance_mut(base),
        };
        let given = fi_mr_memory {
            dmabuf: &raw const given,
        };
        self.registered(given, access, Some(memory), FI_MR_DMABUF)
    }

    /// Registers what `memory` names, which the caller keeps during the call.
    fn registered(
        &self,
        memory: fi_mr_memory,
        access: Access,
        gpu: Option<&Arc<GpuMemory>>,
        flags: u64,
    ) -> Result<Owned<fid_mr>, OfiError> {
        let mut attr = fi_mr_attr {
            memory,
            iov_count: 1,
            access: access_of(access),
            requested_key: self.rkeys.next()?,
            ..fi_mr_attr::default()
        };
        if let Some(memory) = gpu {
            attr.iface = FI_HMEM_CUDA;
            let ordinal = memory.gpu().slot().map_or(0, |slot| slot.ordinal);
            let cuda = i32::try_from(ordinal).unwrap_or(i32::MAX);
            attr.device = fi_mr_attr__bindgen_ty_1 { cuda };
        }
        let mut registration = null_mut();
        // SAFETY: the domain is open. The attributes name one range or one DMA-BUF, which lives during the call, of memory that the
        // registration's owner keeps until it is closed, and to which no Rust reference exists but to atomics.
        let registered =
            unsafe { fi_mr_regattr(self.domain.as_ptr(), &attr, flags, &raw mut registration) };
        if registered != 0 {
            return Err(self.domain.error("fi_mr_regattr", i64::from(registered)));
        }
        // SAFETY: the library has just opened it.
        Ok(unsafe { Owned::new(registration) })
    }
}

/// Returns what the provider is told of the use of a memory: this side always reads and writes it.
fn access_of(access: Access) -> u64 {
    let rights = [
        (Access::REMOTE_READ, FI_REMOTE_READ),
        (Access::REMOTE_WRITE, FI_REMOTE_WRITE),
    ];
    let remote = rights.iter().filter(|(right, _)| access.contains(*right));
    remote.fold(FI_READ | FI_WRITE, |all, (_, bit)| all | bit)
}

impl Keyed {
    fn desc(&self) -> Desc {
        let registration = self.registration.as_ref();
        // SAFETY: it is open.
        let desc = registration.map(|it| unsafe { fi_mr_desc(it.as_ptr()) });
        Desc(desc.map_or(0, |desc| desc.expose_provenance()))
    }

    /// Closes the registration: no request begins by its key any more. After a failure it can be called again.
    fn close(&mut self) -> Result<(), OfiError> {
        let Some(registration) = self.registration.take() else {
            return Ok(());
        };
        // Nothing is registered between the end of the key and the note of it.
        let registrar = Arc::clone(&self.registrar);
        let mut parked = registrar.parked();
        match registration.close() {
            Ok(()) => {
                #[cfg(test)]
                if registrar.domain.trial().planted == Some(Planted::KeyAgain) {
                    return Ok(());
                }
                registrar.die(self.rkey, &mut parked);
                Ok(())
            }
            Err((registration, refused)) => {
                self.registration = Some(registration);
                let domain = &registrar.domain;
                Err(domain.error("fi_close", i64::from(refused)))
            }
        }
    }
}

impl Drop for Keyed {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!("memory stays registered, and is kept: {error}");
            std::mem::forget(self.memory.clone());
            std::mem::forget(self.registration.take());
        }
    }
}

impl OfiRegistration {
    /// Returns the number by which lanes of the rail name the memory.
    pub(crate) fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Returns the key by which peers name the memory.
    pub(crate) fn rkey(&self) -> u32 {
        self.keyed.rkey
    }

    /// Returns how the memory was given to the provider, in words.
    pub(crate) fn way(&self) -> &str {
        &self.way
    }

    /// Takes the keys away. After a failure it can be called again.
    pub(crate) fn deregister(&mut self) -> Result<(), OfiError> {
        self.keyed.registrar.lkeys.remove(self.lkey);
        self.keyed.close()
    }
}

impl Drop for OfiRegistration {
    fn drop(&mut self) {
        self.keyed.registrar.lkeys.remove(self.lkey);
    }
}

impl OfiKey {
    /// Returns the key by which the peer names the memory.
    pub(crate) fn rkey(&self) -> u32 {
        self.0.rkey
    }

    /// Ends the key. After a failure it can be called again.
    pub(crate) fn destroy(&mut self) -> Result<(), OfiError> {
        self.0.close()
    }
}
