//! Functions that look at the devices of this process by their names.

use crate::device::counts::{Counters, PortCounters};
use crate::device::state::Slot;
use crate::device::world::World;
use crate::sysfs::Identity;

/// Returns the names of all devices, in order.
#[must_use]
pub fn device_names() -> Vec<String> {
    let fabric = World::of_process().lock();
    fabric
        .all()
        .filter(|slot| !slot.state.orphan)
        .map(|slot| slot.state.identity.name.clone())
        .collect()
}

/// Returns name and addresses of a device.
pub(crate) fn identity(name: &str) -> Option<Identity> {
    let fabric = World::of_process().lock();
    fabric.by_name(name).map(|slot| slot.state.identity.clone())
}

/// Returns the counters of a port of a device.
pub(crate) fn port_counters(name: &str, port: u8) -> Option<PortCounters> {
    let fabric = World::of_process().lock();
    fabric.by_name(name)?.port_counters(port)
}

/// Returns the counters of a device.
#[must_use]
pub fn counters(name: &str) -> Option<Counters> {
    let mut fabric = World::of_process().lock();
    let number = fabric.by_name(name)?.state.number;
    fabric.count(number);
    fabric.by_name(name).map(Slot::counters)
}
