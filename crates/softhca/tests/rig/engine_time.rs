//! What the engine costs.

use std::fs;
use std::time::Duration;

/// Processor time of the engine thread of this process.
pub(crate) fn engine_time() -> Duration {
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        if name.trim() == "softhca" {
            let times = fs::read_to_string(task.join("schedstat")).unwrap();
            let ns = times.split_whitespace().next().unwrap().parse().unwrap();
            return Duration::from_nanos(ns);
        }
    }
    panic!("there is no engine thread");
}
