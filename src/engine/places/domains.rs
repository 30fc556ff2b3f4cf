//! The domains of libfabric that an engine takes: those that its configuration names, or the nearest.

use crate::config::{DeviceChoice, EngineConfig, GpuSelector, PortName};
use crate::engine::error::{EngineError, HostError};
use crate::engine::limits::MOST_RAILS;
use crate::engine::places::near::Near;
use crate::provider::{OfiDevice, OfiWish, ProviderError};
use crate::topology::{Machine, PciAddress};

/// The domains that an engine takes, and the others, each with the reason.
pub(super) struct Domains {
    pub(super) taken: Vec<OfiDevice>,
    pub(super) passed_over: Vec<String>,
}

/// Finds the domains of an engine, of this provider or of the first that drives a NIC.
pub(super) fn find(
    provider: Option<&str>,
    config: &EngineConfig,
    near: Option<Near>,
    machine: &Machine,
) -> Result<Domains, HostError> {
    let (named, without) = match &config.device {
        DeviceChoice::Named(names) => (names.as_slice(), &[][..]),
        DeviceChoice::Auto { without } => (&[][..], without.as_slice()),
    };
    let is_auto = config.device.is_auto();
    if !is_auto && !(1..=MOST_RAILS).contains(&named.len()) {
        return Err(EngineError::Devices { count: named.len() }.into());
    }
    let wish = OfiWish {
        library: config.libfabric.clone(),
        provider: provider.map(str::to_owned),
        domains: named.iter().map(name).collect(),
        without: without.iter().map(name).collect(),
        gpus: matches!(config.gpu, GpuSelector::Cuda(_)),
    };
    let mut taken = OfiDevice::find(&wish).map_err(ProviderError::from)?;
    if !is_auto {
        let passed_over = Vec::new();
        return Ok(Domains { taken, passed_over });
    }
    let far = |device: &OfiDevice| {
        let nic: Option<PciAddress> = device.pci().and_then(|pci| pci.parse().ok());
        let both = near.zip(nic);
        let distance = both.and_then(|(near, nic)| near.distance(nic, machine));
        (distance.is_none(), distance)
    };
    // The sort keeps the order of the library among domains that are as near.
    taken.sort_by_key(far);
    let most = config.rails as usize;
    let others = taken.split_off(most.clamp(1, MOST_RAILS).min(taken.len()));
    let why = |device: &OfiDevice| format!("{}: WARPVERBS_ENGINE_RAILS is {most}", device.name());
    Ok(Domains {
        passed_over: others.iter().map(why).collect(),
        taken,
    })
}

/// Returns the name of a domain. A domain is one port, so that a name with another port names none.
fn name(name: &PortName) -> String {
    match name.port {
        None | Some(1) => name.device.clone(),
        Some(_) => name.to_string(),
    }
}
