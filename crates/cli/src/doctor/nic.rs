//! The checks of each NIC.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::check::{Check, Look, Text};
use super::engine;
use super::told::Report;
use super::tree::Tree;
use warpverbs::topology::{
    GidKind, LinkLayer, Machine, PciDevice, PortState, RdmaDevice, RdmaPort,
};
use warpverbs::verbs::{
    Caps, Context, DataOrder, DeviceInfo, DeviceSelector, LagMode, VerbsError, device_list,
};

/// The check that the machine has a NIC.
pub(super) const THERE: Text = Text {
    id: "nic",
    what: "NICs",
    why: "Ranks of different machines reach each other through NICs that libmlx5 drives.",
    mend: "lspci -d 15b3: shows whether the machine has one, modprobe mlx5_ib takes it. Without one, software HCAs run everything: \
           wv sim -- wv doctor --loopback, wv demo --device sim.",
};

pub(super) const CHECKS: &[Check<Nic>] = &[
    Check {
        id: "nic-model",
        what: "model and firmware",
        why: "The runtime speaks the PRM of ConnectX-5 and later, through libmlx5.",
        mend: "Take a ConnectX-6 or later, or a BlueField-3; mlxfwmanager shows and writes its firmware. WARPVERBS_DEVICE=^NAME leaves a NIC out.",
        look: model,
    },
    Check {
        id: "nic-devx",
        what: "DevX",
        why: "The runtime makes queues in GPU memory by DevX commands.",
        mend: "mlxconfig -d DEVICE set UCTX_EN=1 and a restart of the firmware (mlxfwreset); access to /dev/infiniband/uverbsN: docker run \
               --device=/dev/infiniband.",
        look: devx,
    },
    Check {
        id: "nic-port",
        what: "port",
        why: "Only an active port carries packets.",
        mend: "ip link set INTERFACE up; look at the cable (mlxlink -d DEVICE -m). On InfiniBand a subnet manager must run (systemctl start opensm).",
        look: port,
    },
    Check {
        id: "nic-speed",
        what: "speed and width",
        why: "A link that has come up with fewer lanes or slower, to the switch or to the PCIe slot, halves every figure.",
        mend: "Reseat card and cable, or use a slot of full width. lspci -vv -s ADDRESS shows LnkSta beside LnkCap, mlxlink -d DEVICE the port.",
        look: speed,
    },
    Check {
        id: "nic-link-layer",
        what: "link layer",
        why: "Ranks reach each other over ports of one link layer alone.",
        mend: "mlxconfig -d DEVICE set LINK_TYPE_P1=1 (InfiniBand) or 2 (Ethernet), the same on all machines.",
        look: link_layer,
    },
    Check {
        id: "nic-gid",
        what: "GIDs",
        why: "Packets name their sender by a GID. On Ethernet that is an IP address of the port's interface, which a router knows.",
        mend: "ip addr add ADDRESS/PREFIX dev INTERFACE; WARPVERBS_GID=10.1.0.0/16, or an interface, chooses among several.",
        look: gids,
    },
    Check {
        id: "nic-mtu",
        what: "MTU",
        why: "Payload travels in packets of the RDMA MTU, which must fit into the MTU of the interface: an RDMA MTU of 4096 needs 4200.",
        mend: "ip link set INTERFACE mtu 9000, and as much at the switches and at all machines.",
        look: mtu,
    },
    Check {
        id: "nic-lag",
        what: "bond (link aggregation)",
        why: "On a bond each QP names the port that its packets leave by; other bonding modes than these three have no RDMA over both ports.",
        mend: "Bond in mode active-backup, balance-xor or 802.3ad: ip link add bond0 type bond mode 802.3ad. The firmware must take the \
               port of a QP on the way to RTR.",
        look: lag,
    },
    Check {
        id: "nic-function",
        what: "physical or virtual function",
        why: "The host of a virtual function sets its rights, its rates and some of its capabilities.",
        mend: "On the host: ip link set INTERFACE vf N trust on; or hand the physical function to the guest.",
        look: function,
    },
    Check {
        id: "nic-atomics",
        what: "atomics",
        why: "Kernels count, lock and swap at peers by atomics of the NIC; signals by swap need them, too.",
        mend: "Later firmware (mlxfwmanager --online -u). Without them: WARPVERBS_MOE_ORDER=inline or flush.",
        look: atomics,
    },
    Check {
        id: "nic-reads",
        what: "reads and atomics at once",
        why: "A QP has so many reads and atomics under way; fewer make get and amo wait for each other.",
        mend: "Later firmware (mlxfwmanager --online -u); nothing for programs that only put: both sides take the smaller number.",
        look: reads,
    },
    Check {
        id: "nic-order",
        what: "order of data",
        why: "Where writes of a QP may overtake each other, a swap or a flush keeps a signal after its data. Either costs a round trip.",
        mend: "mlxreg -d DEVICE --reg_name ROCE_ACCEL --set \"adaptive_routing_forced_en=0\" where adaptive routing is the cause. Else accept the \
               cost: WARPVERBS_MOE_ORDER=auto takes an order that the device keeps.",
        look: order,
    },
    Check {
        id: "nic-no-record",
        what: "doorbells without record",
        why: "Without a doorbell record a post saves a store and a fence in front of the register.",
        mend: "ConnectX-7 with later firmware; else nothing: doorbells have a record then.",
        look: no_record,
    },
    Check {
        id: "nic-retransmission",
        what: "adaptive retransmission",
        why: "With it a dead peer shows later than the ack timeout says, and other than the configuration says.",
        mend: "mlxreg -d DEVICE --reg_name ROCE_ACCEL --set \"roce_adp_retrans_en=0,roce_adp_retrans_field_select=1\"",
        look: retransmission,
    },
    Check {
        id: "nic-losses",
        what: "losses since the port is up",
        why: "RoCE without loss needs a lossless or a well-tuned network: each lost packet costs a timeout or a round trip.",
        mend: "Look at PFC and ECN of switches and ports (mlnx_qos -i INTERFACE), and set WARPVERBS_TRAFFIC_CLASS to the lossless class. \
               Look at cables where symbols are lost.",
        look: losses,
    },
];

