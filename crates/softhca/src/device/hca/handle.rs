//! The owner's handle of an HCA.

use super::carrier::{CarrierError, open_carrier};
use crate::device::checker::Finding;
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

/// Why no HCA was made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HcaError {
    /// It cannot be shown to libibverbs.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// The engine thread could not be set up.
    #[error("cannot {what}: {source}")]
    Os {
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It has no address, or nothing can carry its packets.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// On `InfiniBand` an address without a LID.
    #[error(
        "{ip} has no LID: on InfiniBand the low 16 bits of the address are the LID, which is 0x1 to {last:#x}, not {lid:#x}",
        last = link::LAST_LID
    )]
    Lid {
        /// The address that was asked for.
        ip: Ipv4Addr,
        /// Its low 16 bits.
        lid: u16,
    },
    /// No such number of ports.
    #[error("the number of ports is {ports}; it must be 1 to {MAX_PORTS}")]
    Ports {
        /// The number that was asked for.
        ports: u8,
    },
    /// Several ports, and a carrier or a card that has one.
    #[error("the number of ports is {ports}; with {what} it must be 1")]
    OnePort {
        /// The number that was asked for.
        ports: u8,
        /// What has one port.
        what: &'static str,
    },
    /// A fault of a port that the HCA lacks.
    #[error("a fault is for port {port}; it must be 1 to {last}, as the HCA has {last}")]
    FaultOfPort {
        /// The port that was named.
        port: u8,
        /// The last one.
        last: u8,
    },
    /// The addresses of port 2 are no addresses of IPv4.
    #[error("{ip} leaves no address for port 2")]
    Addresses {
        /// The address that was asked for.
        ip: Ipv4Addr,
    },
    /// No such LMC.
    #[error("LMC is {lmc}; it must be 0 to {most}", most = link::MAX_LMC)]
    Lmc {
        /// The LMC that was asked for.
        lmc: u8,
    },
    /// An address in the middle of a range of LIDs.
    #[error(
        "{ip} is not the first of {count} addresses: with LMC {lmc} its last {lmc} bits are {bits:#b}; they must be 0",
        count = 1u32 << lmc,
        bits = link::low_bits(*ip) & ((1u16 << lmc) - 1)
    )]
    LidRange {
        /// The address that was asked for.
        ip: Ipv4Addr,
        /// The LMC.
        lmc: u8,
    },
    /// Several LIDs on Ethernet.
    #[error("LMC is {lmc}; on Ethernet, where a port has no LID, it must be 0")]
    LmcOnEthernet {
        /// The LMC that was asked for.
        lmc: u8,
    },
    /// Several LIDs, and a carrier with one address.
    #[error("LMC is {lmc}; it must be 0 with a carrier of Ethernet frames, which has one address")]
    LmcOnFrames {
        /// The LMC that was asked for.
        lmc: u8,
    },
    /// On `InfiniBand` an IPv6 subnet.
    #[error("{subnet} is for Ethernet: on InfiniBand an HCA has a LID and one GID")]
    Ipv6OnInfiniBand {
        /// The subnet that was asked for.
        subnet: Ipv6Subnet,
    },
    /// On Ethernet other partition keys than the default one.
    #[error("partition keys {pkeys} are for InfiniBand: a port of Ethernet has the one key 0xffff")]
    PkeysOnEthernet {
        /// The keys that were asked for.
        pkeys: PkeyTable,
    },
    /// Too many in this process's life.
    #[error("no more than {limit} HCAs can be made in one process")]
    TooMany {
        /// How many can.
        limit: u32,
    },
}

/// An HCA of this process. Dropping it removes the device; contexts that are open then keep what they have, and the
/// device goes with the last of them.
#[derive(Debug)]
pub struct Hca {
    world: Arc<World>,
    /// libibverbs sees it.
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
        // Visible last. If this fails, dropping the handle takes the device away again.
        hca.listed = true;
        sysfs::add_device(&hca.identity)?;
        engine::kick();
        Ok(hca)
    }

    /// Makes the next `mlx5_N` of `world`, which libibverbs does not see.
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

    /// Opens it, as [`Context::open`] does by name.
    ///
    /// # Errors
    ///
    /// As [`Context::open`].
    pub fn open(&self) -> Result<Context, DeviceError> {
        Context::open_in(&self.world, self.name())
    }

    /// `mlx5_N`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// The GID of port 1 that peers name: on Ethernet GID 3, `RoCE` v2 with the IP address, `::ffff:a.b.c.d`; on `InfiniBand` GID 0,
    /// `fe80::/64` with the port GUID.
    #[must_use]
    pub fn gid(&self) -> [u8; 16] {
        self.identity.first().gid()
    }

    /// Returns the LID of port 1; 0 on Ethernet.
    #[must_use]
    pub fn lid(&self) -> u16 {
        self.identity.first().lid()
    }

    /// Returns what a port has counted since the HCA was made; `None` if the HCA lacks it. An HCA with [`HcaConfig::loopback`] sends no
    /// packet to HCAs of its process.
    #[must_use]
    pub fn port_counters(&self, port: u8) -> Option<PortCounters> {
        self.with(|slot| slot.port_counters(port))
    }

    /// Its ports by number: the GID that peers name, see [`Self::gid`], LID and IP address.
    #[must_use]
    pub fn ports(&self) -> Vec<([u8; 16], u16, Ipv4Addr)> {
        let ports = self.identity.ports().iter();
        ports
            .map(|port| (port.gid(), port.lid(), port.ip))
            .collect()
    }

    /// Returns the IP address of port 1; with an LMC the first one.
    #[must_use]
    pub fn ip(&self) -> Ipv4Addr {
        self.identity.first().ip
    }

    /// Returns how many objects of each kind exist now, over all contexts.
    #[must_use]
    pub fn live_objects(&self) -> ObjectCounts {
        self.with(|slot| slot.state.live())
    }

    /// Returns what the HCA has counted since it was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.world.lock().count(self.number);
        self.with(|slot| slot.counters())
    }

    /// Returns what the checker objected to, in words; each kind once per object.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        self.world.lock().count(self.number);
        self.with(|slot| slot.state.checker.texts().to_vec())
    }

    /// Returns what the checker objected to, by kind, repetitions included.
    #[must_use]
    pub fn finding_counts(&self) -> BTreeMap<Finding, u64> {
        self.world.lock().count(self.number);
        self.with(|slot| slot.state.checker.counts().clone())
    }

    /// As [`Self::with`], with the time.
    pub(in crate::device) fn with_time<T>(&self, use_it: impl FnOnce(&mut Slot, u64) -> T) -> T {
        let now_ns = self.world.lock().clock.now_ns();
        self.with(|slot| use_it(slot, now_ns))
    }

    /// Lets the executor know of a change; see [`Fabric::write_through`](crate::device::state::Fabric::write_through).
    pub(in crate::device) fn write_through(&self) {
        // The next command reports an executor that fails.
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

/// Refuses a number of ports that does not fit the rest.
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

/// Returns the first address of the port after so many others, of an HCA at `first`.
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

/// Refuses an LMC that does not fit the rest.
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
