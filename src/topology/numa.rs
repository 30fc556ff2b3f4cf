//! The NUMA nodes of a machine.

use super::sysfs::{self, Sysfs, Unread};
use crate::config::CpuList;

/// A NUMA node with its CPUs, as sysfs lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NumaNode {
    /// The kernel's number of the node.
    pub number: u32,
    /// The CPUs of the node, as the kernel lists them: `0-55,112-167`. Empty if the node has memory only.
    pub cpus: String,
}

impl NumaNode {
    pub(super) fn cpu_list(&self) -> Option<CpuList> {
        self.cpus.parse().ok()
    }
}

/// Returns the nodes of a machine, by number.
pub(super) fn nodes(sysfs: &Sysfs, unread: &mut Vec<Unread>) -> Vec<NumaNode> {
    let directory = sysfs.sys.join("devices/system/node");
    let numbers = sysfs::names(&directory, unread);
    let numbers = numbers.iter().filter_map(|name| name.strip_prefix("node"));
    let mut numbers: Vec<u32> = numbers.filter_map(sysfs::decimal).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let node = |number| {
        let file = directory.join(format!("node{number}/cpulist"));
        let cpus = sysfs::fact(&file, "a list of CPUs", unread, |text| {
            let is_list = text.parse::<CpuList>().is_ok();
            is_list.then(|| text.to_owned())
        });
        NumaNode {
            number,
            cpus: cpus.unwrap_or_default(),
        }
    };
    numbers.into_iter().map(node).collect()
}
