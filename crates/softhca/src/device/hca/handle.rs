//! The owner's handle of an HCA.

use super::carrier::{CarrierError, open_carrier};
use crate::device::check::Finding;
use crate::device::config::HcaConfig;
use crate::device::counts::{Counters, ObjectCounts, PortCounters};
use crate::device::faults::TimedFault;
use crate::device::state::{HcaState, Slot};
use crate::device::world::World;
use crate::device::{Context, DeviceError};
use crate::partition::PkeyTable;
use crate::subnet::Ipv6Subnet;
use crate::sysfs::{Identity, MAX_PORTS, SysfsError};
use crate::wire::config::CarrierConfig;
use crate::wire::port::Port;
use crate::{engine, link, sysfs};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use thiserror::Error;

/// The reason why an HCA could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HcaError {
    /// The HCA cannot be shown to libibverbs.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// The engine thread could not be set up.
    #[error("cannot {what}: {source}")]
    Os {
        /// The call that failed.
        what: &'static str,
        /// The error of the call.
        source: io::Error,
    },
    /// There is no address for the HCA, or no carrier for its packets.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// On `InfiniBand` the address gives no LID.
    #[error(
        "{ip} has no LID: on InfiniBand the low 16 bits of the address are the LID, which is 0x1 to {last:#x}, not {lid:#x}",
        last = link::LAST_LID
    )]
    Lid {
        /// The address that the configuration asks for.
        ip: Ipv4Addr,
        /// The low 16 bits of the address.
        lid: u16,
    },
    /// An HCA cannot have this number of ports.
    #[error("the number of ports is {ports}; it must be 1 to {MAX_PORTS}")]
    Ports {
        /// The number that the configuration asks for.
        ports: u8,
    },
    /// The configuration asks for several ports, and for a carrier or a card that has one.
    #[error("the number of ports is {ports}; with {what} it must be 1")]
    OnePort {
        /// The number that the configuration asks for.
        ports: u8,
        /// The carrier or card that has one port.
        what: &'static str,
    },
    /// A fault concerns a port that the HCA lacks.
    #[error("a fault is for port {port}; it must be 1 to {last}, as the HCA has {last}")]
    FaultOfPort {
        /// The port that the fault names.
        port: u8,
        /// The number of the last port.
        last: u8,
    },
    /// The addresses of port 2 would be no IPv4 addresses.
    #[error("{ip} leaves no address for port 2")]
    Addresses {
        /// The address that the configuration asks for.
        ip: Ipv4Addr,
    },
    /// A port cannot have this LMC.
    #[error("LMC is {lmc}; it must be 0 to {most}", most = link::MAX_LMC)]
    Lmc {
        /// The LMC that the configuration asks for.
        lmc: u8,
    },
    /// The address is in the middle of a range of LIDs.
    #[error(
        "{ip} is not the first of {count} addresses: with LMC {lmc} its last {lmc} bits are {bits:#b}; they must be 0",
        count = 1u32 << lmc,
        bits = link::low_bits(*ip) & ((1u16 << lmc) - 1)
    )]
    LidRange {
        /// The address that the configuration asks for.
        ip: Ipv4Addr,
        /// The LMC that the configuration asks for.
        lmc: u8,
    },
    /// The configuration asks for several LIDs on Ethernet.
    #[error("LMC is {lmc}; on Ethernet, where a port has no LID, it must be 0")]
    LmcOnEthernet {
        /// The LMC that the configuration asks for.
        lmc: u8,
    },
    /// The configuration asks for several LIDs, and for a carrier with one address.
    #[error("LMC is {lmc}; it must be 0 with a carrier of Ethernet frames, which has one address")]
    LmcOnFrames {
        /// The LMC that the configuration asks for.
        lmc: u8,
    },
    /// The configuration asks for an IPv6 subnet on `InfiniBand`.
    #[error("{subnet} is for Ethernet: on InfiniBand an HCA has a LID and one GID")]
    Ipv6OnInfiniBand {
        /// The subnet that the configuration asks for.
        subnet: Ipv6Subnet,
    },
    /// The configuration asks on Ethernet for other partition keys than the default one.
    #[error("partition keys {pkeys} are for InfiniBand: a port of Ethernet has the one key 0xffff")]
    PkeysOnEthernet {
        /// The keys that the configuration asks for.
        pkeys: PkeyTable,
    },
    /// The process has made too many HCAs in its life.
    #[error("no more than {limit} HCAs can be made in one process")]
    TooMany {
        /// The number of HCAs that a process can make.
        limit: u32,
    },
}

/// An HCA of this process. Dropping it removes the device. Contexts that are open then keep their objects, and the device ends with the
/// last of them.
#[derive(Debug)]
pub struct Hca {
    world: Arc<World>,
    /// True if libibverbs sees the device.
    listed: bool,
    number: usize,
    identity: Identity,
}

