//! NUMA nodes.

use super::sysfs::{self, Sysfs, Unread};

/// A NUMA node with its CPUs, as sysfs lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NumaNode {
    /// The kernel's number.
    pub number: u32,
    /// Its CPUs, as the kernel lists them: `0-55,112-167`. Empty for a node of memory alone.
    pub cpus: String,
}

/// The nodes of a machine, by number.
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
            is_list(text).then(|| text.to_owned())
        });
        NumaNode {
            number,
            cpus: cpus.unwrap_or_default(),
        }
    };
    numbers.into_iter().map(node).collect()
}

/// Whether a text is a list of numbers and ranges.
fn is_list(text: &str) -> bool {
    let is_range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        matches!((sysfs::decimal(first), sysfs::decimal(last)), (Some(first), Some(last)) if first <= last)
    };
    text.split(',').all(is_range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_has_numbers_and_ranges() {
        for list in ["0", "0-55,112-167", "1,3,5"] {
            assert!(is_list(list), "{list}");
        }
        for other in ["", "0-", "-1", "2-1", "0,,1", "0-1-2", "a"] {
            assert!(!is_list(other), "{other}");
        }
    }
}
