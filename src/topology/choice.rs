//! Which ports a rank may use, the best one first.

use std::cmp::Reverse;
use std::fmt;

use super::distance::Distance;
use super::layers::layers_of;
use super::machine::Machine;
use super::pci::PciAddress;
use super::rdma::{LinkLayer, PortState, RdmaDevice, RdmaPort, by_number};
use super::reason::{Reason, admit};

/// The wishes of a rank for its port.
///
/// A port is a candidate if it is active and of the wanted link layer. The nearest port to the GPU, or to the NUMA node, goes
/// first, then the fastest. Equal ports are sorted by name, and each rank of the machine begins with another of them, in turn. So a
/// machine gives the same answer on every run, and no answer depends on what other processes do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish<'a> {
    /// The GPUs of the ranks of this machine, by local rank. None for a rank that has no GPU, or whose GPU is not known.
    pub gpus: &'a [Option<PciAddress>],
    /// The place of this rank in [`Wish::gpus`]. A rank without a place there has no GPU.
    pub place: usize,
    /// The NUMA node of the CPUs that move the data, if this rank has no GPU. None: all ports are equally far.
    pub node: Option<u32>,
    /// The wanted link layer. None: that of the machine's fastest active port. Of two equally fast layers it is the one with more
    /// ports, then InfiniBand. All ranks of a machine get the same layer, whichever ports are near them.
    pub link_layer: Option<LinkLayer>,
}

/// A port that a rank may use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// The name of the device.
    pub device: String,
    /// The number of the port.
    pub port: u8,
    /// The distance from the GPU or the NUMA node. None if one of the ends is not known, or has no place in the PCI tree.
    pub distance: Option<Distance>,
    /// The rate in megabits per second; 0 if it is not known.
    pub rate_mbps: u32,
}

impl Candidate {
    /// Returns whether the candidate is as near and as fast as another candidate of the same choice.
    #[must_use]
    pub fn is_as_good_as(&self, other: &Self) -> bool {
        merit(self) == merit(other)
    }
}

impl fmt::Display for Candidate {
    /// Prints `mlx5_0 port 1 (PIX, 400 Gb/s)`, without what is not known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.device, self.port)?;
        let rate = f64::from(self.rate_mbps) / 1000.0;
        match (self.distance, self.rate_mbps) {
            (None, 0) => Ok(()),
            (Some(distance), 0) => write!(f, " ({distance})"),
            (None, _) => write!(f, " ({rate} Gb/s)"),
            (Some(distance), _) => write!(f, " ({distance}, {rate} Gb/s)"),
        }
    }
}

/// A port, or a device as a whole, that a rank does not use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PassedOver {
    /// The name of the device.
    pub device: String,
    /// The number of the port; none if no port of the device is used.
    pub port: Option<u8>,
    /// The reason why no rank uses the port or the device.
    pub reason: Reason,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device)?;
        if let Some(port) = self.port {
            write!(f, " port {port}")?;
        }
        write!(f, ": {}", self.reason)?;
        match (&self.reason, self.port) {
            (Reason::State(Some(PortState::Down)), Some(port)) => write!(
                f,
                ": is the cable of port {port} in, and on Ethernet its interface up (ip link)?"
            ),
            _ => Ok(()),
        }
    }
}

/// The ports of a machine, for one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// The ports that the rank may use, in the order in which it should try them.
    pub candidates: Vec<Candidate>,
    /// The ports and devices that the rank may not use.
    pub passed_over: Vec<PassedOver>,
}

impl Wish<'_> {
    /// Returns the ports of `machine` in the order of this wish. `usable` refuses a port that must not be used, with the reason.
    #[must_use]
    pub fn choose(
        &self,
        machine: &Machine,
        usable: impl Fn(&RdmaDevice, &RdmaPort) -> Result<(), Reason>,
    ) -> Choice {
        let mut choice = Choice::default();
        let wanted = self.link_layer.or_else(|| {
            let layers = layers_of(machine, &usable);
            layers.first().map(|offer| offer.layer)
        });
        for device in machine.rdma() {
            if device.ports.is_empty() {
                choice.pass_over(device, None, Reason::NoPort);
            }
            for port in &device.ports {
                match usable(device, port).and_then(|()| admit(port, wanted)) {
                    Ok(()) => choice.candidates.push(Candidate {
                        device: device.name.clone(),
                        port: port.number,
                        distance: None,
                        rate_mbps: port.rate_mbps.unwrap_or(0),
                    }),
                    Err(reason) => choice.pass_over(device, Some(port.number), reason),
                }
            }
        }
        choice.candidates = self.in_order(machine, choice.candidates);
        choice
    }

    fn in_order(&self, machine: &Machine, candidates: Vec<Candidate>) -> Vec<Candidate> {
        let seen_from = |place: usize| {
            let gpu = self.gpus.get(place).copied().flatten();
            // The NUMA nodes of other ranks are not known.
            let node = self.node.filter(|_| place == self.place);
            sorted(machine, gpu, node, candidates.clone())
        };
        let mut own = seen_from(self.place);
        let equals = equals_of(&own).len();
        if equals == 0 {
            return own;
        }
        // A rank before this one takes part in the turn if it chooses among the same ports.
        let before = (0..self.place.min(self.gpus.len()))
            .filter(|place| same_ports(equals_of(&seen_from(*place)), &own[..equals]));
        let unlisted = self.place.saturating_sub(self.gpus.len());
        let turn = before.count() + unlisted;
        own[..equals].rotate_left(turn % equals);
        own
    }
}

impl Choice {
    fn pass_over(&mut self, device: &RdmaDevice, port: Option<u8>, reason: Reason) {
        self.passed_over.push(PassedOver {
            device: device.name.clone(),
            port,
            reason,
        });
    }
}

/// Returns the candidates with their distances, the best one first, as a rank sees them that has this GPU, or has none and is on
/// this NUMA node.
fn sorted(
    machine: &Machine,
    gpu: Option<PciAddress>,
    node: Option<u32>,
    mut candidates: Vec<Candidate>,
) -> Vec<Candidate> {
    for candidate in &mut candidates {
        let nic = machine
            .rdma_device(&candidate.device)
            .and_then(|nic| nic.pci);
        candidate.distance = match (gpu, node) {
            (Some(gpu), _) => nic.and_then(|nic| machine.distance(gpu, nic)),
            (None, Some(node)) => nic.and_then(|nic| machine.distance_from_node(node, nic)),
            (None, None) => None,
        };
    }
    candidates.sort_by(|one, other| {
        let names = by_number(&one.device).cmp(&by_number(&other.device));
        let names = names.then(one.port.cmp(&other.port));
        merit(one).cmp(&merit(other)).then(names)
    });
    candidates
}

/// Returns the key by which candidates are sorted: the better candidate has the smaller key. A candidate without a distance is the
/// farthest.
fn merit(candidate: &Candidate) -> (bool, Option<Distance>, Reverse<u32>) {
    let distance = candidate.distance;
    (distance.is_none(), distance, Reverse(candidate.rate_mbps))
}

/// Returns the first candidates that are as good as the very first one.
fn equals_of(candidates: &[Candidate]) -> &[Candidate] {
    let is_best = |candidate: &&Candidate| candidate.is_as_good_as(&candidates[0]);
    &candidates[..candidates.iter().take_while(is_best).count()]
}

fn same_ports(one: &[Candidate], other: &[Candidate]) -> bool {
    let port = |candidate: &Candidate| (candidate.device.clone(), candidate.port);
    one.iter().map(port).eq(other.iter().map(port))
}
