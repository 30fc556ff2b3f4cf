//! Which GPU and which HCAs a rank has, found and opened as its configuration says.

use std::sync::Arc;

use rendezvous::Store;

use super::config::TeamConfig;
use super::error::TeamError;
use super::limits::MAX_RANKS;
use super::meeting::exchange::Exchange;
use super::meeting::link_layer::settle_link_layer;
use crate::config::{Config, DeviceChoice, GpuSelector};
use crate::error::Error;
use crate::fabric::{Opened, Ports, gpus_of_ranks, open_named, usable};
use crate::gpu::{self, Gpu, GpuError};
use crate::topology::{LayerOffer, LinkLayer, Machine, PciAddress, Wish, layers_of};
use crate::verbs::{Context, device_list};

/// The name that errors give to the number of a rank on its machine.
const OF_MACHINE: &str = "number of this rank on its machine";

/// The GPU and the HCAs of one rank, open.
#[derive(Debug)]
#[non_exhaustive]
pub struct RankDevices {
    /// The device that kernels of the rank run on.
    pub gpu: Arc<dyn Gpu>,
    /// The HCAs of the rank, one per rail.
    pub contexts: Vec<Arc<Context>>,
    /// RDMA devices that `auto` has looked at and not taken, each with the reason. Empty if the configuration names devices.
    pub passed_over: Vec<String>,
}

/// The devices that a program has opened itself.
#[derive(Clone, Debug, Default)]
pub(in crate::team) struct Given {
    pub(in crate::team) contexts: Option<Vec<Arc<Context>>>,
    pub(in crate::team) gpu: Option<Arc<dyn Gpu>>,
}

impl RankDevices {
    /// Finds and opens the devices that `config` names. `auto` looks at this machine only.
    ///
    /// # Errors
    /// A named device does not exist or is not suitable. If no device is suitable, the error lists every RDMA device with its
    /// reason. The machine has no GPU for the local rank.
    pub fn open(config: &Config) -> Result<Self, Error> {
        Ok(Self::open_with(config, Given::default(), |_| Ok(None))?)
    }

    /// As [`RankDevices::open`], for a rank of `team`, which meets in `store`. If this machine has ports of several link layers,
    /// `auto` takes a layer that all ranks have: this rank then waits for the other founders to tell theirs. A rank that joins
    /// later takes the layer of the team.
    ///
    /// # Errors
    /// As [`RankDevices::open`]. [`TeamError::Mismatch`] if two ranks have no link layer in common. Other founders do not come.
    /// Errors of the store.
    pub fn open_in(
        config: &Config,
        team: &TeamConfig,
        store: &Arc<dyn Store>,
    ) -> Result<Self, Error> {
        Ok(Self::open_rest(config, team, Given::default(), store)?)
    }

    /// As [`RankDevices::open_in`], with the devices that are `given`: opens the others.
    pub(in crate::team) fn open_rest(
        config: &Config,
        team: &TeamConfig,
        given: Given,
        store: &Arc<dyn Store>,
    ) -> Result<Self, TeamError> {
        Self::open_with(config, given, |offers| {
            team.check(1)?;
            let exchange = Exchange::new(Arc::clone(store), team);
            settle_link_layer(&exchange, offers, team.ranks)
        })
    }

    /// Finds and opens the devices that are not `given`. `settle` gets the link layers that this machine offers, and may choose one.
    fn open_with(
        config: &Config,
        given: Given,
        settle: impl FnOnce(&[LayerOffer]) -> Result<Option<LinkLayer>, TeamError>,
    ) -> Result<Self, TeamError> {
        let (contexts, gpu) = match given {
            Given {
                contexts: Some(contexts),
                gpu: Some(gpu),
            } => return Ok(Self::all_given(contexts, gpu)),
            Given { contexts, gpu } => (contexts, gpu),
        };
        let wanted = match &gpu {
            Some(gpu) => selector_of(gpu.as_ref()),
            None => config.gpu,
        };
        let visible = match wanted {
            GpuSelector::Auto | GpuSelector::Cuda(_) => {
                gpu::visible().map_err(TeamError::device)?
            }
            GpuSelector::Simt | GpuSelector::SimtDmabuf => Vec::new(),
        };
        let local = number_on_machine(config)?;
        let selector = match wanted {
            GpuSelector::Auto if !visible.is_empty() => {
                GpuSelector::Cuda(ordinal_of(local, visible.len())?)
            }
            other => other,
        };
        let (contexts, passed_over) = match (contexts, &config.device) {
            (Some(contexts), _) => (contexts, Vec::new()),
            (None, DeviceChoice::Named(names)) => {
                let named = open_named(names, &config.gid).map_err(TeamError::device)?;
                (named, Vec::new())
            }
            (None, DeviceChoice::Auto { .. }) => {
                let best = best_port(config, selector, local, &visible, settle)?;
                (best.contexts, best.passed_over)
            }
        };
        let gpu = match gpu {
            Some(gpu) => gpu,
            None => open_gpu(selector, &contexts).map_err(TeamError::device)?,
        };
        Ok(Self {
            gpu,
            contexts,
            passed_over,
        })
    }

