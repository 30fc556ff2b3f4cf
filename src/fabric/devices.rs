//! Which ports `auto` opens: the ports that the topology puts first. Also what is said of the others. Teams and engines choose by this.

use std::sync::Arc;

use crate::config::{DeviceChoice, GidChoice, GpuSelector, PortName};
use crate::topology::{
    Candidate, Machine, PassedOver, PciAddress, RdmaDevice, RdmaPort, Reason, Wish,
};
use crate::verbs::{Context, DeviceInfo, DeviceSelector, PlainContext, VerbsError};

/// The ports from which `auto` chooses, and the settings by which it does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports<'a> {
    pub(crate) machine: &'a Machine,
    /// The devices that libibverbs lists.
    pub(crate) list: &'a [DeviceInfo],
    /// The devices of the configuration, which leaves some of them out.
    pub(crate) devices: &'a DeviceChoice,
    pub(crate) gid: &'a GidChoice,
}

/// A kind of open devices.
pub(crate) trait Openable: Sized {
    /// Opens a port of a device.
    ///
    /// # Errors
    /// The device or the port cannot be used.
    fn open_named(name: &PortName, gid: &GidChoice) -> Result<Arc<Self>, VerbsError>;

    /// Returns whether devices of this kind may be opened by libibverbs' driver of the device.
    fn suits(info: &DeviceInfo) -> bool;

    /// Returns what a device of this kind must be, in words.
    fn wanted() -> String;
}

impl Openable for Context {
    fn open_named(name: &PortName, gid: &GidChoice) -> Result<Arc<Self>, VerbsError> {
        let selector = DeviceSelector::Name(name.device.clone());
        Self::open_with_gid(&selector, name.port, gid)
    }

    fn suits(info: &DeviceInfo) -> bool {
        info.mlx5
    }

    fn wanted() -> String {
        DeviceSelector::Auto.to_string()
    }
}

impl Openable for PlainContext {
    fn open_named(name: &PortName, gid: &GidChoice) -> Result<Arc<Self>, VerbsError> {
        Self::open(&name.device, name.port, gid)
    }

    fn suits(_: &DeviceInfo) -> bool {
        true
    }

    fn wanted() -> String {
        "with QPs of type RC and an active port".to_owned()
    }
}

/// What `auto` has opened, and the other ports of the machine.
#[derive(Debug)]
pub(crate) struct Opened<C = Context> {
    /// The ports that are open, at least one.
    pub(crate) contexts: Vec<Arc<C>>,
    /// The ports that cannot be used, each with the reason.
    pub(crate) passed_over: Vec<String>,
    /// The ports that could be used, and come after the open ones.
    pub(crate) spare: Vec<Spare>,
}

/// A port that could be used and is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spare {
    pub(crate) port: Candidate,
    pub(crate) behind: Behind,
}

/// Why a port comes after the open ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// The port is as near and as fast, and no more ports are wanted.
    Name,
    /// The port is farther.
    Distance,
    /// The port is as near, and slower.
    Rate,
}

impl Behind {
    fn of(port: &Candidate, best: &Candidate) -> Self {
        match port.is_as_good_as(best) {
            true => Self::Name,
            false if port.distance == best.distance => Self::Rate,
            false => Self::Distance,
        }
    }
}

impl Ports<'_> {
    /// Opens the best port for `wish`, and further ports that are as near and as fast, at most `most` in all. A port that does not open is
    /// passed over.
    ///
    /// # Errors
    /// [`VerbsError::NoDevice`] with every port and its reason, if no port opens.
    pub(crate) fn open<C: Openable>(
        &self,
        wish: &Wish<'_>,
        most: usize,
    ) -> Result<Opened<C>, VerbsError> {
        let choice = wish.choose(self.machine, usable::<C>(self.list, self.devices));
        let passed_over = choice.passed_over.iter().map(PassedOver::to_string);
        let mut opened = Opened {
            contexts: Vec::new(),
            passed_over: passed_over.collect(),
            spare: Vec::new(),
        };
        let mut best = None;
        for port in choice.candidates {
            let behind = Behind::of(&port, best.as_ref().unwrap_or(&port));
            let is_wanted = behind == Behind::Name && opened.contexts.len() < most;
            let name = PortName {
                device: port.device.clone(),
                port: Some(port.port),
            };
            match is_wanted.then(|| opened.try_port(&name, self.gid)) {
                None => opened.spare.push(Spare { port, behind }),
                Some(true) if best.is_none() => best = Some(port),
                Some(_) => {}
            }
        }
        // A device that sysfs does not show is tried last: libibverbs may know it by other means.
        for device in self.unseen::<C>() {
            if opened.contexts.is_empty() {
                opened.try_port(&device, self.gid);
            }
        }
        if opened.contexts.is_empty() {
            Err(VerbsError::NoDevice {
                wanted: wanted::<C>(self.devices),
                found: opened.passed_over,
            })
        } else {
            Ok(opened)
        }
    }

    fn unseen<C: Openable>(&self) -> Vec<PortName> {
        let unseen = self.list.iter().filter(|info| {
            let is_seen = self.machine.rdma_device(&info.name).is_some();
            !is_seen && C::suits(info) && !self.devices.leaves_out(&info.name, 1)
        });
        let name = |info: &DeviceInfo| PortName {
            device: info.name.clone(),
            port: None,
        };
        unseen.map(name).collect()
    }
}

