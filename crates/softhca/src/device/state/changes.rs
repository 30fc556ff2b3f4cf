//! Changes of an executor's tables, and the order in which they are written.

use super::attached::Attached;
use crate::device::DeviceError;
use bytemuck::Pod;

/// Changes to be written to the tables.
#[derive(Default)]
pub(super) struct Changes {
    /// Addresses of heads that become 0 before anything else happens.
    ended: Vec<u64>,
    /// Addresses and new values of heads that change while the rest of the entry stays. Afterwards no block uses the entry as it was.
    heads: Vec<(u64, u64)>,
    /// Addresses of new entries and their bytes. The head of an entry is written last.
    entries: Vec<(u64, Vec<u8>)>,
}

impl Changes {
    /// Compares an entry as written with the wanted one, and adds what must change at `address`.
    pub(super) fn entry<T: Pod + PartialEq>(&mut self, address: u64, written: &mut T, wanted: &T) {
        if written == wanted {
            return;
        }
        let head =
            |entry: &T| -> u64 { bytemuck::pod_read_unaligned(&bytemuck::bytes_of(entry)[..8]) };
        let body = |entry: &T| bytemuck::bytes_of(entry)[8..].to_vec();
        let (before, after) = (head(written), head(wanted));
        if before != 0 && after != 0 && body(written) == body(wanted) {
            self.heads.push((address, after));
        } else {
            if before != 0 {
                self.ended.push(address);
            }
            if after != 0 {
                self.entries
                    .push((address, bytemuck::bytes_of(wanted).to_vec()));
            }
        }
        *written = *wanted;
    }

    /// Returns whether there are new entries.
    pub(super) fn has_entries(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Writes the changes. Between the end of old entries and the first byte of new ones it waits for the executor.
    ///
    /// # Errors
    ///
    /// The executor has failed or does not answer.
    pub(super) fn write_to(&self, executor: &mut Attached) -> Result<(), DeviceError> {
        for address in &self.ended {
            executor.write(*address, &0u64.to_ne_bytes())?;
        }
        for (address, head) in &self.heads {
            executor.write(*address, &head.to_ne_bytes())?;
        }
        if !self.ended.is_empty() || !self.heads.is_empty() {
            executor.settle()?;
        }
        for (address, entry) in &self.entries {
            executor.write(address + 8, &entry[8..])?;
        }
        for (address, entry) in &self.entries {
            executor.write(*address, &entry[..8])?;
        }
        Ok(())
    }
}
