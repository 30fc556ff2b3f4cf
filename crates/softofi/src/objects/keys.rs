//! The keys of a domain: 32 bits of the provider's choice. A key comes back with the next registration after its own was closed, so that
//! a late reader meets other memory: the worst that a provider may do.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, PoisonError, RwLock};

use libfabric_abi::bindings::{FI_REMOTE_READ, FI_REMOTE_WRITE};
use libfabric_abi::errors::FI_ENOMEM;

use super::Registration;
use crate::counts::Count;
use crate::failure::Failure;

/// Programs that take a key for an index or an address are to fail.
const FIRST: u32 = 0x0051_0f00;

#[derive(Default)]
pub(crate) struct Keys(RwLock<Table>);

#[derive(Default)]
struct Table {
    open: HashMap<u32, Arc<Registration>>,
    closed: Vec<u32>,
    made: u32,
}

/// What a peer asks of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Access {
    fn right(self) -> u64 {
        match self {
            Self::Read => FI_REMOTE_READ,
            Self::Write => FI_REMOTE_WRITE,
        }
    }
}

/// A range of a peer's wish.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) key: u64,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    pub(crate) access: Access,
}

impl Keys {
    /// Opens a registration under a key, which `make` learns.
    pub(crate) fn open(
        &self,
        make: impl FnOnce(u32) -> Registration,
    ) -> Result<Arc<Registration>, c_int> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let key = match table.closed.pop() {
            Some(key) => {
                Count::KeysAgain.add();
                key
            }
            None => {
                table.made += 1;
                FIRST.checked_add(table.made).ok_or(FI_ENOMEM)?
            }
        };
        let registration = Arc::new(make(key));
        table.open.insert(key, registration.clone());
        Ok(registration)
    }

    /// After this no peer reaches the memory: it waits for copies that go on.
    pub(crate) fn close(&self, key: u32) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if table.open.remove(&key).is_some() {
            table.closed.push(key);
        }
    }

    /// Does something with memory that a peer may reach, under a lock for which a close waits.
    pub(crate) fn with(
        &self,
        wish: Wish,
        copy: impl FnOnce(usize) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let key = u32::try_from(wish.key).map_err(|_| Failure::BadAddress)?;
        let registration = table.open.get(&key).ok_or(Failure::BadAddress)?;
        let at = registration
            .place(wish.address, wish.bytes)
            .ok_or(Failure::BadAddress)?;
        if registration.access & wish.access.right() == 0 {
            return Err(Failure::NoRight);
        }
        copy(at)
    }
}
