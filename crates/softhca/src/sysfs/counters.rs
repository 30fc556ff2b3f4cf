//! `ports/1/hw_counters`: what an HCA counts, as files.

use std::str;

use crate::device::Counters;

/// A counter and how it is read from a device's counters.
type Row = (&'static str, fn(&Counters) -> u64);

const ROWS: &[Row] = &[
    ("tx_wqes", |c| c.wqes),
    ("lag_port1_wqes", |c| c.wqes_by_lag_port[0]),
    ("lag_port2_wqes", |c| c.wqes_by_lag_port[1]),
    ("doorbells", |c| c.doorbells),
    ("cqes", |c| c.cqes),
    ("error_cqes", |c| c.error_cqes),
    ("tx_bytes", |c| c.bytes_sent),
    ("rx_bytes", |c| c.bytes_received),
    ("tx_packets", |c| c.packets_sent),
    ("rx_packets", |c| c.packets_received),
    ("retransmissions", |c| c.retransmissions),
    ("duplicates", |c| c.duplicates),
    ("write_requests", |c| c.write_requests),
    ("inline_write_requests", |c| c.inline_write_requests),
    ("read_requests", |c| c.read_requests),
    ("atomic_requests", |c| c.atomic_requests),
    ("findings", |c| c.findings),
];

/// The file names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|(name, _)| *name)
}

/// A counter file of a device.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CounterFile<'a> {
    device: &'a str,
    row: usize,
}

impl<'a> CounterFile<'a> {
    /// What `path` names, if it ends like `mlx5_0/ports/1/hw_counters/tx_wqes`.
    pub(super) fn parse(path: &'a [u8]) -> Option<Self> {
        // From the back, so that it does not matter by which link the device was reached.
        let mut parts = path.rsplit(|&byte| byte == b'/');
        let name = parts.next()?;
        let row = ROWS
            .iter()
            .position(|(known, _)| known.as_bytes() == name)?;
        for expected in [b"hw_counters".as_slice(), b"1", b"ports"] {
            if parts.next()? != expected {
                return None;
            }
        }
        let device = str::from_utf8(parts.next()?).ok()?;
        Some(Self { device, row })
    }

    /// Its value now; `None` if this process has no such device.
    pub(super) fn value(&self) -> Option<u64> {
        let counters = crate::device::counters(self.device)?;
        ROWS.get(self.row).map(|(_, read)| read(&counters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_recognised_by_the_end_of_its_path() {
        let parsed = CounterFile::parse(b"/t/class/infiniband/mlx5_7/ports/1/hw_counters/cqes");
        let row = names().position(|name| name == "cqes").unwrap();
        assert_eq!(
            parsed,
            Some(CounterFile {
                device: "mlx5_7",
                row
            })
        );
        for other in [
            "mlx5_7/ports/1/hw_counters/none",
            "mlx5_7/ports/2/hw_counters/cqes",
            "mlx5_7/ports/1/counters/cqes",
            "ports/1/hw_counters/cqes",
            "cqes",
            "",
        ] {
            assert_eq!(CounterFile::parse(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn every_counter_has_a_name_of_its_own() {
        let distinct: std::collections::BTreeSet<_> = names().collect();
        assert_eq!(distinct.len(), ROWS.len());
    }
}
