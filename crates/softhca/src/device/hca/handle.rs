//! The owner's handle of an HCA.

use super::carrier::{CarrierError, open_carrier};
use super::counters::{Counters, ObjectCounts, PortCounters};
use super::world::World;
use crate::device::checker::{CheckConfig, Finding};
use crate::device::external::Execution;
use crate::device::faults::{FaultSpec, TimedFault};
use crate::device::memory::pending_writes::{Adversary, DataOrder};
use crate::device::state::{HcaState, Slot};
use crate::device::{Context, DeviceError};
use crate::engine;
use crate::link::{self, Link};
use crate::partition::PkeyTable;
use crate::profile::Profile;
use crate::sysfs::{self, Identity, MAX_PORTS, SysfsError};
use crate::wire::config::CarrierConfig;
use crate::wire::port::Port;
use crate::wire::subnet::Ipv6Subnet;
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// How an HCA is made.
#[derive(Clone, Debug)]
pub struct HcaConfig {
    /// Its IPv4 address; `None` takes a free one of 127/8. Port 2 has the address behind those of port 1, or another free one.
    pub ip: Option<Ipv4Addr>,
    /// How many ports it has, 1 or 2, each with an address of its own and a wire. Carriers of frames and bonds have one.
    pub ports: u8,
    /// The subnet from which it has an IPv6 address in addition: a route of this machine with the UDP carrier. For Ethernet.
    pub ipv6: Option<Ipv6Subnet>,
    /// A WQE runs only after a store to the QP's doorbell register; otherwise its doorbell record is enough.
    pub strict: bool,
    /// The executor of its WQEs. An external HCA reaches no HCA but external ones of its process.
    pub execution: Execution,
    /// Seed of a random order of QPs, batch sizes and delays; `None` is round-robin.
    pub schedule_seed: Option<u64>,
    /// QPs towards an HCA of the same process go from memory to memory; otherwise they send packets, too.
    pub loopback: bool,
    /// What carries packets to HCAs elsewhere. Every carrier but the default needs `ip`.
    pub carrier: CarrierConfig,
    /// Which card it looks like.
    pub profile: Profile,
    /// Its link layer. On `InfiniBand` the address decides the LID: its low 16 bits are 1 to 0xbfff. Without an address it
    /// gets one of the subnet 127.73.0.0/16.
    pub link: Link,
    /// On `InfiniBand` the LMC of its port, 0 to 7: it has 2^LMC LIDs, and an address for each. The last LMC bits of `ip` are 0.
    /// For the carriers udp and memory. External HCAs have it, too.
    pub lmc: u8,
    /// The partition keys of its port; on Ethernet the default one.
    pub pkeys: PkeyTable,
    /// What it promises about the order of data. `QUERY_HCA_CAP` says so.
    pub order: DataOrder,
    /// A QP may ask for data in order (`dp_ordering_force`), whatever `order` is.
    pub order_force: bool,
    /// log2 of the most bytes of a memory region, 12 to 63. `QUERY_HCA_CAP` says so (`log_max_mrw_sz`), and a longer one is refused.
    pub log_max_mr: u8,
    /// To which events programs may subscribe by DevX.
    pub events: EventSupport,
    /// Options of enhanced connection establishment that its QPs have, each a bit; 0 is a device without any. They change
    /// nothing here.
    pub ece: u32,
    /// It says that it has counter sets, of which none is left for any program. Otherwise it says that it has none.
    pub counter_sets_are_taken: bool,
    /// Makes use of all that `order` leaves open; `None` places data as it comes.
    pub adversary: Option<Adversary>,
    /// What goes wrong.
    pub faults: Option<FaultSpec>,
    /// Where to write what crosses the wire, as pcapng; FILE.2, FILE.3 and so on if the file exists. Turns `loopback` off,
    /// so that everything does cross it.
    pub pcap: Option<PathBuf>,
    /// What its checker looks for, and whether it prints what it finds.
    pub check: CheckConfig,
}

impl HcaConfig {
    /// Of `log_max_mr`: more than any address space has.
    pub const LOG_MAX_MR: u8 = 48;
}

impl Default for HcaConfig {
    fn default() -> Self {
        Self {
            ip: None,
            ports: 1,
            ipv6: None,
            strict: true,
            execution: Execution::default(),
            schedule_seed: None,
            loopback: true,
            carrier: CarrierConfig::default(),
            profile: Profile::default(),
            link: Link::default(),
            lmc: 0,
            pkeys: PkeyTable::default(),
            order: DataOrder::default(),
            order_force: false,
            log_max_mr: Self::LOG_MAX_MR,
            events: EventSupport::default(),
            ece: 0x3,
            counter_sets_are_taken: false,
            adversary: None,
            faults: None,
            pcap: None,
            check: CheckConfig::default(),
        }
    }
}

/// Events to which programs may subscribe by DevX; a subscription to others is refused (`EOPNOTSUPP`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventSupport {
    /// Those of objects and those of the device.
    #[default]
    All,
    /// Those of the device alone.
    Device,
    /// Every subscription is refused.
    None,
}

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

    /// The LID of port 1; 0 on Ethernet.
    #[must_use]
    pub fn lid(&self) -> u16 {
        self.identity.first().lid()
    }

    /// What a port has counted since the HCA was made; `None` if the HCA lacks it. An HCA with [`HcaConfig::loopback`] sends no
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

    /// The IP address of port 1; with an LMC the first one.
    #[must_use]
    pub fn ip(&self) -> Ipv4Addr {
        self.identity.first().ip
    }

    /// How many objects of each kind exist now, over all contexts.
    #[must_use]
    pub fn live_objects(&self) -> ObjectCounts {
        self.with(|slot| slot.state.live())
    }

    /// What the HCA has counted since it was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.world.lock().count(self.number);
        self.with(|slot| slot.counters())
    }

    /// What the checker objected to, in words; each kind once per object.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        self.world.lock().count(self.number);
        self.with(|slot| slot.state.checker.texts().to_vec())
    }

    /// What the checker objected to, by kind, repetitions included.
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

/// The first address of the port behind so many others, of an HCA at `first`.
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

/// Names of all devices, in order.
#[must_use]
pub fn device_names() -> Vec<String> {
    let fabric = World::of_process().lock();
    fabric
        .all()
        .filter(|slot| !slot.state.orphan)
        .map(|slot| slot.state.identity.name.clone())
        .collect()
}

/// Name and addresses of a device.
pub(crate) fn identity(name: &str) -> Option<Identity> {
    let fabric = World::of_process().lock();
    fabric.by_name(name).map(|slot| slot.state.identity.clone())
}

/// Counters of a port of a device.
pub(crate) fn port_counters(name: &str, port: u8) -> Option<PortCounters> {
    let fabric = World::of_process().lock();
    fabric.by_name(name)?.port_counters(port)
}

/// Counters of a device.
#[must_use]
pub fn counters(name: &str) -> Option<Counters> {
    let mut fabric = World::of_process().lock();
    let number = fabric.by_name(name)?.state.number;
    fabric.count(number);
    fabric.by_name(name).map(Slot::counters)
}
