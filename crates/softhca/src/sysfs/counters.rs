//! Files of a port that change: its state, and `hw_counters`, what it and its HCA count.

use std::str;

use crate::device::{Counters, PortCounters};

/// `state` of a port that is up, and of one that is down.
pub(super) const STATE: [&str; 2] = ["4: ACTIVE", "1: DOWN"];
/// The same of `phys_state`.
pub(super) const PHYSICAL_STATE: [&str; 2] = ["5: LinkUp", "3: Disabled"];

/// A counter and how it is read.
type Row = (&'static str, Read);

#[derive(Clone, Copy)]
enum Read {
    /// From the device's counters.
    Device(fn(&Counters) -> u64),
    /// From those of the port.
    Port(fn(&PortCounters) -> u64),
}

const ROWS: &[Row] = &[
    ("tx_wqes", Read::Device(|c| c.wqes)),
    ("lag_port1_wqes", Read::Device(|c| c.wqes_by_lag_port[0])),
    ("lag_port2_wqes", Read::Device(|c| c.wqes_by_lag_port[1])),
    ("doorbells", Read::Device(|c| c.doorbells)),
    ("cqes", Read::Device(|c| c.cqes)),
    ("error_cqes", Read::Device(|c| c.error_cqes)),
    ("tx_bytes", Read::Device(|c| c.bytes_sent)),
    ("rx_bytes", Read::Device(|c| c.bytes_received)),
    ("tx_packets", Read::Device(|c| c.packets_sent)),
    ("rx_packets", Read::Device(|c| c.packets_received)),
    ("retransmissions", Read::Device(|c| c.retransmissions)),
    ("duplicates", Read::Device(|c| c.duplicates)),
    ("write_requests", Read::Device(|c| c.write_requests)),
    (
        "inline_write_requests",
        Read::Device(|c| c.inline_write_requests),
    ),
    ("read_requests", Read::Device(|c| c.read_requests)),
    ("atomic_requests", Read::Device(|c| c.atomic_requests)),
    ("findings", Read::Device(|c| c.findings)),
    ("port_wqes", Read::Port(|c| c.wqes)),
    ("port_tx_packets", Read::Port(PortCounters::sent)),
    ("port_rx_packets", Read::Port(PortCounters::received)),
];

/// The file names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|(name, _)| *name)
}

/// Whether a file of this name changes, in the directory where it belongs.
pub(crate) fn changes(name: &[u8]) -> bool {
    let is_row = |(known, _): &Row| known.as_bytes() == name;
    matches!(name, b"state" | b"phys_state") || ROWS.iter().any(is_row)
}

/// A file of a port whose content changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LiveFile<'a> {
    device: &'a str,
    port: u8,
    what: What,
}

#[derive(Debug, PartialEq, Eq)]
enum What {
    Counter(usize),
    State,
    PhysicalState,
}

impl<'a> LiveFile<'a> {
    /// What `path` names, if it ends like `mlx5_0/ports/1/hw_counters/tx_wqes` or `mlx5_0/ports/1/state`.
    pub(super) fn parse(path: &'a [u8]) -> Option<Self> {
        // From the back, so that it does not matter by which link the device was reached.
        let mut parts = path.rsplit(|&byte| byte == b'/');
        let what = match parts.next()? {
            b"state" => What::State,
            b"phys_state" => What::PhysicalState,
            name => {
                let row = ROWS
                    .iter()
                    .position(|(known, _)| known.as_bytes() == name)?;
                parts.next().filter(|folder| *folder == b"hw_counters")?;
                What::Counter(row)
            }
        };
        let port = str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        parts.next().filter(|folder| *folder == b"ports")?;
        let device = str::from_utf8(parts.next()?).ok()?;
        Some(Self { device, port, what })
    }

    /// Its content now; `None` if this process has no such port.
    pub(super) fn value(&self) -> Option<String> {
        let port = crate::device::port_counters(self.device, self.port)?;
        let state = usize::from(port.is_down);
        Some(match self.what {
            What::State => STATE[state].to_owned(),
            What::PhysicalState => PHYSICAL_STATE[state].to_owned(),
            What::Counter(row) => match ROWS.get(row)?.1 {
                Read::Port(read) => read(&port).to_string(),
                Read::Device(read) => read(&crate::device::counters(self.device)?).to_string(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_recognised_by_the_end_of_its_path() {
        let row = names().position(|name| name == "cqes").unwrap();
        for (end, port, what) in [
            ("ports/1/hw_counters/cqes", 1, What::Counter(row)),
            ("ports/2/hw_counters/cqes", 2, What::Counter(row)),
            ("ports/2/state", 2, What::State),
            ("ports/1/phys_state", 1, What::PhysicalState),
        ] {
            let path = format!("/t/class/infiniband/mlx5_7/{end}");
            let found = LiveFile::parse(path.as_bytes()).unwrap();
            let device = "mlx5_7";
            assert_eq!(found, LiveFile { device, port, what });
        }
        for other in [
            "mlx5_7/ports/1/hw_counters/none",
            "mlx5_7/ports/x/hw_counters/cqes",
            "mlx5_7/ports/256/state",
            "mlx5_7/ports/1/counters/cqes",
            "ports/1/hw_counters/cqes",
            "1/state",
            "cqes",
            "",
        ] {
            assert_eq!(LiveFile::parse(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn every_counter_has_a_name_of_its_own() {
        let distinct: std::collections::BTreeSet<_> = names().collect();
        assert_eq!(distinct.len(), ROWS.len());
    }
}