impl Hca {
    /// Makes the next `mlx5_N` at a free address.
    ///
    /// # Errors
    ///
    /// See [`HcaError`].
    pub fn new() -> Result<Self, HcaError> {
        Self::with_config(HcaConfig::default())
    }

    /// Makes the next `mlx5_N`.
    ///
    /// # Errors
    ///
    /// See [`HcaError`].
    pub fn with_config(config: HcaConfig) -> Result<Self, HcaError> {
        engine::start().map_err(|source| HcaError::Os {
            what: "start the engine thread",
            source,
        })?;
        let mut hca = Self::in_world(World::of_process(), &config)?;
        // The device becomes visible last. If this fails, dropping the handle removes the device again.
        hca.listed = true;
        sysfs::add_device(&hca.identity)?;
        engine::kick();
        Ok(hca)
    }

    /// Makes the next `mlx5_N` of `world`. libibverbs does not see it.
    pub(super) fn in_world(world: &Arc<World>, config: &HcaConfig) -> Result<Self, HcaError> {
        check_lmc(config)?;
        check_ports(config)?;
        if let Some(subnet) = config.ipv6
            && config.link.is_infiniband()
        {
            return Err(HcaError::Ipv6OnInfiniBand { subnet });
        }
        if !config.link.is_infiniband() && config.pkeys != PkeyTable::default() {
            let pkeys = config.pkeys.clone();
            return Err(HcaError::PkeysOnEthernet { pkeys });
        }
        let mut wires = Vec::new();
        let mut ips = Vec::new();
        for port in 0..u32::from(config.ports) {
            let of_port = HcaConfig {
                ip: config
                    .ip
                    .map(|ip| port_address(ip, port, config))
                    .transpose()?,
                ..config.clone()
            };
            let (ip, carrier) = open_carrier(&of_port)?;
            wires.push(Port::with_lmc(ip, config.lmc, carrier));
            ips.push(ip);
        }
        let mut fabric = world.lock();
        let number = fabric.hcas.len();
        let index = u32::try_from(number)
            .ok()
            .filter(|index| *index < Identity::MAX_INDEX)
            .ok_or(HcaError::TooMany {
                limit: Identity::MAX_INDEX,
            })?;
        let mut identity = Identity::new(index, ips[0]);
        for ip in &ips[1..] {
            identity = identity.with_port(*ip);
        }
        let identity = identity
            .with_profile(config.profile)
            .with_subnet(config.ipv6)
            .with_interfaces(&config.carrier, config.ipv6)
            .with_link(config.link)
            .with_lmc(config.lmc)
            .with_pkeys(&config.pkeys);
        let state = HcaState::new(number, identity.clone(), config);
        let mut slot = Slot { state, wires };
        if let Some(spec) = &config.faults {
            slot.set_faults(spec, fabric.clock.now_ns());
        }
        fabric.hcas.push(Some(slot));
        drop(fabric);
        Ok(Self {
            world: Arc::clone(world),
            listed: false,
            number,
            identity,
        })
    }

    /// Opens the device, as [`Context::open`] does by name.
    ///
    /// # Errors
    ///
    /// The errors of [`Context::open`].
    pub fn open(&self) -> Result<Context, DeviceError> {
        Context::open_in(&self.world, self.name())
    }

    /// Returns the name of the device, `mlx5_N`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// Returns the GID by which peers name port 1. On Ethernet this is GID 3, `RoCE` v2 with the IP address, `::ffff:a.b.c.d`; on
    /// `InfiniBand` GID 0, `fe80::/64` with the port GUID.
    #[must_use]
    pub fn gid(&self) -> [u8; 16] {
        self.identity.first().gid()
    }

    /// Returns the LID of port 1; 0 on Ethernet.
    #[must_use]
    pub fn lid(&self) -> u16 {
        self.identity.first().lid()
    }

    /// Returns the counters of a port since the HCA was made; `None` if the HCA lacks the port. An HCA with [`HcaConfig::loopback`] sends
    /// no packets to HCAs of its process.
    #[must_use]
    pub fn port_counters(&self, port: u8) -> Option<PortCounters> {
        self.with(|slot| slot.port_counters(port))
    }

    /// Returns the ports by number. Each has the GID by which peers name it (see [`Self::gid`]), its LID and its IP address.
    #[must_use]
    pub fn ports(&self) -> Vec<([u8; 16], u16, Ipv4Addr)> {
        let ports = self.identity.ports().iter();
        ports
            .map(|port| (port.gid(), port.lid(), port.ip))
            .collect()
    }

