//! The files of a port whose contents change: its state, `counters`, which every port has, and `hw_counters`, which hold what the port and
//! its HCA count.

use std::str;

use crate::device::{Counters, PortCounters};

/// The text of `state` for a port that is up, and for a port that is down.
pub(super) const STATE: [&str; 2] = ["4: ACTIVE", "1: DOWN"];
/// The text of `phys_state` for a port that is up, and for a port that is down.
pub(super) const PHYSICAL_STATE: [&str; 2] = ["5: LinkUp", "3: Disabled"];

/// A counter: its name, and the way to read its value.
type Row = (&'static str, Read);

/// The folders of counters, each with its counters.
const FOLDERS: [(&str, &[Row]); 2] = [("counters", STANDARD), ("hw_counters", ROWS)];

/// The counters of the specification of `InfiniBand`. A port has no physical layer, no virtual lanes and no multicast, so counters of these
/// are 0.
const STANDARD: &[Row] = &[
    ("port_xmit_data", Read::Port(|c| c.sent_bytes() / WORD)),
    ("port_rcv_data", Read::Port(|c| c.received_bytes() / WORD)),
    ("port_xmit_packets", Read::Port(PortCounters::sent)),
    ("port_rcv_packets", Read::Port(PortCounters::received)),
    ("unicast_xmit_packets", Read::Port(PortCounters::sent)),
    ("unicast_rcv_packets", Read::Port(PortCounters::received)),
    ("multicast_xmit_packets", Read::Port(|_| 0)),
    ("multicast_rcv_packets", Read::Port(|_| 0)),
    (
        "port_rcv_errors",
        Read::Port(|c| c.wire.malformed + c.wire.bad_icrc),
    ),
    ("port_xmit_discards", Read::Port(|c| c.wire.unsendable)),
    ("port_xmit_wait", Read::Port(|_| 0)),
    ("symbol_error", Read::Port(|_| 0)),
    ("link_error_recovery", Read::Port(|_| 0)),
    ("local_link_integrity_errors", Read::Port(|_| 0)),
    ("excessive_buffer_overrun_errors", Read::Port(|_| 0)),
    ("VL15_dropped", Read::Port(|_| 0)),
];

/// The number of bytes in the unit of `port_xmit_data` and `port_rcv_data`.
const WORD: u64 = 4;

#[derive(Clone, Copy)]
enum Read {
    /// The value comes from the device's counters.
    Device(fn(&Counters) -> u64),
    /// The value comes from the port's counters.
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
    // Linux gives the counters of a ConnectX port these names.
    ("out_of_sequence", Read::Port(|c| c.wire.out_of_order)),
    ("duplicate_request", Read::Port(|c| c.wire.duplicates)),
    ("port_wqes", Read::Port(|c| c.wqes)),
    ("port_tx_packets", Read::Port(PortCounters::sent)),
    ("port_rx_packets", Read::Port(PortCounters::received)),
];

/// Returns the names of all counter files, each with its folder.
pub(super) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of =
        |(folder, rows): (_, &'static [Row])| rows.iter().map(move |(name, _)| (folder, *name));
    FOLDERS.into_iter().flat_map(of)
}

/// Returns whether a file of this name changes, if the file lies in the directory where it belongs.
pub(crate) fn changes(name: &[u8]) -> bool {
    matches!(name, b"state" | b"phys_state") || names().any(|(_, known)| known.as_bytes() == name)
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
    /// A counter: the index of its folder, and its index in that folder.
    Counter(usize, usize),
    State,
    PhysicalState,
}

impl<'a> LiveFile<'a> {
    /// Returns the file that `path` names, if `path` ends like `mlx5_0/ports/1/hw_counters/tx_wqes` or `mlx5_0/ports/1/state`.
    pub(super) fn parse(path: &'a [u8]) -> Option<Self> {
        // The path is read from its end, so that it does not matter by which link the device was reached.
        let mut parts = path.rsplit(|&byte| byte == b'/');
        let what = match parts.next()? {
            b"state" => What::State,
            b"phys_state" => What::PhysicalState,
            name => {
                let of = parts.next()?;
                let folder = FOLDERS
                    .iter()
                    .position(|(known, _)| known.as_bytes() == of)?;
                let row = FOLDERS[folder]
                    .1
                    .iter()
                    .position(|(known, _)| known.as_bytes() == name)?;
                What::Counter(folder, row)
            }
        };
        let port = str::from_utf8(parts.next()?).ok()?.parse().ok()?;
        parts.next().filter(|folder| *folder == b"ports")?;
        let device = str::from_utf8(parts.next()?).ok()?;
        Some(Self { device, port, what })
    }

    /// Returns the content of the file now; `None` if this process has no such port.
    pub(super) fn value(&self) -> Option<String> {
        let port = crate::device::port_counters(self.device, self.port)?;
        let state = usize::from(port.is_down);
        Some(match self.what {
            What::State => STATE[state].to_owned(),
            What::PhysicalState => PHYSICAL_STATE[state].to_owned(),
            What::Counter(folder, row) => match FOLDERS.get(folder)?.1.get(row)?.1 {
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
        let row = ROWS.iter().position(|(name, _)| *name == "cqes").unwrap();
        for (end, port, what) in [
            ("ports/1/hw_counters/cqes", 1, What::Counter(1, row)),
            ("ports/2/hw_counters/cqes", 2, What::Counter(1, row)),
            ("ports/1/counters/port_rcv_data", 1, What::Counter(0, 1)),
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
        assert_eq!(distinct.len(), ROWS.len() + STANDARD.len());
    }
}
