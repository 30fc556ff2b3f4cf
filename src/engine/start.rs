//! An engine on the devices that its configuration names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::config::{CpuList, EngineConfig, EngineKey};
use crate::engine::config::key;
use crate::engine::error::HostError;
use crate::engine::host::Engine;
use crate::engine::ledger::tally::Statistics;
use crate::engine::route::rails::RailStatus;
use crate::engine::worker::cpus;
use crate::verbs::Context;

impl Engine {
    /// An engine on the devices that `config` names, which it opens.
    ///
    /// # Errors
    /// As [`Engine::open_devices`] and [`Engine::on`].
    pub fn start(config: EngineConfig) -> Result<Self, HostError> {
        let contexts = Self::open_devices(&config)?;
        Self::on(&contexts, config)
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