    /// Returns the IP address of port 1; with an LMC the first of its addresses.
    #[must_use]
    pub fn ip(&self) -> Ipv4Addr {
        self.identity.first().ip
    }

    /// Returns how many objects of each kind exist now, over all contexts.
    #[must_use]
    pub fn live_objects(&self) -> ObjectCounts {
        self.with(|slot| slot.state.live())
    }

    /// Returns the counters of the HCA since it was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.world.lock().count(self.number);
        self.with(|slot| slot.counters())
    }

    /// Returns the findings of the checker, in words: each kind once per object.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        self.world.lock().count(self.number);
        self.with(|slot| slot.state.checker.texts().to_vec())
    }

    /// Returns the numbers of findings of the checker by kind, repetitions included.
    #[must_use]
    pub fn finding_counts(&self) -> BTreeMap<Finding, u64> {
        self.world.lock().count(self.number);
        self.with(|slot| slot.state.checker.counts().clone())
    }

    /// Calls `use_it` as [`Self::with`] does, also with the time.
    pub(in crate::device) fn with_time<T>(&self, use_it: impl FnOnce(&mut Slot, u64) -> T) -> T {
        let now_ns = self.world.lock().clock.now_ns();
        self.with(|slot| use_it(slot, now_ns))
    }

    /// Writes a change to the tables of the executor; see [`Fabric::write_through`](crate::device::state::Fabric::write_through).
    pub(in crate::device) fn write_through(&self) {
        // If the executor fails here, the next command reports it.
        let _ = self.world.lock().write_through(self.number);
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Slot) -> T) -> T {
        let mut fabric = self.world.lock();
        match fabric.slot(self.number) {
            Some(slot) => use_it(slot),
            // PANIC: the state stays in its place until this handle, its owner, is dropped.
            None => unreachable!("the HCA lives as long as its handle"),
        }
    }
}

/// Refuses a number of ports that does not fit the rest of the configuration.
fn check_ports(config: &HcaConfig) -> Result<(), HcaError> {
    let ports = config.ports;
    if !(1..=MAX_PORTS).contains(&ports) {
        return Err(HcaError::Ports { ports });
    }
    let timed = config.faults.iter().flat_map(|spec| &spec.timed);
    for (_, fault) in timed {
        if let TimedFault::PortDown(port) | TimedFault::PortUp(port) = *fault
            && !(1..=ports).contains(&port)
        {
            return Err(HcaError::FaultOfPort { port, last: ports });
        }
    }
    let one = |what| Err(HcaError::OnePort { ports, what });
    match &config.carrier {
        _ if ports == 1 => Ok(()),
        CarrierConfig::Frames { .. } | CarrierConfig::Packet { .. } => {
            one("a carrier of Ethernet frames")
        }
        _ if config.profile.facts().lag.is_some() => {
            one("a bond, which a program sees as one port,")
        }
        _ => Ok(()),
    }
}

/// Returns the first address of the port that comes after `before` other ports of an HCA at `first`.
fn port_address(first: Ipv4Addr, before: u32, config: &HcaConfig) -> Result<Ipv4Addr, HcaError> {
    let ip = u32::from(first)
        .checked_add(before << config.lmc)
        .map(Ipv4Addr::from)
        .ok_or(HcaError::Addresses { ip: first })?;
    if config.link.is_infiniband() && link::lid(ip).is_none() {
        let lid = link::low_bits(ip);
        return Err(HcaError::Lid { ip, lid });
    }
    Ok(ip)
}

/// Refuses an LMC that does not fit the rest of the configuration.
fn check_lmc(config: &HcaConfig) -> Result<(), HcaError> {
    let lmc = config.lmc;
    if lmc > link::MAX_LMC {
        return Err(HcaError::Lmc { lmc });
    }
    if lmc == 0 {
        return Ok(());
    }
    if !config.link.is_infiniband() {
        return Err(HcaError::LmcOnEthernet { lmc });
    }
    match (config.ip, &config.carrier) {
        (_, CarrierConfig::Frames { .. } | CarrierConfig::Packet { .. }) => {
            Err(HcaError::LmcOnFrames { lmc })
        }
        (Some(ip), _) if link::first_address(ip, lmc) != ip => Err(HcaError::LidRange { ip, lmc }),
        _ => Ok(()),
    }
}

impl Drop for Hca {
    fn drop(&mut self) {
        if self.listed {
            sysfs::remove_device(&self.identity);
        }
        let mut fabric = self.world.lock();
        if let Some(hca) = fabric.hca(self.number) {
            hca.orphan = true;
            let open = hca.contexts.len();
            if open > 0 {
                eprintln!(
                    "softhca: {} is removed while {open} contexts are open; it goes with the last",
                    self.identity.name
                );
            }
        }
        fabric.sweep(self.number);
    }
}
