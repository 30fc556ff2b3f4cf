//! The devices of an engine: those that its configuration names, or the ports that `auto` takes; and the provider of each.

use std::sync::Arc;

use crate::config::{DeviceChoice, EngineConfig, GpuSelector, PortName, ProviderChoice};
use crate::engine::error::{EngineError, HostError};
use crate::engine::limits::MOST_RAILS;
use crate::engine::places::domains;
use crate::engine::places::near::{Near, near};
use crate::fabric::{Behind, Openable, Opened, Ports, gpus_of_ranks};
use crate::gpu;
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

/// Opens the devices of an engine, by the provider of its configuration.
pub(in crate::engine) fn open(config: &EngineConfig) -> Result<EngineDevices, HostError> {
    match &config.provider {
        ProviderChoice::Ofi(provider) => by_libfabric(provider.as_deref(), config),
        ProviderChoice::Auto => by_rdma(config).or_else(|error| after_rdma(error, config)),
        ProviderChoice::Mlx5 | ProviderChoice::Verbs => by_rdma(config),
    }
}

/// Opens domains of libfabric, of this provider or of the first that drives a NIC.
fn by_libfabric(provider: Option<&str>, config: &EngineConfig) -> Result<EngineDevices, HostError> {
    let visible = visible_gpus(config)?;
    let machine = Machine::of_this_process();
    let near = near(config, &visible, &machine)?;
    let found = domains::find(provider, config, near, &machine)?;
    let taken = found.taken.into_iter().map(EngineDevice::from);
    Ok(EngineDevices {
        near: near.filter(|_| config.device.is_auto()),
        passed_over: found.passed_over,
        ..EngineDevices::new(taken.collect(), Vec::new())
    })
}

/// Opens domains of libfabric where libibverbs drives nothing that an engine can use.
fn after_rdma(error: HostError, config: &EngineConfig) -> Result<EngineDevices, HostError> {
    let is_without_rc =
        matches!(&error, HostError::Provider(ProviderError::Verbs(it)) if it.is_without_devx());
    if !is_without_rc {
        return Err(error);
    }
    match by_libfabric(None, config) {
        Ok(mut found) => {
            let step = format!("libfabric drives the NICs, not mlx5 or verbs: {error}");
            found.steps.push(step);
            Ok(found)
        }
        // A NIC of libfabric's that cannot be used is what its user wants to hear of.
        Err(HostError::Provider(ProviderError::Ofi(refused))) if refused.is_of_a_nic() => {
            Err(ProviderError::from(refused).into())
        }
        Err(_) => Err(error),
    }
}

/// Opens devices that libibverbs lists, by mlx5 or by verbs.
fn by_rdma(config: &EngineConfig) -> Result<EngineDevices, HostError> {
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
    let visible = visible_gpus(config)?;
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

/// Returns the GPUs that CUDA knows, by ordinal, if the engine is to be near one.
fn visible_gpus(config: &EngineConfig) -> Result<Vec<PciAddress>, HostError> {
    match config.gpu {
        GpuSelector::Cuda(_) => Ok(gpu::visible().map_err(ProviderError::from)?),
        _ => Ok(Vec::new()),
    }
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