    fn all_given(contexts: Vec<Arc<Context>>, gpu: Arc<dyn Gpu>) -> Self {
        Self {
            gpu,
            contexts,
            passed_over: Vec::new(),
        }
    }
}

/// Returns the selector of a device that is open.
fn selector_of(gpu: &dyn Gpu) -> GpuSelector {
    match gpu.slot() {
        Some(slot) => GpuSelector::Cuda(slot.ordinal),
        None => GpuSelector::Simt,
    }
}

/// Opens the best port of this machine for a rank with this GPU and this number on the machine. `visible` are the GPUs that this
/// process sees.
fn best_port(
    config: &Config,
    gpu: GpuSelector,
    local: u32,
    visible: &[PciAddress],
    settle: impl FnOnce(&[LayerOffer]) -> Result<Option<LinkLayer>, TeamError>,
) -> Result<Opened, TeamError> {
    // The list is read before sysfs: software HCAs come into being when a process lists devices.
    let list = device_list().map_err(TeamError::device)?;
    let machine = Machine::of_this_process();
    let (gpus, place) = gpus_of_ranks(gpu, local, visible, &machine);
    let offers = layers_of(&machine, usable::<Context>(&list, &config.device));
    let wish = Wish {
        gpus: &gpus,
        place,
        link_layer: settle(&offers)?,
        ..Wish::default()
    };
    let ports = Ports {
        machine: &machine,
        list: &list,
        devices: &config.device,
        gid: &config.gid,
    };
    ports.open(&wish, 1).map_err(TeamError::device)
}

/// Opens a device for use with these HCAs. `selector` is `Auto` only if this process sees no GPU.
fn open_gpu(selector: GpuSelector, contexts: &[Arc<Context>]) -> Result<Arc<dyn Gpu>, GpuError> {
    let is_soft = contexts.iter().any(|context| context.info().is_soft());
    let real = contexts.iter().find(|context| !context.info().is_soft());
    if let Some(real) = real.filter(|_| selector == GpuSelector::Auto) {
        tracing::warn!("{}", on_the_cpu(&real.info().name));
    }
    gpu::open_for(selector, is_soft)
}

/// Returns the warning for a program whose kernels run on the CPU beside a real HCA. The program may have meant a GPU, and would
/// notice its lack by the speed only.
fn on_the_cpu(hca: &str) -> String {
    format!(
        "this process sees no GPU (WARPVERBS_GPU=auto), so its kernels run on the CPU beside the HCA {hca}: look at CUDA_VISIBLE_DEVICES and \
         the driver (wv doctor), or say WARPVERBS_GPU=simt if that is meant"
    )
}

/// Returns the number of the rank on its machine, which a program sets. Refuses a number that no team can have.
fn number_on_machine(config: &Config) -> Result<u32, TeamError> {
    let local = config.local_rank.unwrap_or(0);
    if local < MAX_RANKS {
        return Ok(local);
    }
    let limit = format!("below {MAX_RANKS}");
    Err(TeamError::limit(OF_MACHINE, local, limit))
}

/// Returns the CUDA device of the rank with this number on its machine. If the process sees only one device, as with some
/// launchers, the rank gets that device.
fn ordinal_of(local_rank: u32, visible: usize) -> Result<u32, TeamError> {
    match local_rank {
        _ if visible == 1 => Ok(0),
        local if (local as usize) < visible => Ok(local),
        local => {
            let limit = format!(
                "below the number of GPUs that this process sees, {visible}: start fewer ranks on this machine, or name the \
                 GPU of each with WARPVERBS_GPU"
            );
            Err(TeamError::limit(OF_MACHINE, local, limit))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_the_gpu_of_its_number_or_the_only_one() {
        for (local, visible, ordinal) in [(0, 8, 0), (7, 8, 7), (0, 1, 0), (7, 1, 0)] {
            assert_eq!(ordinal_of(local, visible).unwrap(), ordinal);
        }
        for (local, visible) in [(8, 8), (2, 2), (u32::MAX, 8)] {
            let error = ordinal_of(local, visible).unwrap_err().to_string();
            assert!(
                error.contains(&format!("is {local}; it must be below")),
                "{error}"
            );
            assert!(error.contains("WARPVERBS_GPU"), "{error}");
        }
    }

    #[test]
    fn a_number_on_the_machine_is_that_of_a_team() {
        let of = |local| number_on_machine(&Config::default().with_local_rank(local));
        assert_eq!(
            (of(None).unwrap(), of(Some(MAX_RANKS - 1)).unwrap()),
            (0, MAX_RANKS - 1)
        );
        for local in [MAX_RANKS, u32::MAX] {
            let error = of(Some(local)).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("is {local}; it must be below {MAX_RANKS}")),
                "{error}"
            );
        }
    }
}
