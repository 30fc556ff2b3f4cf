//! hwloc as a judge: it reads the same trees. It knows bridges by the bus numbers in their configuration space, which
//! `warpverbs::topology` does not read.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use roxmltree::{Document, Node, ParsingOptions};
use test_support::machine::{MachineTree, descriptions};
use warpverbs::topology::{Distance, Machine, PciAddress, PciDevice};

const PROGRAM: &str = "lstopo-no-graphics";

/// Returns what hwloc says of a tree. None if it is not installed, which is said.
fn ask(tree: &Path, what: &str) -> Option<String> {
    let mut command = Command::new(PROGRAM);
    command.arg("--input").arg(tree);
    command.args(["--if", "fsroot", "--filter", "io:all", "--of", "xml"]);
    match command.output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{what}: {errors}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            println!("skipped: {what}: {PROGRAM} of the package hwloc-nox does not run: {error}");
            None
        }
    }
}

/// Where hwloc puts a PCI function.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// Host bridge as the kernel names it.
    host_bridge: Option<String>,
    bridges: Vec<PciAddress>,
    /// CPUs of what it hangs on, as a mask.
    cpus: u64,
}

fn address(node: Node<'_, '_>) -> Option<PciAddress> {
    node.attribute("pci_busid")?.parse().ok()
}

/// Objects of hwloc above an object, from the nearest up.
fn above<'a>(node: Node<'a, 'a>) -> impl Iterator<Item = Node<'a, 'a>> {
    node.ancestors()
        .skip(1)
        .filter(|node| node.has_tag_name("object"))
}

fn is_io(node: Node<'_, '_>) -> bool {
    matches!(node.attribute("type"), Some("Bridge" | "PCIDev" | "OSDev"))
}

fn mask(text: &str) -> u64 {
    // Words of 32 bits, the highest first; an empty word is 0, and `0xf...f` is all.
    let words = text
        .split(',')
        .map(|word| match word.trim_start_matches("0x") {
            "" => 0,
            digits => u64::from_str_radix(digits, 16).unwrap(),
        });
    words.fold(0, |bits, word| bits << 32 | word)
}

/// `pci0000:15` of a bridge whose buses are `0000:[15-1b]`.
fn host_bridge(node: Node<'_, '_>) -> Option<String> {
    let buses = node.attribute("bridge_pci")?;
    let (domain, buses) = buses.split_once(":[")?;
    Some(format!("pci{domain}:{}", buses.get(..2)?))
}

fn place(node: Node<'_, '_>) -> Place {
    let io: Vec<_> = above(node).take_while(|node| is_io(*node)).collect();
    let rest = above(node).find(|node| !is_io(*node)).unwrap();
    let of_host = |node: &&Node<'_, '_>| node.attribute("bridge_type") == Some("0-1");
    Place {
        host_bridge: io.iter().find(of_host).and_then(|node| host_bridge(*node)),
        bridges: io.iter().rev().filter_map(|node| address(*node)).collect(),
        cpus: mask(rest.attribute("cpuset").unwrap()),
    }
}

/// As `place`, by this crate.
fn own_place(machine: &Machine, device: &PciDevice) -> Place {
    let cpus = |list: &str| -> u64 {
        let bits = list.split(',').filter(|part| !part.is_empty()).map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let [first, last]: [u32; 2] = [first.parse().unwrap(), last.parse().unwrap()];
            (first..=last).map(|cpu| 1 << cpu).sum::<u64>()
        });
        bits.sum()
    };
    let nodes = machine.nodes().iter();
    let near = nodes.filter(|node| device.numa_node.is_none_or(|own| own == node.number));
    Place {
        host_bridge: device.host_bridge.clone(),
        bridges: device.bridges.clone(),
        cpus: near.map(|node| cpus(&node.cpus)).sum(),
    }
}

/// Distance by the objects that two functions have in common.
fn distance(one: Node<'_, '_>, other: Node<'_, '_>) -> Distance {
    let theirs: Vec<_> = above(other).map(|node| node.id()).collect();
    let common = above(one).find(|node| theirs.contains(&node.id())).unwrap();
    let between = |node| {
        above(node)
            .take_while(|node| node.id() != common.id())
            .count()
    };
    match (common.attribute("type"), common.attribute("bridge_type")) {
        (Some("Bridge"), Some("1-1")) if between(one) <= 1 && between(other) <= 1 => Distance::Pix,
        (Some("Bridge"), Some("1-1")) => Distance::Pxb,
        (Some("Bridge"), Some("0-1")) => Distance::Phb,
        _ if mask(common.attribute("nodeset").unwrap()).count_ones() <= 1 => Distance::Node,
        // A package with a node of memory alone, as the memory of a GPU.
        (Some("Package"), _) => Distance::Node,
        _ => Distance::Sys,
    }
}

#[test]
fn parents_nodes_and_distances_are_those_of_hwloc() {
    let machines = descriptions();
    assert!(machines.len() >= 7, "{:?}", machines.keys());
    let mut seen = BTreeMap::new();
    for (name, text) in &machines {
        let tree = MachineTree::of(text);
        let Some(xml) = ask(tree.path(), "distances of machines") else {
            return;
        };
        let options = ParsingOptions {
            allow_dtd: true,
            ..ParsingOptions::default()
        };
        let document = Document::parse_with_options(&xml, options).unwrap();
        let theirs: BTreeMap<PciAddress, Node<'_, '_>> = document
            .descendants()
            .filter_map(|node| Some((address(node)?, node)))
            .collect();

        let machine = Machine::read(tree.path());
        assert_eq!(machine.unread(), [], "{name}");
        let own: Vec<_> = machine.pci().map(|device| device.address).collect();
        assert_eq!(own, theirs.keys().copied().collect::<Vec<_>>(), "{name}");
        for device in machine.pci() {
            let of_hwloc = place(theirs[&device.address]);
            assert_eq!(own_place(&machine, device), of_hwloc, "{name}: {device:?}");
        }
        let nics = machine.rdma().iter().filter_map(|device| device.pci);
        for (gpu, nic) in machine
            .gpus()
            .flat_map(|gpu| nics.clone().map(|nic| (gpu.address, nic)))
        {
            let (found, of_hwloc) = (
                machine.distance(gpu, nic),
                distance(theirs[&gpu], theirs[&nic]),
            );
            assert_eq!(found, Some(of_hwloc), "{name}: from {gpu} to {nic}");
            *seen.entry(of_hwloc).or_insert(0) += 1;
        }
        let rdma: Vec<_> = document
            .descendants()
            .filter(|node| node.attribute("osdev_type") == Some("3"))
            .filter_map(|node| {
                Some((
                    node.attribute("name")?.to_owned(),
                    address(above(node).next()?),
                ))
            })
            .collect();
        for (device, there) in rdma {
            let own = machine.rdma_device(&device).unwrap();
            assert_eq!(own.pci, there, "{name}: {device}");
        }
    }
    println!("pairs of GPU and NIC by distance: {seen:?}");
    assert_eq!(seen.len(), 5, "every distance is on some machine: {seen:?}");
}