impl<C: Openable> Opened<C> {
    /// Tries to open a port. Returns whether it opens.
    fn try_port(&mut self, name: &PortName, gid: &GidChoice) -> bool {
        match C::open_named(name, gid) {
            Ok(context) => self.contexts.push(context),
            Err(error) => {
                self.passed_over.push(format!("{name}: {error}"));
                return false;
            }
        }
        true
    }
}

fn wanted<C: Openable>(devices: &DeviceChoice) -> String {
    match devices {
        DeviceChoice::Auto { without } if without.is_empty() => C::wanted(),
        others => format!("{} of {others}", C::wanted()),
    }
}

/// Opens the devices with these names.
pub(crate) fn open_named(
    names: &[PortName],
    gid: &GidChoice,
) -> Result<Vec<Arc<Context>>, VerbsError> {
    let names = names.iter();
    names.map(|name| Context::open_named(name, gid)).collect()
}

/// Returns a function that says of a port in sysfs why `auto` must not use it by devices of this kind, if so.
pub(crate) fn usable<C: Openable>(
    list: &[DeviceInfo],
    devices: &DeviceChoice,
) -> impl Fn(&RdmaDevice, &RdmaPort) -> Result<(), Reason> {
    move |device, port| {
        let listed = list.iter().find(|info| info.name == device.name);
        match listed {
            None => Err(Reason::NotListed),
            Some(info) if !C::suits(info) => Err(Reason::Provider),
            Some(_) if devices.leaves_out(&device.name, port.number) => Err(Reason::LeftOut),
            Some(_) => Ok(()),
        }
    }
}

/// Returns the GPUs of the processes of this machine, as far as this process can tell, and its own place among them.
pub(crate) fn gpus_of_ranks(
    selector: GpuSelector,
    local_rank: u32,
    visible: &[PciAddress],
    machine: &Machine,
) -> (Vec<Option<PciAddress>>, usize) {
    let GpuSelector::Cuda(ordinal) = selector else {
        return (Vec::new(), local_rank as usize);
    };
    let Some(&own) = visible.get(ordinal as usize) else {
        return (Vec::new(), local_rank as usize);
    };
    if visible.len() > 1 {
        return (
            visible.iter().copied().map(Some).collect(),
            ordinal as usize,
        );
    }
    // This process sees one GPU only. Each of the other processes may have another GPU, or the same.
    let gpus: Vec<_> = machine.gpus().map(|gpu| gpu.address).collect();
    match gpus.iter().position(|gpu| *gpu == own) {
        Some(place) if gpus.len() > 1 => (gpus.into_iter().map(Some).collect(), place),
        _ => (
            vec![Some(own); local_rank as usize + 1],
            local_rank as usize,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gpus_of_the_other_ranks_are_those_that_they_would_take() {
        let nothing = Machine::read(std::path::Path::new("/nowhere"));
        let gpus: Vec<PciAddress> = ["0000:1b:00.0", "0000:43:00.0"]
            .map(|it| it.parse().unwrap())
            .into();
        let of = |selector, local, visible: &[PciAddress]| {
            gpus_of_ranks(selector, local, visible, &nothing)
        };
        let both: Vec<_> = gpus.iter().copied().map(Some).collect();
        assert_eq!(of(GpuSelector::Cuda(1), 0, &gpus), (both, 1));
        assert_eq!(of(GpuSelector::Simt, 3, &[]), (Vec::new(), 3));
        assert_eq!(of(GpuSelector::Cuda(7), 3, &gpus), (Vec::new(), 3));
        assert_eq!(
            of(GpuSelector::Cuda(0), 2, &gpus[..1]),
            (vec![Some(gpus[0]); 3], 2)
        );
    }
}
