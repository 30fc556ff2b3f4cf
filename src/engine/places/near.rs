//! What an engine wants its NICs near: its GPU, or the CPUs of its workers.

use std::fmt;

use crate::config::{EngineConfig, GpuSelector};
use crate::engine::error::HostError;
use crate::engine::places::cpus;
use crate::gpu::GpuError;
use crate::provider::ProviderError;
use crate::topology::{Distance, Machine, PciAddress};

/// What an engine wants its ports near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Near {
    /// A CUDA device.
    Gpu {
        /// The number of the device.
        ordinal: u32,
        /// The address of the device on the PCI bus.
        pci: PciAddress,
    },
    /// The NUMA node with all CPUs on which its workers may run.
    Node(u32),
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu { ordinal, pci } => write!(f, "GPU {ordinal} ({pci})"),
            Self::Node(node) => write!(f, "NUMA node {node}"),
        }
    }
}

impl Near {
    pub(super) fn node(self) -> Option<u32> {
        match self {
            Self::Gpu { .. } => None,
            Self::Node(node) => Some(node),
        }
    }

    /// Returns how far a NIC is from this. None: the system does not say.
    pub(super) fn distance(self, nic: PciAddress, machine: &Machine) -> Option<Distance> {
        match self {
            Self::Gpu { pci, .. } => machine.distance(pci, nic),
            Self::Node(node) => machine.distance_from_node(node, nic),
        }
    }
}

/// Returns what the NICs of this engine are best near. None: the system does not say.
pub(super) fn near(
    config: &EngineConfig,
    visible: &[PciAddress],
    machine: &Machine,
) -> Result<Option<Near>, HostError> {
    if let GpuSelector::Cuda(ordinal) = config.gpu {
        let Some(&pci) = visible.get(ordinal as usize) else {
            let count = u32::try_from(visible.len()).unwrap_or(u32::MAX);
            return Err(ProviderError::from(GpuError::NoDevice { ordinal, count }).into());
        };
        return Ok(Some(Near::Gpu { ordinal, pci }));
    }
    let cpus = cpus::of_workers(&config.cpus)?;
    let node = cpus.and_then(|cpus| machine.node_of(&cpus));
    Ok(node.map(Near::Node))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::EngineCpus;

    #[test]
    fn a_gpu_that_cuda_does_not_know_is_refused_and_no_word_asks_for_one() {
        let nothing = Machine::read(std::path::Path::new("/nowhere"));
        let pci: PciAddress = "0000:1b:00.0".parse().unwrap();
        let of = |gpu, visible: &[PciAddress]| {
            near(&EngineConfig::new("a").with_gpu(gpu), visible, &nothing)
        };
        let found = of(GpuSelector::Cuda(0), &[pci]).unwrap();
        assert_eq!(found, Some(Near::Gpu { ordinal: 0, pci }));
        assert_eq!(found.unwrap().to_string(), "GPU 0 (0000:1b:00.0)");
        for (ordinal, visible) in [(1, &[pci][..]), (0, &[])] {
            let refused = of(GpuSelector::Cuda(ordinal), visible).unwrap_err();
            let expected = format!(
                "no CUDA device {ordinal}: the driver knows {}",
                visible.len()
            );
            assert!(refused.to_string().starts_with(&expected), "{refused}");
        }
        for gpu in [
            GpuSelector::Auto,
            GpuSelector::Simt,
            GpuSelector::SimtDmabuf,
        ] {
            assert_eq!(of(gpu, &[pci]).unwrap(), None, "{gpu}");
        }
    }

    #[test]
    fn near_is_the_node_that_has_all_cpus_of_the_workers() {
        let root = tempfile::tempdir().unwrap();
        for (node, cpus) in [("node0", "0-1\n"), ("node1", "2-3\n")] {
            let place = root.path().join("sys/devices/system/node").join(node);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("cpulist"), cpus).unwrap();
        }
        let machine = Machine::read(root.path());
        let of = |cpus: &str| {
            let config = EngineConfig::new("a").with_cpus(cpus.parse().unwrap());
            near(&config, &[], &machine).unwrap()
        };
        for (cpus, expected) in [
            ("0", Some(0)),
            ("2-3", Some(1)),
            ("1-2", None),
            ("3-4", None),
        ] {
            assert_eq!(of(cpus), expected.map(Near::Node), "{cpus}");
        }
        assert_eq!(Near::Node(1).to_string(), "NUMA node 1");
        // These are the CPUs of this process, whichever they are.
        let own = cpus::of_workers(&EngineCpus::Near).unwrap().unwrap();
        for word in ["near", "any"] {
            assert_eq!(of(word), machine.node_of(&own).map(Near::Node), "{word}");
        }
    }
}
