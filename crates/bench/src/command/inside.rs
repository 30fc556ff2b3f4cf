//! Measurements that start this program again with software HCAs in it.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use crate::error::BenchError;
use warpverbs::verbs::{DeviceInfo, device_list};
use warpverbs_cli::sim::{self, SimArgs};

/// Starts this command again with `--inside` and `devices` software HCAs.
pub(super) fn start(devices: u32) -> Result<ExitCode, Box<dyn std::error::Error>> {
    again(|command| SimArgs::plain(devices, command))
}

/// As `start`, but the WQEs are run by an executor that the command attaches.
pub(super) fn start_external(devices: u32) -> Result<ExitCode, Box<dyn std::error::Error>> {
    again(|command| SimArgs::external(devices, command))
}

fn again(
    with: impl FnOnce(Vec<OsString>) -> SimArgs,
) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut command = vec![env::current_exe()?.into_os_string()];
    command.extend(env::args_os().skip(1));
    command.push("--inside".into());
    Ok(sim::run(&with(command))?)
}

/// Returns the names of the software HCAs of this process, in their order.
pub(super) fn devices() -> Result<Vec<String>, BenchError> {
    let mut devices: Vec<String> = device_list()?
        .into_iter()
        .filter(DeviceInfo::is_soft)
        .map(|device| device.name)
        .collect();
    devices.sort_by_key(|name| (name.len(), name.clone()));
    Ok(devices)
}
