//! The way of a rank's traffic, in one line per rail.

use std::fmt;

use crate::config::{PathConfig, SignalOrder};
use crate::fabric::{Rail, mtu_of};
use crate::team::parts::Parts;
use crate::topology::{Distance, LinkLayer, Machine};
use crate::verbs::{Context, Doorbell, Gid, Mtu, Rung, TrafficClass};

/// The way from the GPU of a rank to the network, on one rail. Prints as one line:
///
/// `rank 0: gpu 0 (0000:1b:00.0) -> mlx5_0 port 1 (PIX), RoCEv2 10.1.0.7 (gid 3, ens3), MTU 4096, class 104 (sysfs), memory by dmabuf
/// (PCIe), doorbells by the GPU, signals inline`
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankPath {
    /// The rank that has the path.
    pub rank: u32,
    /// The device that kernels of the rank run on: number and PCI address of a GPU, or what stands in for a GPU.
    pub gpu: String,
    /// Name of the RDMA device.
    pub device: String,
    /// Port of the device.
    pub port: u8,
    /// The distance of the RDMA device from the GPU. None if one of them has no place in the PCI tree.
    pub distance: Option<Distance>,
    /// The address that packets come from; none if the port has no such address.
    pub source: Option<PathSource>,
    /// The most bytes of payload in one packet.
    pub mtu: Mtu,
    /// The IP traffic class, or that of a global route header, and where its value comes from.
    pub class: TrafficClass,
    /// The kind of memory that windows of the rank lie in, and how the HCA reaches it.
    pub memory: Rung,
    /// The way in which the HCA is told of new work.
    pub doorbells: Doorbell,
    /// The order in which signals are kept after data.
    pub signals: SignalOrder,
}

/// The address that a rank's packets come from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathSource {
    /// A GID of a port on Ethernet.
    RoceV2 {
        /// The address.
        gid: Gid,
        /// The index of the address in the port's table.
        index: u32,
        /// The network interface that the address belongs to. None if sysfs does not name it.
        interface: Option<String>,
    },
    /// A port on InfiniBand.
    InfiniBand {
        /// The port's first LID.
        lid: u16,
    },
}

/// Returns the way of this rank's traffic on each rail. Reads sysfs anew.
pub(in crate::team) fn paths(own: &Parts) -> Vec<RankPath> {
    let machine = Machine::of_this_process();
    let slot = own.gpu.slot();
    let memory = own.choices.window_rung();
    let path = |rail: &Rail| {
        let context = rail.context();
        let nic = machine
            .rdma_device(context.name())
            .and_then(|device| device.pci);
        let places = slot.map(|slot| slot.pci).zip(nic);
        let mtu = context.port().active_mtu;
        RankPath {
            rank: own.config.rank,
            gpu: slot.map_or_else(|| own.gpu.label(), |slot| slot.to_string()),
            device: context.name().to_owned(),
            port: context.port().number,
            distance: places.and_then(|(gpu, nic)| machine.distance(gpu, nic)),
            source: source(&machine, context, &own.config.path),
            // A configured MTU that the port cannot have has ended the start already.
            mtu: mtu_of(mtu, &own.config.path).unwrap_or(mtu),
            class: context.traffic_class(own.config.path.traffic_class),
            memory,
            doorbells: rail.shape().doorbell,
            signals: own.choices.order(),
        }
    };
    own.rails.iter().map(path).collect()
}

/// Returns the address that packets of a port come from.
fn source(machine: &Machine, context: &Context, config: &PathConfig) -> Option<PathSource> {
    let port = context.port();
    if port.link_layer == LinkLayer::InfiniBand {
        let lid = port.lid_with(config.path_bits).ok()?;
        return Some(PathSource::InfiniBand { lid });
    }
    let entry = context.source_gid(config.gid_index).ok()?;
    let facts = machine.gids(context.name(), port.number);
    let fact = facts.into_iter().find(|fact| fact.index == entry.index);
    Some(PathSource::RoceV2 {
        gid: entry.gid,
        index: entry.index,
        interface: fact.and_then(|fact| fact.interface),
    })
}