/// A NIC, and what is known of it.
pub(super) struct Nic {
    pub(super) name: String,
    tree: Tree,
    /// The device as sysfs shows it.
    pub(super) device: Option<RdmaDevice>,
    pci: Option<PciDevice>,
    /// The device as libibverbs lists it.
    info: Option<DeviceInfo>,
    gids: BTreeMap<u8, Vec<warpverbs::topology::GidFact>>,
    context: OnceCell<Result<Arc<Context>, VerbsError>>,
}

impl Nic {
    /// Returns the NICs that sysfs or libibverbs shows.
    pub(super) fn all(tree: &Tree) -> Vec<Self> {
        // This comes before sysfs is read: software HCAs come into being when a process looks for devices.
        let listed = device_list().unwrap_or_default();
        let machine = tree.topology();
        let unseen = listed
            .iter()
            .filter(|info| machine.rdma_device(&info.name).is_none());
        let seen = machine.rdma().iter().map(|device| device.name.clone());
        let names: Vec<String> = seen.chain(unseen.map(|info| info.name.clone())).collect();
        let nic = |name: String| Self::of(tree, &machine, name, &listed);
        names.into_iter().map(nic).collect()
    }

    fn of(tree: &Tree, machine: &Machine, name: String, listed: &[DeviceInfo]) -> Self {
        let device = machine.rdma_device(&name).cloned();
        let pci = device.as_ref().and_then(|device| device.pci);
        let ports = device.iter().flat_map(|device| &device.ports);
        Self {
            tree: tree.clone(),
            gids: ports
                .map(|port| (port.number, machine.gids(&name, port.number)))
                .collect(),
            pci: pci.and_then(|address| machine.pci_device(address)).cloned(),
            info: listed.iter().find(|info| info.name == name).cloned(),
            context: OnceCell::new(),
            device,
            name,
        }
    }

    /// Returns the opened device, or why it cannot be opened.
    pub(super) fn context(&self) -> Result<&Arc<Context>, String> {
        if self.info.is_none() {
            return Err("libibverbs does not list it".to_owned());
        }
        let open = || Context::open(&DeviceSelector::Name(self.name.clone()));
        let context = self.context.get_or_init(open);
        context.as_ref().map_err(ToString::to_string)
    }

    pub(super) fn is_listed(&self) -> bool {
        self.info.as_ref().is_some_and(|info| info.mlx5)
    }

    /// Returns the port that is checked: the first active port, or the first one if none is active.
    fn port(&self) -> Option<&RdmaPort> {
        let ports = &self.device.as_ref()?.ports;
        let active = ports
            .iter()
            .find(|port| port.state == Some(PortState::Active));
        active.or(ports.first())
    }

    /// Returns the text of a file of the checked port.
    fn port_file(&self, file: &str) -> Option<String> {
        let number = self.port()?.number;
        self.tree
            .rdma(&format!("infiniband/{}/ports/{number}/{file}", self.name))
    }

