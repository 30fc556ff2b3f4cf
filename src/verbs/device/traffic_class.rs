//! The traffic class of packets for which the caller names none. QPs of DevX do not inherit the kernel's traffic class.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::verbs::device::list::DeviceInfo;

/// The folder in which the RDMA-CM keeps its defaults.
const RDMA_CM: &str = "/sys/kernel/config/rdma_cm";
/// The number of bytes after which a file read here is cut off: these files are shorter.
const LONGEST: u64 = 4096;

/// A traffic class and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrafficClass {
    /// IP traffic class; its upper six bits are the DSCP.
    pub value: u8,
    /// The source of the value.
    pub from: TrafficClassFrom,
}

/// The source of a traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrafficClassFrom {
    /// The configuration.
    Config,
    /// `tc/PORT/traffic_class` of the device in sysfs.
    Sysfs,
    /// `default_roce_tos` of the RDMA-CM in configfs.
    RdmaCm,
    /// No source sets a class.
    Default,
}

impl fmt::Display for TrafficClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match self.from {
            TrafficClassFrom::Config => "configuration",
            TrafficClassFrom::Sysfs => "sysfs",
            TrafficClassFrom::RdmaCm => "RDMA-CM",
            TrafficClassFrom::Default => "default",
        };
        write!(f, "{} ({from})", self.value)
    }
}

/// Returns the traffic class of packets of this port: `wanted`, or else the class that the system has set for the port, or else 0.
pub(in crate::verbs) fn of_port(wanted: Option<u8>, info: &DeviceInfo, port: u8) -> TrafficClass {
    choose(wanted, &info.path, Path::new(RDMA_CM), &info.name, port)
}

fn choose(wanted: Option<u8>, device: &Path, rdma_cm: &Path, name: &str, port: u8) -> TrafficClass {
    let of = |value: u8, from| TrafficClass { value, from };
    let sysfs = || global_class(&text(&device.join(format!("tc/{port}/traffic_class")))?);
    let rdma_cm = || {
        let file = rdma_cm.join(format!("{name}/ports/{port}/default_roce_tos"));
        text(&file)?.trim().parse::<u8>().ok()
    };
    wanted
        .map(|value| of(value, TrafficClassFrom::Config))
        .or_else(|| sysfs().map(|value| of(value, TrafficClassFrom::Sysfs)))
        .or_else(|| rdma_cm().map(|value| of(value, TrafficClassFrom::RdmaCm)))
        .unwrap_or(of(0, TrafficClassFrom::Default))
}

/// Returns the class for all packets from the line `Global tclass=106`. NVIDIA's driver writes rules for single peers after that line.
fn global_class(text: &str) -> Option<u8> {
    let line = text
        .lines()
        .find(|line| line.starts_with("Global tclass"))?;
    line.split_once('=')?.1.trim().parse().ok()
}

fn text(file: &Path) -> Option<String> {
    let mut text = String::new();
    let read = File::open(file)
        .ok()?
        .take(LONGEST)
        .read_to_string(&mut text);
    read.ok().map(|_| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_class_is_that_of_the_first_place_that_has_one() {
        let tree = tempfile::tempdir().unwrap();
        let (device, cm) = (tree.path().join("mlx5_0"), tree.path().join("cm"));
        let chosen = |wanted| choose(wanted, &device, &cm, "mlx5_0", 2).to_string();
        assert_eq!(chosen(None), "0 (default)");
        fs::create_dir_all(cm.join("mlx5_0/ports/2")).unwrap();
        fs::write(cm.join("mlx5_0/ports/2/default_roce_tos"), "106\n").unwrap();
        assert_eq!(chosen(None), "106 (RDMA-CM)");
        fs::create_dir_all(device.join("tc/2")).unwrap();
        let class = device.join("tc/2/traffic_class");
        fs::write(&class, "Global tclass=96\n10.0.0.1 tclass=4\n").unwrap();
        assert_eq!(chosen(None), "96 (sysfs)");
        assert_eq!(chosen(Some(0)), "0 (configuration)");
        for odd in ["", "Global tclass=300", "Global tclass", "tclass=4"] {
            fs::write(&class, odd).unwrap();
            assert_eq!(chosen(None), "106 (RDMA-CM)", "{odd:?}");
        }
        fs::write(&class, [0xff, 0xfe]).unwrap();
        assert_eq!(chosen(None), "106 (RDMA-CM)", "no UTF-8");
    }
}