impl fmt::Display for RankPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rank,
            gpu,
            device,
            port,
            ..
        } = self;
        write!(f, "rank {rank}: {gpu} -> {device} port {port}")?;
        if let Some(distance) = self.distance {
            write!(f, " ({distance})")?;
        }
        match &self.source {
            Some(source) => write!(f, ", {source}")?,
            None => f.write_str(", no address")?,
        }
        write!(f, ", MTU {}, class {}", self.mtu, self.class)?;
        match self.memory {
            Rung::Host => f.write_str(", memory of the host")?,
            rung => write!(f, ", memory by {rung}")?,
        }
        let doorbells = match self.doorbells {
            Doorbell::Record | Doorbell::NoRecord => "the GPU",
            Doorbell::Mailbox => "a host thread",
        };
        write!(f, ", doorbells by {doorbells}, signals {}", self.signals)
    }
}

impl fmt::Display for PathSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InfiniBand { lid } => write!(f, "InfiniBand LID {lid:#x}"),
            Self::RoceV2 {
                gid,
                index,
                interface,
            } => {
                let address = gid
                    .ipv4()
                    .map_or_else(|| gid.to_string(), |it| it.to_string());
                write!(f, "RoCEv2 {address} (gid {index}")?;
                if let Some(interface) = interface {
                    write!(f, ", {interface}")?;
                }
                f.write_str(")")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::TrafficClassFrom;
    use std::net::Ipv6Addr;

    #[test]
    fn a_path_is_one_line_and_leaves_out_what_is_not_known() {
        let gid = |text: &str| Gid(text.parse::<Ipv6Addr>().unwrap().octets());
        let mut path = RankPath {
            rank: 0,
            gpu: "gpu 0 (0000:1b:00.0)".to_owned(),
            device: "mlx5_3".to_owned(),
            port: 1,
            distance: Some(Distance::Pix),
            source: Some(PathSource::RoceV2 {
                gid: gid("::ffff:10.1.0.7"),
                index: 3,
                interface: Some("ens3".to_owned()),
            }),
            mtu: Mtu::B4096,
            class: TrafficClass {
                value: 104,
                from: TrafficClassFrom::Sysfs,
            },
            memory: Rung::DmabufPcie,
            doorbells: Doorbell::NoRecord,
            signals: SignalOrder::Inline,
        };
        assert_eq!(
            path.to_string(),
            "rank 0: gpu 0 (0000:1b:00.0) -> mlx5_3 port 1 (PIX), RoCEv2 10.1.0.7 (gid 3, ens3), MTU 4096, class 104 (sysfs), \
             memory by dmabuf (PCIe), doorbells by the GPU, signals inline"
        );
        path.class = TrafficClass {
            value: 0,
            from: TrafficClassFrom::Default,
        };
        path.memory = Rung::Host;
        path.doorbells = Doorbell::Mailbox;
        path.signals = SignalOrder::Flush;
        path.distance = None;
        path.gpu = "simt".to_owned();
        path.source = Some(PathSource::RoceV2 {
            gid: gid("fe80::1"),
            index: 1,
            interface: None,
        });
        assert_eq!(
            path.to_string(),
            "rank 0: simt -> mlx5_3 port 1, RoCEv2 fe80::1 (gid 1), MTU 4096, class 0 (default), memory of the host, \
             doorbells by a host thread, signals flush"
        );
        path.source = Some(PathSource::InfiniBand { lid: 0x1c });
        assert!(
            path.to_string()
                .contains("port 1, InfiniBand LID 0x1c, MTU 4096, ")
        );
        path.source = None;
        assert!(path.to_string().contains("port 1, no address, MTU 4096, "));
    }
}