    /// Returns the network interface of the checked port.
    fn interface(&self) -> Option<&str> {
        let gids = self.gids.get(&self.port()?.number)?;
        gids.iter().find_map(|gid| gid.interface.as_deref())
    }

    fn interface_file(&self, file: &str) -> Option<String> {
        self.tree
            .text(&format!("sys/class/net/{}/{file}", self.interface()?))
    }
}

/// Checks all NICs.
pub(super) fn look(tree: &Tree, report: &mut Report) {
    let mut nics = None;
    report.one("", &THERE, false, || {
        let found = nics.insert(Nic::all(tree));
        let names: Vec<&str> = found.iter().map(|nic| nic.name.as_str()).collect();
        if names.is_empty() {
            Look::missing("no RDMA device")
        } else {
            Look::ok(names.join(", "))
        }
    });
    for nic in nics.unwrap_or_else(|| Nic::all(tree)) {
        report.all(&nic.name, CHECKS, &nic);
    }
    report.one("", &engine::TEXT, false, engine::look);
}

/// The PCI vendor id of Mellanox, and the ids of its devices before ConnectX-5.
const MELLANOX: u32 = 0x15b3;
const EARLIER: [u32; 5] = [0x1003, 0x1007, 0x1013, 0x1015, 0x1011];
/// The names of Mellanox's devices, each with the PCI id of its physical function.
const MODELS: [(u32, &str); 12] = [
    (0x1013, "ConnectX-4"),
    (0x1015, "ConnectX-4 Lx"),
    (0x1017, "ConnectX-5"),
    (0x1019, "ConnectX-5 Ex"),
    (0x101b, "ConnectX-6"),
    (0x101d, "ConnectX-6 Dx"),
    (0x101f, "ConnectX-6 Lx"),
    (0x1021, "ConnectX-7"),
    (0x1023, "ConnectX-8"),
    (0xa2d2, "BlueField"),
    (0xa2d6, "BlueField-2"),
    (0xa2dc, "BlueField-3"),
];

fn model(nic: &Nic) -> Look {
    let firmware = nic.tree.rdma(&format!("infiniband/{}/fw_ver", nic.name));
    let firmware = firmware.map_or_else(String::new, |version| format!(", firmware {version}"));
    if let Some(info) = &nic.info {
        if info.is_soft() {
            return Look::ok(format!("software HCA{firmware}"));
        }
        if !info.mlx5 {
            return Look::missing(format!("another library than libmlx5 drives it{firmware}"));
        }
    }
    let (vendor, device) = match &nic.pci {
        Some(pci) => (pci.vendor, pci.device),
        None => (None, None),
    };
    let known = MODELS.iter().find(|(id, _)| Some(*id) == device);
    let name = known.map_or_else(
        || device.map_or("unknown".to_owned(), |id| format!("device {id:#06x}")),
        |(_, name)| (*name).to_owned(),
    );
    match vendor {
        Some(MELLANOX) => Look::ok_if(
            !device.is_some_and(|device| EARLIER.contains(&device)),
            format!("{name}{firmware}"),
        ),
        Some(other) => Look::missing(format!("no NIC of NVIDIA: vendor {other:#06x}")),
        None => Look::not_looked(format!("it has no PCI function{firmware}")),
    }
}

fn devx(nic: &Nic) -> Look {
    match nic.context() {
        Ok(_) => Look::ok("DevX"),
        // The device was opened by DevX, and failed only later because it lacks something else.
        Err(_) if matches!(nic.context.get(), Some(Err(VerbsError::Capability { .. }))) => {
            Look::ok("DevX")
        }
        Err(why) => Look::missing(why),
    }
}

fn port(nic: &Nic) -> Look {
    let Some(port) = nic.port() else {
        return Look::missing("it has no port");
    };
    let interface = nic
        .interface()
        .map_or_else(String::new, |name| format!(", interface {name}"));
    let physical = nic.port_file("phys_state");
    let physical = physical.map_or_else(String::new, |state| format!(" ({state})"));
    match port.state {
        Some(PortState::Active) => Look::ok(format!("port {} active{interface}", port.number)),
        Some(state) => Look::missing(format!(
            "port {} is {state}{physical}{interface}",
            port.number
        )),
        None => Look::not_looked(format!("the state of port {} cannot be read", port.number)),
    }
}

