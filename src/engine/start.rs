//! An engine on the devices that its configuration names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::config::{check, key};
use super::cpus;
use super::error::{EngineError, HostError};
use super::host::Engine;
use super::rails::{MOST_RAILS, RailStatus};
use super::tally::Statistics;
use crate::config::{CpuList, DeviceChoice, EngineConfig, EngineKey};
use crate::verbs::{Context, DeviceSelector, VerbsError, device_list};

impl Engine {
    /// An engine on the devices that `config` names, which it opens.
    ///
    /// # Errors
    /// [`EngineError::Devices`]: the configuration names too many devices, or one that does not exist or cannot be used; as
    /// [`Engine::on`].
    pub fn start(config: EngineConfig) -> Result<Self, HostError> {
        let contexts = Self::open_devices(&config)?;
        Self::on(&contexts, config)
    }

    /// Opens the devices that an engine with this configuration would be on, and makes nothing on them.
    ///
    /// # Errors
    /// [`HostError::Refused`]: a value of `config` outside its limits, too many devices, or a device that does not exist or cannot
    /// be used.
    pub fn open_devices(config: &EngineConfig) -> Result<Vec<Arc<Context>>, HostError> {
        check(config)?;
        open(config)
    }

    /// The CPUs on which the workers of each rail of an engine with this configuration would run, on these devices. None: on all that
    /// the process may use.
    ///
    /// # Errors
    /// [`HostError::Refused`]: a CPU that the process may not use.
    pub fn worker_cpus(
        contexts: &[Arc<Context>],
        config: &EngineConfig,
    ) -> Result<Vec<Option<CpuList>>, HostError> {
        let of_rail = |context: &Arc<Context>| {
            cpus::choose(&config.cpus, context.info().local_cpus().as_deref())
        };
        contexts.iter().map(of_rail).collect()
    }

    /// The key that an engine with this configuration would have, perhaps from a file.
    ///
    /// # Errors
    /// [`HostError::KeyFile`].
    pub fn read_key(config: &EngineConfig) -> Result<Option<EngineKey>, HostError> {
        key(config)
    }

    /// Whether it takes nothing new: [`Engine::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.is_closing.load(Ordering::Acquire)
    }

    /// The RDMA devices that the engine is on, in the order of its rails.
    #[must_use]
    pub fn devices(&self) -> Vec<&str> {
        let rails = self.inner.rails.all().iter();
        rails.map(|rail| &*rail.context().info().name).collect()
    }

    /// What each of its rails has done.
    #[must_use]
    pub fn rails(&self) -> Vec<RailStatus> {
        let rails = &self.inner.rails;
        let all = rails.all().iter().enumerate();
        let transfers = &self.inner.transfers;
        let status = all.map(|(nth, rail)| {
            let rest = rails.rest(nth, |rest, now| (rest.state(now), rest.begun()));
            let (state, rests) = rest.unwrap_or_default();
            let context = rail.context();
            RailStatus {
                device: context.info().name.clone(),
                port: context.port().number,
                state,
                rests,
                slices: transfers.slices(rails.workers_of(nth), false),
            }
        });
        status.collect()
    }

    /// What the engine has done since its start, in one consistent look. Never waits.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.inner.transfers.statistics()
    }
}

fn open(config: &EngineConfig) -> Result<Vec<Arc<Context>>, HostError> {
    match &config.device {
        DeviceChoice::Named(names) if (1..=MOST_RAILS).contains(&names.len()) => {
            let contexts = names.iter().map(|name| {
                let selector = DeviceSelector::Name(name.device.clone());
                Context::open_with_gid(&selector, name.port, &config.gid)
            });
            Ok(contexts.collect::<Result<_, _>>()?)
        }
        DeviceChoice::Named(names) => Err(EngineError::Devices { count: names.len() }.into()),
        DeviceChoice::Auto { without } if without.is_empty() => {
            let selector = DeviceSelector::Auto;
            Ok(vec![Context::open_with_gid(&selector, None, &config.gid)?])
        }
        DeviceChoice::Auto { .. } => Ok(vec![first_but(config)?]),
    }
}

/// The first port that does and that is not left out.
fn first_but(config: &EngineConfig) -> Result<Arc<Context>, VerbsError> {
    let mut found = Vec::new();
    for device in device_list()? {
        let name = &device.name;
        let selector = DeviceSelector::Name(name.clone());
        for port in device.ports() {
            if config.device.leaves_out(name, port) {
                found.push(format!("{name}:{port}: is left out"));
                continue;
            }
            match Context::open_with_gid(&selector, Some(port), &config.gid) {
                Ok(context) => return Ok(context),
                Err(error) => found.push(format!("{name}:{port}: {error}")),
            }
        }
    }
    let wanted = DeviceSelector::Auto.to_string();
    Err(VerbsError::NoDevice { wanted, found })
}
