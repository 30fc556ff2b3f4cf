//! The devices of an engine: those that its configuration names, or the ports that `auto` takes; and the provider of each.

use std::fmt;
use std::sync::Arc;

use crate::config::{DeviceChoice, EngineConfig, GpuSelector, PortName, ProviderChoice};
use crate::engine::error::{EngineError, HostError};
use crate::engine::limits::MOST_RAILS;
use crate::engine::places::cpus;
use crate::fabric::{Behind, Openable, Opened, Ports, gpus_of_ranks};
use crate::gpu::{self, GpuError};
use crate::provider::{EngineDevice, ProviderError};
use crate::topology::{Machine, PciAddress, Wish};
use crate::verbs::{Context, PlainContext, VerbsError, check_mlx5, plain_device_list};

/// The devices of an engine, open, and what `auto` says of other ports.
#[derive(Debug)]
#[non_exhaustive]
pub struct EngineDevices {
    /// The devices, in the order of the rails, each with its provider.
    pub devices: Vec<EngineDevice>,
    /// Those of [`devices`](Self::devices) that are mlx5 HCAs with DevX.
    pub contexts: Vec<Arc<Context>>,
    /// Why a provider that comes first was not taken for a device or for the machine.
    pub steps: Vec<String>,
    /// What `auto` wants ports near. None: the system does not say, or the devices are named.
    pub near: Option<Near>,
    /// Ports that `auto` does not take, each with the reason. The list is empty where devices are named.
    pub passed_over: Vec<String>,
}

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

/// Opens the devices of an engine, by the provider of its configuration.
pub(in crate::engine) fn open(config: &EngineConfig) -> Result<EngineDevices, HostError> {
    match &config.device {
        DeviceChoice::Named(names) if (1..=MOST_RAILS).contains(&names.len()) => {
            let mut steps = Vec::new();
            let opened = names.iter().map(|name| named(name, config, &mut steps));
            let devices = opened.collect::<Result<_, _>>()?;
            Ok(EngineDevices::new(devices, steps))
        }
        DeviceChoice::Named(names) => Err(EngineError::Devices { count: names.len() }.into()),
        DeviceChoice::Auto { .. } => auto(config),
    }
}

/// Opens the device of this name.
fn named(
    name: &PortName,
    config: &EngineConfig,
    steps: &mut Vec<String>,
) -> Result<EngineDevice, VerbsError> {
    let by_verbs = || PlainContext::open_named(name, &config.gid).map(EngineDevice::Verbs);
    if config.provider == ProviderChoice::Verbs {
        return by_verbs();
    }
    match Context::open_named(name, &config.gid) {
        Ok(context) => Ok(EngineDevice::Mlx5(context)),
        Err(error) if config.provider == ProviderChoice::Auto && error.is_without_devx() => {
            // If libibverbs does not open it either, the first reason is the better one.
            let device = by_verbs().map_err(|_| error.clone())?;
            steps.push(format!("{name} is driven by verbs, not by mlx5: {error}"));
            Ok(device)
        }
        Err(error) => Err(error),
    }
}

/// Opens the ports that `auto` takes.
fn auto(config: &EngineConfig) -> Result<EngineDevices, HostError> {
    let (qps, most) = (config.qps, config.rails as usize);
    // This is checked even if the machine has fewer ports. So a configuration that starts on one machine starts on all.
    if (qps as usize) < most {
        return Err(EngineError::FewQps { qps, devices: most }.into());
    }
    let visible = match config.gpu {
        GpuSelector::Cuda(_) => gpu::visible().map_err(ProviderError::from)?,
        _ => Vec::new(),
    };
    // The list is read before sysfs: software HCAs are made when a process looks for devices.
    let list = plain_device_list()?;
    let machine = Machine::of_this_process();
    let near = near(config, &visible, &machine)?;
    let (gpus, place) = gpus_of_ranks(config.gpu, 0, &visible, &machine);
    let wish = Wish {
        gpus: &gpus,
        place,
        node: near.and_then(Near::node),
        link_layer: None,
    };
    let ports = Ports {
        machine: &machine,
        list: &list,
        devices: &config.device,
        gid: &config.gid,
    };
    let found = by_provider(config, &ports, &wish)?;
    Ok(EngineDevices { near, ..found })
}

/// Opens the best ports that the provider of the configuration drives.
fn by_provider(
    config: &EngineConfig,
    ports: &Ports<'_>,
    wish: &Wish<'_>,
) -> Result<EngineDevices, HostError> {
    let most = config.rails as usize;
    let by_verbs = |steps| {
        let opened = ports.open::<PlainContext>(wish, most)?;
        Ok(EngineDevices::of_ports(opened, most, steps))
    };
    if config.provider == ProviderChoice::Verbs {
        return by_verbs(Vec::new());
    }
    // Without libmlx5 the list says of no device that DevX drives it, and not why.
    match check_mlx5().and_then(|()| ports.open::<Context>(wish, most)) {
        Ok(opened) => Ok(EngineDevices::of_ports(opened, most, Vec::new())),
        Err(error) if config.provider == ProviderChoice::Auto && error.is_without_devx() => {
            let step = format!("the ports are driven by verbs, not by mlx5: {error}");
            by_verbs(vec![step]).map_err(|_: HostError| error.into())
        }
        Err(error) => Err(error.into()),
    }
}

impl EngineDevices {
    fn new(devices: Vec<EngineDevice>, steps: Vec<String>) -> Self {
        let contexts = devices.iter().filter_map(EngineDevice::context);
        Self {
            contexts: contexts.cloned().collect(),
            devices,
            steps,
            near: None,
            passed_over: Vec::new(),
        }
    }

    /// Returns what `auto` has opened.
    fn of_ports<C>(opened: Opened<C>, most: usize, steps: Vec<String>) -> Self
    where
        EngineDevice: From<Arc<C>>,
    {
        let passed_over = others(&opened, most);
        let devices = opened.contexts.into_iter().map(EngineDevice::from);
        Self {
            passed_over,
            ..Self::new(devices.collect(), steps)
        }
    }
}

impl Near {
    fn node(self) -> Option<u32> {
        match self {
            Self::Gpu { .. } => None,
            Self::Node(node) => Some(node),
        }
    }
}

fn near(
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

/// Returns the ports that are not taken, each with the reason.
fn others<C>(opened: &Opened<C>, most: usize) -> Vec<String> {
    let spare = opened.spare.iter().map(|spare| {
        let why = match spare.behind {
            Behind::Name => format!("WARPVERBS_ENGINE_RAILS is {most}"),
            Behind::Distance => "it is farther than what is taken".to_owned(),
            Behind::Rate => "it is slower than what is taken".to_owned(),
        };
        format!("{}: {why}", spare.port)
    });
    opened.passed_over.iter().cloned().chain(spare).collect()
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
