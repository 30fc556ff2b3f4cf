//! How an HCA is made.

use crate::device::checker::CheckConfig;
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

/// How an HCA is made.
#[derive(Clone, Debug)]
pub struct HcaConfig {
    /// Its IPv4 address; `None` takes a free one of 127/8. Port 2 has the address after those of port 1, or another free one.
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