fn speed(nic: &Nic) -> Look {
    let Some(rate) = nic.port_file("rate") else {
        return Look::not_looked("the rate of the port cannot be read");
    };
    let pci = nic.pci.as_ref().map(|pci| pci.address);
    let fact = |file: &str| nic.tree.pci(pci?, file);
    let links = [
        ("current_link_speed", "max_link_speed"),
        ("current_link_width", "max_link_width"),
    ];
    let pairs = links.map(|(now, most)| fact(now).zip(fact(most)));
    let [Some((speed, best_speed)), Some((width, best_width))] = pairs else {
        return Look::ok(rate);
    };
    let is_full = speed == best_speed && width == best_width;
    let slot = if is_full {
        format!("PCIe {speed} x{width}")
    } else {
        format!("PCIe {speed} x{width} of {best_speed} x{best_width}")
    };
    Look::ok_if(is_full, format!("{rate}, {slot}"))
}

fn link_layer(nic: &Nic) -> Look {
    match nic.port().and_then(|port| port.link_layer) {
        Some(layer) => Look::ok(layer.to_string()),
        None => Look::missing("the link layer of the port cannot be read"),
    }
}

fn gids(nic: &Nic) -> Look {
    let Some(port) = nic.port() else {
        return Look::missing("it has no port");
    };
    let all = nic.gids.get(&port.number).map_or(&[][..], Vec::as_slice);
    let usable = all.iter().filter(|gid| {
        gid.kind == Some(GidKind::RoceV2) || port.link_layer == Some(LinkLayer::InfiniBand)
    });
    let line = |gid: &warpverbs::topology::GidFact| {
        let interface = gid.interface.as_deref().unwrap_or("no interface");
        match gid.gid.to_ipv4_mapped() {
            Some(address) => format!("gid {} {address} ({interface})", gid.index),
            None => format!("gid {} {} ({interface})", gid.index, gid.gid),
        }
    };
    let lines: Vec<String> = usable.clone().map(line).collect();
    let is_routable = usable.clone().any(|gid| !gid.gid.is_unicast_link_local());
    match (lines.is_empty(), port.link_layer) {
        (true, Some(LinkLayer::Ethernet)) => {
            Look::missing(format!("none of RoCE v2 among {}", all.len()))
        }
        (true, _) => Look::missing("none"),
        (false, Some(LinkLayer::InfiniBand)) => Look::ok(lines.join(", ")),
        (false, _) => Look::ok_if(is_routable, lines.join(", ")),
    }
}

/// The MTU that an interface needs for packets of 4096 bytes.
const FOR_4096: u32 = 4200;

fn mtu(nic: &Nic) -> Look {
    let active = nic
        .context()
        .ok()
        .map(|context| context.port().active_mtu.bytes());
    let interface = nic
        .interface_file("mtu")
        .and_then(|text| text.parse::<u32>().ok());
    match (active, interface) {
        (Some(active), Some(interface)) => Look::ok_if(
            active >= 4096,
            format!("MTU {active}, interface {interface}"),
        ),
        (Some(active), None) => Look::ok_if(active >= 4096, format!("MTU {active}")),
        (None, Some(interface)) => {
            Look::ok_if(interface >= FOR_4096, format!("interface {interface}"))
        }
        (None, None) => Look::not_looked("neither device nor interface says"),
    }
}

/// The modes of the bonding driver that RDMA follows.
const MODES: [&str; 3] = ["active-backup", "balance-xor", "802.3ad"];

fn lag(nic: &Nic) -> Look {
    let mode = nic
        .interface_file("bonding/mode")
        .or_else(|| nic.interface_file("master/bonding/mode"));
    if let Some(mode) = mode {
        let word = mode.split(' ').next().unwrap_or_default();
        if !MODES.contains(&word) {
            return Look::degraded(format!("the bond is in mode {word}"));
        }
    }
    caps(nic, lag_of)
}

fn lag_of(caps: &Caps) -> Look {
    let ports = caps.lag_ports;
    match caps.lag_mode {
        None => Look::ok("no bond"),
        Some(LagMode::QueueAffinity) => Look::ok_if(
            caps.init2_lag_tx_port_affinity,
            format!("{ports} ports by queue affinity, which QPs take in turn"),
        ),
        Some(LagMode::Hash) => Look::ok(format!("{ports} ports by hash of a packet's addresses")),
        Some(other) => Look::degraded(format!("{ports} ports by {other}")),
    }
}

