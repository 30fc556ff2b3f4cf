//! Registered memory of a rail, and the keys of grants.

use crate::provider::ProviderError;
use crate::provider::mlx5::Registration;
use crate::provider::ofi::{OfiKey, OfiRegistration};
use crate::provider::verbs::{VerbsKey, VerbsRegistration};
use crate::verbs::RangeKey;

/// Memory that is registered on a rail.
#[derive(Debug)]
pub(crate) enum HostRegistration {
    /// An MR of an mlx5 HCA.
    Mlx5(Registration),
    /// An MR of another NIC, by libibverbs.
    Verbs(VerbsRegistration),
    /// A registration of libfabric.
    Ofi(OfiRegistration),
}

/// A key for one peer, over part of a registration.
#[derive(Debug)]
pub(crate) enum HostKey {
    /// An indirect mkey of an mlx5 HCA.
    Mlx5(RangeKey),
    /// An MR of its own, by libibverbs.
    Verbs(VerbsKey),
    /// A registration of libfabric of its own.
    Ofi(OfiKey),
}

impl HostRegistration {
    /// Returns the key by which lanes of the rail name the memory.
    pub(crate) fn lkey(&self) -> u32 {
        match self {
            Self::Mlx5(memory) => memory.lkey(),
            Self::Verbs(memory) => memory.lkey(),
            Self::Ofi(memory) => memory.lkey(),
        }
    }

    /// Returns the key by which peers name the memory.
    pub(crate) fn rkey(&self) -> u32 {
        match self {
            Self::Mlx5(memory) => memory.rkey(),
            Self::Verbs(memory) => memory.rkey(),
            Self::Ofi(memory) => memory.rkey(),
        }
    }

    /// Returns how the memory was given to the NIC, and which ways were refused, in words.
    pub(crate) fn way(&self) -> String {
        match self {
            Self::Mlx5(memory) => memory.export().to_string(),
            Self::Verbs(memory) => memory.export().to_string(),
            Self::Ofi(memory) => memory.way().to_owned(),
        }
    }

    /// Takes the keys away. After a failure it can be called again.
    pub(crate) fn deregister(&mut self) -> Result<(), ProviderError> {
        match self {
            Self::Mlx5(memory) => Ok(memory.deregister()?),
            Self::Verbs(memory) => Ok(memory.deregister()?),
            Self::Ofi(memory) => Ok(memory.deregister()?),
        }
    }
}

impl HostKey {
    /// Returns the key by which the peer names the memory.
    pub(crate) fn rkey(&self) -> u32 {
        match self {
            Self::Mlx5(key) => key.rkey(),
            Self::Verbs(key) => key.rkey(),
            Self::Ofi(key) => key.rkey(),
        }
    }

    /// Ends the key, so that no request begins by it any more. After a failure it can be called again.
    pub(crate) fn destroy(&mut self) -> Result<(), ProviderError> {
        match self {
            Self::Mlx5(key) => Ok(key.destroy()?),
            Self::Verbs(key) => Ok(key.destroy()?),
            Self::Ofi(key) => Ok(key.destroy()?),
        }
    }
}
