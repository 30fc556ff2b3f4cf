//! The live allocations of a device, by address. Copies are checked against them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::GpuError;

/// The largest alignment of an allocation: the size of a huge page.
pub(super) const MAX_ALIGN: usize = 2 << 20;

/// The next number of an allocation, for all devices of this process.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// The live allocations, and the bytes ever allocated.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// The live allocations by their first byte.
    live: BTreeMap<u64, Range>,
    /// Bytes of all allocations so far, freed allocations included.
    taken: u64,
}

/// One allocation.
#[derive(Clone, Copy, Debug)]
struct Range {
    bytes: usize,
    number: u64,
}

impl Range {
    fn new(bytes: usize) -> Self {
        let number = NUMBERS.fetch_add(1, Relaxed);
        Self { bytes, number }
    }
}

impl Ranges {
    pub(super) fn insert(&mut self, addr: u64, bytes: usize) {
        self.live.insert(addr, Range::new(bytes));
        self.count(bytes);
    }

    /// Counts an allocation that copies do not reach.
    pub(super) fn count(&mut self, bytes: usize) {
        self.taken += bytes as u64;
    }

    /// Enters memory that the caller has allocated. Refuses a range that wraps around or overlaps a live one.
    pub(super) fn lend(&mut self, addr: u64, bytes: usize) -> Result<(), GpuError> {
        let refused = |limit: &str| {
            let value = format!("{bytes} bytes at {addr:#x}");
            Err(GpuError::BadArgument {
                what: "memory of the caller",
                value,
                limit: limit.to_owned(),
            })
        };
        let end = match addr.checked_add(bytes as u64) {
            Some(end) if addr != 0 && bytes != 0 => end,
            _ => return refused("at least one byte, not at 0, without wrapping around"),
        };
        let below = self.live.range(..end).next_back();
        if let Some((start, range)) = below
            && start + range.bytes as u64 > addr
        {
            return refused("memory that this device has not been given yet and has not allocated");
        }
        self.live.insert(addr, Range::new(bytes));
        Ok(())
    }

    pub(super) fn remove(&mut self, addr: u64) {
        self.live.remove(&addr);
    }

    /// Returns the bytes of all allocations so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Returns the number of the allocation that has this byte. No other allocation of the process ever has that number.
    pub(super) fn number(&self, addr: u64) -> Option<u64> {
        let (start, range) = self.live.range(..=addr).next_back()?;
        (addr - start < range.bytes as u64).then_some(range.number)
    }

    /// Checks that `bytes` bytes at `addr` lie inside one allocation.
    pub(super) fn check(&self, addr: u64, bytes: usize) -> Result<(), GpuError> {
        let below = self.live.range(..=addr).next_back();
        if let Some((start, range)) = below
            && let Ok(offset) = usize::try_from(addr - start)
            && offset
                .checked_add(bytes)
                .is_some_and(|end| end <= range.bytes)
        {
            return Ok(());
        }
        let nearest = below.map_or_else(String::new, |(start, range)| {
            let length = range.bytes;
            format!("; the one below starts at {start:#x} and has {length} bytes")
        });
        Err(GpuError::BadRange {
            addr,
            bytes,
            nearest,
        })
    }
}

/// Checks the length and the alignment of an allocation.
pub(super) fn check_request(bytes: usize, align: usize) -> Result<(), GpuError> {
    let refused = |value: String, limit: String| {
        let what = "allocation";
        Err(GpuError::BadArgument { what, value, limit })
    };
    if bytes == 0 {
        return refused("0 bytes".to_owned(), "at least 1".to_owned());
    }
    if !align.is_power_of_two() || align > MAX_ALIGN {
        let limit = format!("a power of two, at most {MAX_ALIGN}");
        return refused(format!("aligned to {align}"), limit);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_one_allocation_passes() {
        let mut live = Ranges::default();
        live.insert(0x1000, 100);
        live.insert(0x1064, 100);
        for (addr, bytes) in [(0x1000, 100), (0x1063, 1), (0x1064, 0), (0x1064, 100)] {
            live.check(addr, bytes).unwrap();
        }
        for (addr, bytes) in [
            (0xfff, 2),
            (0x1000, 101),
            (0x1000, usize::MAX),
            (u64::MAX, 1),
            (0x10c8, 1),
        ] {
            live.check(addr, bytes).unwrap_err();
        }
        live.remove(0x1000);
        let error = live.check(0x1000, 1).unwrap_err().to_string();
        assert_eq!(
            error,
            "1 bytes at 0x1000 are not inside a live device allocation"
        );
        let error = live.check(0x1064, 101).unwrap_err().to_string();
        assert!(
            error.ends_with("; the one below starts at 0x1064 and has 100 bytes"),
            "{error}"
        );
    }

    #[test]
    fn memory_of_the_caller_meets_no_other() {
        let mut live = Ranges::default();
        live.insert(0x1000, 100);
        live.lend(0x1064, 100).unwrap();
        live.lend(0xf00, 0x100).unwrap();
        for (addr, bytes) in [
            (0x1000, 100),
            (0x1063, 1),
            (0x1064, 1),
            (0x10c7, 8),
            (0xe00, 0x101),
            (0x10, 1 << 20),
            (0, 8),
            (0x2000, 0),
            (u64::MAX, 1),
        ] {
            let error = live.lend(addr, bytes).unwrap_err().to_string();
            let begin = format!("memory of the caller is {bytes} bytes at {addr:#x}; ");
            assert!(error.starts_with(&begin), "{error}");
        }
        assert_eq!(live.taken(), 100, "what is lent was not allocated here");
        live.remove(0x1064);
        live.lend(0x10c7, 8).unwrap();
    }

    #[test]
    fn an_allocation_at_an_address_that_is_used_again_has_another_number() {
        let mut live = Ranges::default();
        live.insert(0x1000, 100);
        let first = live.number(0x1000);
        assert!(first.is_some() && first == live.number(0x1063));
        assert_eq!([0xfff, 0x1064].map(|addr| live.number(addr)), [None; 2]);
        live.remove(0x1000);
        assert_eq!(live.number(0x1000), None);
        live.insert(0x1000, 100);
        let second = live.number(0x1000);
        assert!(second.is_some() && second != first);
    }

    #[test]
    fn impossible_requests_are_refused() {
        check_request(1, 1).unwrap();
        for (bytes, align) in [(0, 8), (8, 0), (8, 24), (8, 2 * MAX_ALIGN)] {
            assert!(
                check_request(bytes, align).is_err(),
                "{bytes} bytes aligned to {align}"
            );
        }
    }
}
