//! What libfabric and this provider refuse.

use libfabric_abi::{LoadError, Version};

/// The most bytes of an address that an endpoint has.
pub(crate) const MOST_ADDRESS: usize = 256;

/// What libfabric or an engine over it refuses, with the value and the limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfiError {
    /// No libfabric that an engine can use.
    #[error("{0}; WARPVERBS_LIBFABRIC names another file")]
    Library(#[from] LoadError),
    /// A call that the library has refused.
    #[error("{call} of {domain}: {text} ({errno})")]
    Call {
        /// Name of the call.
        call: &'static str,
        /// Name of the domain, or of the provider.
        domain: String,
        /// The error of the library, positive.
        errno: i32,
        /// The library's words for it.
        text: String,
    },
    /// A provider that the library does not have, or that finds no device.
    #[error("libfabric {version} has no provider '{name}' here; it has {known}")]
    NoProvider {
        /// The name asked for.
        name: String,
        /// The release of the library.
        version: Version,
        /// The providers that it has.
        known: String,
    },
    /// A library without a provider that drives a NIC.
    #[error("libfabric {version} drives no NIC here, as EFA is one; it has {known}")]
    NoNic {
        /// The release of the library.
        version: Version,
        /// The providers that it has.
        known: String,
    },
    /// A provider whose domains are all left out.
    #[error("WARPVERBS_DEVICE leaves out all domains of provider '{provider}'")]
    AllLeftOut {
        /// The name of the provider.
        provider: String,
    },
    /// A provider without something that an engine must have.
    #[error("provider '{name}' has no {what}, which an engine must have")]
    Lacks {
        /// The name of the provider.
        name: String,
        /// What it lacks.
        what: &'static str,
    },
    /// A provider that asks for modes that are not served.
    #[error("provider '{name}' asks for {modes}; an engine serves {served}")]
    Modes {
        /// The name of the provider.
        name: String,
        /// What it asks for and is not served.
        modes: String,
        /// All that is served.
        served: &'static str,
    },
    /// Domains that the provider does not have.
    #[error("provider '{provider}' has no domain '{name}'; it has {known}")]
    NoDomain {
        /// The name of the provider.
        provider: String,
        /// The name asked for.
        name: String,
        /// The domains that it has.
        known: String,
    },
    /// More endpoints than the domain has.
    #[error("{count} endpoints on {domain}; there must be at most {most} (ep_cnt)")]
    Endpoints {
        /// Name of the domain.
        domain: String,
        /// The number that there would be.
        count: usize,
        /// The most of the domain.
        most: usize,
    },
    /// A provider whose completions carry too few bytes of data.
    #[error("{domain} has {bytes} bytes of CQ data; there must be at least {least}")]
    CqData {
        /// Name of the domain.
        domain: String,
        /// The bytes that it has.
        bytes: usize,
        /// The fewest that do.
        least: usize,
    },
    /// A key of the provider that does not fit where peers carry it.
    #[error("{domain} has made key {key:#x}; keys must be at most {most:#x}", most = u32::MAX)]
    WideKey {
        /// Name of the domain.
        domain: String,
        /// The key.
        key: u64,
    },
    /// A domain whose keys have too few bytes.
    #[error("{domain} takes keys of {bytes} bytes; there must be at least {least}")]
    NarrowKeys {
        /// Name of the domain.
        domain: String,
        /// The bytes that it takes.
        bytes: usize,
        /// The fewest that do.
        least: usize,
    },
    /// All numbers of keys were given.
    #[error(
        "all {} keys of {domain} were given: the engine must be started again",
        u32::MAX
    )]
    KeysUsedUp {
        /// Name of the domain.
        domain: String,
    },
    /// A provider that gives only keys which peers know of earlier memory.
    #[error(
        "{domain} gives keys again that peers know of earlier memory: {tries} in a row; connections that knew them must end first"
    )]
    KnownKeys {
        /// Name of the domain.
        domain: String,
        /// The number of tries.
        tries: usize,
    },
    /// A provider that lets a peer in without a look at its key.
    #[error(
        "provider '{provider}' reads for a peer without a look at its key, so a grant would not end; register the memory, or take another provider"
    )]
    KeysStay {
        /// The name of the provider.
        provider: String,
    },
    /// A memory that is registered no more.
    #[error("memory {lkey:#x} is not registered on {domain}")]
    NotRegistered {
        /// Name of the domain.
        domain: String,
        /// The number by which lanes name it.
        lkey: u32,
    },
    /// An address of an endpoint that is none.
    #[error("an address of {bytes} bytes; it must be 1 to {MOST_ADDRESS}")]
    Address {
        /// The number of bytes.
        bytes: usize,
    },
    /// An offer that is none of an endpoint.
    #[error("an offer of another wire, or one whose address is not hexadecimal: '{found}'")]
    Offer {
        /// What was found.
        found: String,
    },
    /// An endpoint that is closed.
    #[error("an endpoint of {domain} that is closed")]
    Closed {
        /// Name of the domain.
        domain: String,
    },
    /// Memory of a GPU, which the domain does not take.
    #[error(
        "{domain} takes no memory of {gpu}: {why}; it takes a DMA-BUF from libfabric 1.20 on, or an address of CUDA (FI_HMEM)"
    )]
    NoGpuMemory {
        /// Name of the domain.
        domain: String,
        /// The device.
        gpu: String,
        /// Why neither way is there.
        why: String,
    },
}

impl OfiError {
    /// Returns whether the library has found a NIC, which cannot be used.
    pub(crate) const fn is_of_a_nic(&self) -> bool {
        !matches!(
            self,
            Self::Library(_) | Self::NoNic { .. } | Self::NoProvider { .. }
        )
    }
}
