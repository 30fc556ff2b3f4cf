//! The distance of two PCI functions from each other.

use std::fmt;

use super::pci::PciDevice;

/// The distance between two PCI functions, in the words of NCCL and `nvidia-smi topo`. A nearer function has a smaller distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// At most one PCIe switch lies between them.
    Pix,
    /// Several PCIe switches lie between them, and no host bridge.
    Pxb,
    /// One host bridge lies between them.
    Phb,
    /// Two host bridges of one NUMA node lie between them.
    Node,
    /// The connection between NUMA nodes lies between them.
    Sys,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        })
    }
}

/// Returns the distance between two functions of a machine with `nodes` NUMA nodes.
///
/// If the firmware names no node, functions of different host bridges have the greatest distance. On a machine with one node they
/// have that of one node.
pub(super) fn between(one: &PciDevice, other: &PciDevice, nodes: usize) -> Distance {
    if one.address == other.address {
        return Distance::Pix;
    }
    if one.host_bridge.is_none() || one.host_bridge != other.host_bridge {
        return match one.numa_node {
            Some(node) => from_node(node, other, nodes),
            None if nodes <= 1 => Distance::Node,
            None => Distance::Sys,
        };
    }
    let pairs = one.bridges.iter().zip(&other.bridges);
    let common = pairs.take_while(|(one, other)| one == other).count();
    if common == 0 {
        return Distance::Phb;
    }
    // A switch counts as two bridges on the way: its upstream port, which both functions have in common, and a downstream port for
    // each.
    let own = |device: &PciDevice| device.bridges.len() - common;
    if own(one) <= 1 && own(other) <= 1 {
        Distance::Pix
    } else {
        Distance::Pxb
    }
}

/// Returns the distance of a function from the CPUs and the memory of a NUMA node, on a machine with `nodes` nodes.
pub(super) fn from_node(node: u32, function: &PciDevice, nodes: usize) -> Distance {
    if function.numa_node == Some(node) || nodes <= 1 {
        Distance::Node
    } else {
        Distance::Sys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::PciAddress;

    /// Returns a function at the end of `bridges`, which are devices of one bus.
    fn device(bridge: &str, node: Option<u32>, path: &[u8]) -> PciDevice {
        let address = |device: &u8| PciAddress {
            domain: 0,
            bus: 0,
            device: *device,
            function: 0,
        };
        let (last, bridges) = path.split_last().unwrap();
        PciDevice {
            address: address(last),
            class: None,
            vendor: None,
            device: None,
            numa_node: node,
            host_bridge: Some(bridge.to_owned()),
            bridges: bridges.iter().map(address).collect(),
            is_virtual: false,
        }
    }

    #[test]
    fn each_distance_is_the_way_that_its_words_say() {
        let gpu = device("pci0000:15", Some(0), &[1, 2, 3, 9]);
        let from = |other: &PciDevice, nodes| {
            let there = between(&gpu, other, nodes);
            assert_eq!(there, between(other, &gpu, nodes), "both ways");
            there
        };
        let at = |node, path: &[u8]| device("pci0000:15", node, path);
        assert_eq!(from(&gpu, 2), Distance::Pix);
        assert_eq!(
            from(&at(Some(0), &[1, 2, 3, 8]), 2),
            Distance::Pix,
            "one port"
        );
        assert_eq!(
            from(&at(Some(0), &[1, 2, 4, 8]), 2),
            Distance::Pix,
            "one switch"
        );
        assert_eq!(
            from(&at(Some(0), &[1, 2, 8]), 2),
            Distance::Pix,
            "in the switch"
        );
        assert_eq!(from(&at(Some(0), &[1, 2, 4, 5, 6, 8]), 2), Distance::Pxb);
        assert_eq!(
            from(&at(Some(0), &[1, 8]), 2),
            Distance::Pxb,
            "beside the switch"
        );
        assert_eq!(from(&at(Some(0), &[7, 8]), 2), Distance::Phb);
        assert_eq!(
            from(&at(Some(0), &[8]), 2),
            Distance::Phb,
            "in the root complex"
        );
        let far = |node| device("pci0000:80", node, &[7, 8]);
        assert_eq!(from(&far(Some(0)), 2), Distance::Node);
        assert_eq!(from(&far(Some(1)), 2), Distance::Sys);
        assert_eq!(from(&far(None), 2), Distance::Sys);
    }

    #[test]
    fn a_function_is_near_its_own_node_alone() {
        let of = |node| device("pci0000:15", node, &[1, 9]);
        for (own, node, nodes, expected) in [
            (Some(0), 0, 2, Distance::Node),
            (Some(1), 0, 2, Distance::Sys),
            (Some(1), 1, 2, Distance::Node),
            (None, 0, 2, Distance::Sys),
            (None, 0, 1, Distance::Node),
            (Some(0), 0, 0, Distance::Node),
        ] {
            let found = from_node(node, &of(own), nodes);
            assert_eq!(found, expected, "{own:?}, {node}, {nodes}");
        }
    }

    #[test]
    fn functions_of_unknown_nodes_are_near_on_a_machine_of_one_node_only() {
        let (one, other) = (
            device("pci0000:00", None, &[1]),
            device("pci0001:00", None, &[2]),
        );
        assert_eq!(between(&one, &other, 0), Distance::Node);
        assert_eq!(between(&one, &other, 1), Distance::Node);
        assert_eq!(between(&one, &other, 2), Distance::Sys);
        let lost = PciDevice {
            host_bridge: None,
            ..one.clone()
        };
        assert_eq!(between(&lost, &other, 1), Distance::Node);
        assert_eq!(between(&lost, &other, 2), Distance::Sys);
    }
}