fn function(nic: &Nic) -> Look {
    let Some(pci) = &nic.pci else {
        return Look::ok("no PCI function");
    };
    // The PCI id of a virtual function is that of the physical function plus one.
    let is_of_guest =
        pci.vendor == Some(MELLANOX) && MODELS.iter().any(|(id, _)| pci.device == Some(id + 1));
    if pci.is_virtual || is_of_guest {
        Look::degraded("a virtual function")
    } else {
        Look::ok("a physical function")
    }
}

fn atomics(nic: &Nic) -> Look {
    caps(nic, atomics_of)
}

fn atomics_of(caps: &Caps) -> Look {
    match (caps.atomics, caps.masked_atomics) {
        (true, true) => Look::ok("atomics of 8 bytes, masked ones too"),
        (true, false) => Look::degraded("atomics of 8 bytes, no masked ones"),
        (false, _) => Look::degraded("no atomics"),
    }
}

fn reads(nic: &Nic) -> Look {
    caps(nic, reads_of)
}

fn reads_of(caps: &Caps) -> Look {
    let logs = [caps.log_max_ra_req_qp, caps.log_max_ra_res_qp];
    let [own, served] = logs.map(|log| 1u32 << log.min(31));
    let found = format!("{own} reads of its own, {served} of its peer");
    Look::ok_if(own.min(served) >= 16, found)
}

fn order(nic: &Nic) -> Look {
    caps(nic, |caps| {
        let found = format!("data {}", caps.data_order);
        Look::ok_if(caps.data_order == DataOrder::InOrder, found)
    })
}

fn no_record(nic: &Nic) -> Look {
    caps(nic, no_record_of)
}

fn no_record_of(caps: &Caps) -> Look {
    if caps.send_dbr_mode_no_dbr_ext {
        Look::ok("doorbells without record")
    } else {
        Look::degraded("doorbells have a record")
    }
}

/// Returns the result of `look` at the capabilities, if the device can be opened.
fn caps(nic: &Nic, look: impl FnOnce(&Caps) -> Look) -> Look {
    match nic.context() {
        Ok(context) => look(context.caps()),
        Err(why) => Look::not_looked(format!("the device is not open: {why}")),
    }
}

fn retransmission(nic: &Nic) -> Look {
    match nic.port_file("hw_counters/roce_adp_retrans") {
        None => Look::ok("not counted: none, or not of RoCE"),
        Some(count) if count == "0" => Look::ok("none since the port is up"),
        Some(count) => Look::degraded(format!("on: {count} packets sent again by it")),
    }
}

/// The counters that grow when something is lost or comes too late.
const LOSSES: [&str; 11] = [
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/implied_nak_seq_err",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/out_of_buffer",
    "hw_counters/roce_slow_restart",
    "counters/symbol_error",
    "counters/link_error_recovery",
    "counters/link_downed",
    "counters/port_rcv_errors",
];

fn losses(nic: &Nic) -> Look {
    let counted = LOSSES.iter().filter_map(|file| {
        let count: u64 = nic.port_file(file)?.parse().ok()?;
        let (_, name) = file.split_once('/')?;
        Some((name, count))
    });
    let counted: Vec<(&str, u64)> = counted.collect();
    let lost = counted.iter().filter(|(_, count)| *count > 0);
    let lost: Vec<String> = lost
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    match counted.is_empty() {
        true => Look::ok("the port has no such counter"),
        false if lost.is_empty() => Look::ok("nothing lost"),
        false => Look::degraded(lost.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::State;

    /// Returns the capabilities of a software HCA with this change. No profile of a software HCA lacks them itself.
    fn caps_with(change: impl FnOnce(&mut Caps)) -> Caps {
        let hca = softhca::Hca::new().unwrap();
        let context = Context::open(&DeviceSelector::Name(hca.name().to_owned())).unwrap();
        let mut caps = context.caps().clone();
        change(&mut caps);
        caps
    }

    #[test]
    fn a_capability_that_a_card_lacks_is_degraded() {
        let whole = caps_with(|_| {});
        for look in [atomics_of, reads_of, no_record_of] {
            assert_eq!(look(&whole).state, State::Ok);
        }
        let lacks = [
            atomics_of(&caps_with(|caps| caps.atomics = false)),
            atomics_of(&caps_with(|caps| caps.masked_atomics = false)),
            reads_of(&caps_with(|caps| caps.log_max_ra_res_qp = 3)),
            reads_of(&caps_with(|caps| caps.log_max_ra_req_qp = 0)),
            no_record_of(&caps_with(|caps| caps.send_dbr_mode_no_dbr_ext = false)),
        ];
        for look in lacks {
            assert_eq!(look.state, State::Degraded, "{look:?}");
        }
    }
}
