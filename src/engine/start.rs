//! An engine on the device that its configuration names.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::config::check;
use super::error::{EngineError, HostError};
use super::host::Engine;
use crate::config::{DeviceChoice, EngineConfig};
use crate::verbs::{Context, DeviceSelector, VerbsError, device_list};

impl Engine {
    /// An engine on the device that `config` names, which it opens.
    ///
    /// # Errors
    /// [`EngineError::Devices`]: several are named; a device that is not there or does not do; as [`Engine::new`].
    pub fn start(config: EngineConfig) -> Result<Self, HostError> {
        let context = Self::open_device(&config)?;
        Self::new(&context, config)
    }

    /// Opens the device that an engine with this configuration would be on, and makes nothing on it.
    ///
    /// # Errors
    /// [`HostError::Refused`]: a value of `config` outside its limits, or several devices; a device that is not there or does not do.
    pub fn open_device(config: &EngineConfig) -> Result<Arc<Context>, HostError> {
        check(config)?;
        open(config)
    }

    /// Whether it takes nothing new: [`Engine::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.is_closing.load(Ordering::Acquire)
    }

    /// The RDMA device that the engine is on.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.inner.rail.context().info().name
    }
}

fn open(config: &EngineConfig) -> Result<Arc<Context>, HostError> {
    match &config.device {
        DeviceChoice::Named(names) => match names.as_slice() {
            [name] => {
                let selector = DeviceSelector::Name(name.device.clone());
                Ok(Context::open_with_gid(&selector, name.port, &config.gid)?)
            }
            names => Err(EngineError::Devices { count: names.len() }.into()),
        },
        DeviceChoice::Auto { without } if without.is_empty() => {
            let selector = DeviceSelector::Auto;
            Ok(Context::open_with_gid(&selector, None, &config.gid)?)
        }
        DeviceChoice::Auto { .. } => Ok(first_but(config)?),
    }
}

/// The first device that does and that is not left out.
fn first_but(config: &EngineConfig) -> Result<Arc<Context>, VerbsError> {
    let mut found = Vec::new();
    for device in device_list()? {
        let name = &device.name;
        let selector = DeviceSelector::Name(name.clone());
        match Context::open_with_gid(&selector, None, &config.gid) {
            Ok(context) if config.device.leaves_out(name, context.port().number) => {
                found.push(format!("{name}: is left out"));
            }
            Ok(context) => return Ok(context),
            Err(error) => found.push(format!("{name}: {error}")),
        }
    }
    let wanted = DeviceSelector::Auto.to_string();
    Err(VerbsError::NoDevice { wanted, found })
}
