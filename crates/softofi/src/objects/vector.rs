//! An address vector: a table, as EFA has it.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, PoisonError, RwLock};

use libfabric_abi::FI_ADDR_NOTAVAIL;

use super::{Domain, Users};
use crate::engine::Address;
use crate::rules::Rule;

pub(crate) struct Vector {
    pub(crate) domain: Arc<Domain>,
    pub(crate) endpoints: Users,
    table: RwLock<Table>,
}

#[derive(Default)]
struct Table {
    rows: Vec<Option<Address>>,
    numbers: HashMap<Address, u64>,
}

impl Vector {
    pub(crate) fn new(domain: Arc<Domain>) -> Self {
        Self {
            domain,
            endpoints: Users::default(),
            table: RwLock::default(),
        }
    }

    /// Takes an address; one that is there already keeps its number. What is none gets `FI_ADDR_NOTAVAIL`.
    pub(crate) fn insert(&self, bytes: &[u8]) -> u64 {
        let Some(address) = Address::of(bytes) else {
            Rule::BadAddress.broken("");
            return FI_ADDR_NOTAVAIL;
        };
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = table.numbers.get(&address) {
            return *number;
        }
        let number = table.rows.len() as u64;
        table.rows.push(Some(address));
        table.numbers.insert(address, number);
        number
    }

    /// Gives a number back. Operations to that peer that are under way would have no outcome that the manual names.
    pub(crate) fn remove(&self, number: u64) -> Result<(), c_int> {
        let address = self.address(number)?;
        let endpoints = self.domain.endpoints();
        if endpoints.iter().any(|it| it.uses(self, &address)) {
            return Err(Rule::RemoveInUse.broken(format_args!("({number})")));
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let row = usize::try_from(number).ok();
        let row = row.and_then(|row| table.rows.get_mut(row));
        match row.and_then(Option::take) {
            Some(address) => {
                table.numbers.remove(&address);
                Ok(())
            }
            None => Err(unknown(number)),
        }
    }

    pub(crate) fn address(&self, number: u64) -> Result<Address, c_int> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let row = usize::try_from(number).ok();
        let row = row.and_then(|row| table.rows.get(row));
        row.copied().flatten().ok_or_else(|| unknown(number))
    }

    /// Whether a peer was inserted.
    pub(crate) fn has(&self, address: &Address) -> bool {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.numbers.contains_key(address)
    }
}

fn unknown(number: u64) -> c_int {
    Rule::UnknownAddress.broken(format_args!("({number})"))
}
