//! Which process and device a rank runs on: ranks that share both reach each other's windows by load and store.

use std::fs;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::gpu::Gpu;

/// Process and device of a rank, as other ranks compare it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// Drawn once per process; a forked child has its parent's, and another `pid`.
    token: u64,
    pid: u32,
    /// When the process started, in the kernel's ticks: tells a reused `pid` apart.
    started: String,
    /// Two ranks of a process with the same value may load from and store to each other's device memory.
    device: String,
}

impl Identity {
    /// Of this process, with kernels on `gpu`.
    pub(super) fn new(gpu: &dyn Gpu) -> Self {
        static TOKEN: OnceLock<u64> = OnceLock::new();
        let token = *TOKEN.get_or_init(|| fastrand::Rng::new().u64(..));
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self {
            token,
            pid: std::process::id(),
            started: start_time(&stat).to_owned(),
            device: gpu.device_id(),
        }
    }
}

/// Field 22 of /proc/PID/stat. The name in field 2 may hold blanks and brackets; the last `)` ends it.
fn start_time(stat: &str) -> &str {
    let behind_name = stat.rsplit(')').next().unwrap_or("");
    behind_name.split_whitespace().nth(19).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_process_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 424242 20";
        for name in ["(wv)", "(a b)", "(x) (y)"] {
            assert_eq!(start_time(&format!("77 {name} {rest}")), "424242");
        }
        assert_eq!(start_time(""), "");
        let own = fs::read_to_string("/proc/self/stat").unwrap();
        assert!(start_time(&own).parse::<u64>().unwrap() > 0);
    }
}
