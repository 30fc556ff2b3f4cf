//! One machine, as its sysfs shows it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::distance::{self, Distance};
use super::numa::{self, NumaNode};
use super::pci::{self, PciAddress, PciDevice};
use super::rdma::{self, GidFact, RdmaDevice};
use super::sysfs::{Sysfs, Unread};
use crate::config::CpuList;

/// Returns the entries in use of the GID table of a port of this machine. The device is one that libibverbs finds.
#[must_use]
pub fn gids(device: &str, port: u8) -> Vec<GidFact> {
    rdma::gids(&Sysfs::of_this_process(), device, port)
}

/// The facts that sysfs showed of one machine, at the time when it was read.
#[derive(Clone, Debug)]
pub struct Machine {
    sysfs: Sysfs,
    nodes: Vec<NumaNode>,
    pci: BTreeMap<PciAddress, PciDevice>,
    rdma: Vec<RdmaDevice>,
    unread: Vec<Unread>,
}

impl Machine {
    /// Returns the machine whose sysfs is `sys` in the directory `root`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let sys = root.join("sys");
        Self::of(Sysfs {
            rdma: sys.clone(),
            sys,
        })
    }

    /// Returns the machine on which this process runs. Its RDMA devices are those that libibverbs finds. `SYSFS_PATH` may name
    /// another tree for them, such as the tree of software HCAs, whose devices have no place in the PCI tree.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::of(Sysfs::of_this_process())
    }

    /// Returns the machine whose sysfs is `sys` in the directory `root`. If `SYSFS_PATH` is set, its RDMA devices are those of the
    /// tree that it names, where libibverbs finds software HCAs.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        let sys = root.join("sys");
        let rdma = std::env::var_os("SYSFS_PATH").map_or_else(|| sys.clone(), PathBuf::from);
        Self::of(Sysfs { sys, rdma })
    }

    fn of(sysfs: Sysfs) -> Self {
        let mut unread = Vec::new();
        let nodes = numa::nodes(&sysfs, &mut unread);
        let pci = pci::devices(&sysfs, &mut unread);
        let rdma = rdma::devices(&sysfs, &mut unread);
        Self {
            sysfs,
            nodes,
            pci,
            rdma,
            unread,
        }
    }

    /// Returns the NUMA nodes, by number. There are none if the kernel knows of none.
    #[must_use]
    pub fn nodes(&self) -> &[NumaNode] {
        &self.nodes
    }

    /// Returns the PCI functions, by address.
    pub fn pci(&self) -> impl Iterator<Item = &PciDevice> {
        self.pci.values()
    }

    /// Returns the PCI function at `address`.
    #[must_use]
    pub fn pci_device(&self, address: PciAddress) -> Option<&PciDevice> {
        self.pci.get(&address)
    }

    /// Returns the NVIDIA GPUs, by address.
    pub fn gpus(&self) -> impl Iterator<Item = &PciDevice> {
        self.pci().filter(|device| device.is_nvidia_gpu())
    }

    /// Returns the RDMA devices, by name.
    #[must_use]
    pub fn rdma(&self) -> &[RdmaDevice] {
        &self.rdma
    }

    /// Returns the RDMA device of this name.
    #[must_use]
    pub fn rdma_device(&self, name: &str) -> Option<&RdmaDevice> {
        self.rdma.iter().find(|device| device.name == name)
    }

    /// Returns the entries of the GID table of a port that are in use, as they are now.
    #[must_use]
    pub fn gids(&self, device: &str, port: u8) -> Vec<GidFact> {
        rdma::gids(&self.sysfs, device, port)
    }

    /// Returns the files that exist and could not be read.
    #[must_use]
    pub fn unread(&self) -> &[Unread] {
        &self.unread
    }

    /// Returns the distance between two PCI functions; none if the machine lacks one of them.
    #[must_use]
    pub fn distance(&self, one: PciAddress, other: PciAddress) -> Option<Distance> {
        let (one, other) = (self.pci_device(one)?, self.pci_device(other)?);
        Some(distance::between(one, other, self.nodes.len()))
    }

    /// Returns the distance of a PCI function from the CPUs and the memory of a NUMA node; none if the machine lacks the function.
    #[must_use]
    pub fn distance_from_node(&self, node: u32, function: PciAddress) -> Option<Distance> {
        let function = self.pci_device(function)?;
        Some(distance::from_node(node, function, self.nodes.len()))
    }

    /// Returns the NUMA node that has all of these CPUs. Returns None if no node has them all, or if the kernel does not say which
    /// CPUs a node has.
    #[must_use]
    pub fn node_of(&self, cpus: &CpuList) -> Option<u32> {
        let has_all = |node: &&NumaNode| node.cpu_list().is_some_and(|of| of.has_all(cpus));
        self.nodes.iter().find(has_all).map(|node| node.number)
    }
}
