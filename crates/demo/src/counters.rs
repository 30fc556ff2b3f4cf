//! The counters of an HCA, from its `hw_counters` files.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;

/// The counters of the software HCA that the demo shows. A real NIC has others; those that it lacks are left out.
const NAMES: [&str; 17] = [
    "tx_wqes",
    "port_wqes",
    "lag_port1_wqes",
    "lag_port2_wqes",
    "doorbells",
    "cqes",
    "error_cqes",
    "tx_bytes",
    "rx_bytes",
    "write_requests",
    "inline_write_requests",
    "read_requests",
    "tx_packets",
    "rx_packets",
    "retransmissions",
    "duplicates",
    "findings",
];

/// Values of counters by their names.
pub(crate) type Counters = BTreeMap<String, u64>;

/// Returns the counters of a port of `device` now.
pub(crate) fn read(device: &str, port: u8) -> Counters {
    let root = env::var_os("SYSFS_PATH").map_or_else(|| PathBuf::from("/sys"), PathBuf::from);
    let directory = root.join(format!(
        "class/infiniband/{device}/ports/{port}/hw_counters"
    ));
    let value = |name: &&str| {
        let text = std::fs::read_to_string(directory.join(name)).ok()?;
        let value = text.trim().parse().ok()?;
        Some(((*name).to_owned(), value))
    };
    NAMES.iter().filter_map(value).collect()
}

/// Returns how much each counter has grown between two readings.
pub(crate) fn since(before: &Counters, now: &Counters) -> Counters {
    let difference = |(name, now): (&String, &u64)| {
        let before = before.get(name).copied().unwrap_or(0);
        (name.clone(), now.saturating_sub(before))
    };
    now.iter().map(difference).collect()
}
