//! What the engine costs.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Processor time of the engine thread of this process.
pub fn engine_time() -> Duration {
    let times = fs::read_to_string(engine_task().join("schedstat")).unwrap();
    let ns = times.split_whitespace().next().unwrap().parse().unwrap();
    Duration::from_nanos(ns)
}

/// Returns how often the engine thread of this process has given its core away.
pub fn engine_sleeps() -> u64 {
    let status = fs::read_to_string(engine_task().join("status")).unwrap();
    let switches = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    switches.unwrap().trim().parse().unwrap()
}

fn engine_task() -> PathBuf {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let mut tasks = tasks.map(|task| task.unwrap().path());
    let is_engine = |task: &PathBuf| {
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        name.trim() == "softhca"
    };
    tasks.find(is_engine).expect("an engine thread runs")
}
