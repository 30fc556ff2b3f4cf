//! The configuration of an HCA.

use crate::device::check::CheckConfig;
use crate::device::executor::execution::Execution;
use crate::device::faults::FaultSpec;
use crate::device::memory::pending_writes::{Adversary, DataOrder};
use crate::link::Link;
use crate::partition::PkeyTable;
use crate::profile::Profile;
use crate::subnet::Ipv6Subnet;
use crate::wire::config::CarrierConfig;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The configuration from which an HCA is made.
#[derive(Clone, Debug)]
pub struct HcaConfig {
    /// IPv4 address of the HCA. `None` takes a free address of 127/8. Port 2 has the address after those of port 1, or another free one.
    pub ip: Option<Ipv4Addr>,
    /// Number of ports, 1 or 2. Each has an address of its own and a wire. With carriers of frames and with bonds an HCA has one port.
    pub ports: u8,
    /// The subnet of an additional IPv6 address, for Ethernet. With the UDP carrier this machine must have a route of that subnet.
    pub ipv6: Option<Ipv6Subnet>,
    /// True if a WQE runs only after a store to the QP's doorbell register. Otherwise its doorbell record is enough.
    pub strict: bool,
    /// The executor of the WQEs of the HCA. An external HCA reaches only external HCAs of its process.
    pub execution: Execution,
    /// Seed of a random order of QPs, batch sizes and delays; `None` is round-robin.
    pub schedule_seed: Option<u64>,
    /// True if QPs towards an HCA of the same process move bytes from memory to memory. Otherwise they send packets, too.
    pub loopback: bool,
    /// The carrier of packets to HCAs elsewhere. Every carrier but the default needs `ip`.
    pub carrier: CarrierConfig,
    /// The card that the HCA looks like.
    pub profile: Profile,
    /// The link layer. On `InfiniBand` the address decides the LID: its low 16 bits are 1 to 0xbfff. Without an address the HCA gets one of
    /// the subnet 127.73.0.0/16.
    pub link: Link,
    /// The LMC of the port on `InfiniBand`, 0 to 7: the port has 2^LMC LIDs, and an address for each. The last LMC bits of `ip` are 0. Only
    /// the carriers udp and memory allow it. External HCAs have it, too.
    pub lmc: u8,
    /// The partition keys of the port. On Ethernet there is only the default key.
    pub pkeys: PkeyTable,
    /// The promise of the HCA about the order of data. `QUERY_HCA_CAP` reports it.
    pub order: DataOrder,
    /// True if a QP may ask for data in order (`dp_ordering_force`), whatever `order` is.
    pub order_force: bool,
    /// log2 of the most bytes that a memory region may have, 12 to 63. `QUERY_HCA_CAP` reports it (`log_max_mrw_sz`), and a longer region
    /// is refused.
    pub log_max_mr: u8,
    /// The events to which programs may subscribe by DevX.
    pub events: EventSupport,
    /// Options of enhanced connection establishment (ECE) that QPs of the HCA have, each a bit. 0 is a device without any. The options
    /// change nothing in this model.
    pub ece: u32,
    /// True if the HCA says that it has counter sets, of which none is left for any program. Otherwise it says that it has none.
    pub counter_sets_are_taken: bool,
    /// An adversary that makes use of all freedom that `order` leaves. `None` places data as it comes.
    pub adversary: Option<Adversary>,
    /// The faults that the HCA has.
    pub faults: Option<FaultSpec>,
    /// The file to which everything that crosses the wire is written, as pcapng. If the file exists, it is FILE.2, FILE.3 and so on. It
    /// turns `loopback` off, so that everything does cross the wire.
    pub pcap: Option<PathBuf>,
    /// What the checker of the HCA looks for, and whether it prints its findings.
    pub check: CheckConfig,
}

impl HcaConfig {
    /// Default of `log_max_mr`: more than any address space has.
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

/// Events to which programs may subscribe by DevX. A subscription to other events is refused (`EOPNOTSUPP`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventSupport {
    /// Events of objects and events of the device.
    #[default]
    All,
    /// Events of the device alone.
    Device,
    /// No events: every subscription is refused.
    None,
}
