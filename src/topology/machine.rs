//! One machine, as its sysfs shows it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::distance::{self, Distance};
use super::numa::{self, NumaNode};
use super::pci::{self, PciAddress, PciDevice};
use super::rdma::{self, GidFact, RdmaDevice};
use super::sysfs::{Sysfs, Unread};
use crate::config::CpuList;

/// Returns the entries in use of the GID table of a port of this machine, as libibverbs finds it.
#[must_use]
pub fn gids(device: &str, port: u8) -> Vec<GidFact> {
    rdma::gids(&Sysfs::of_this_process(), device, port)
}

/// What sysfs shows of one machine, at the time when it was read.
#[derive(Clone, Debug)]
pub struct Machine {
    sysfs: Sysfs,
    nodes: Vec<NumaNode>,
    pci: BTreeMap<PciAddress, PciDevice>,
    rdma: Vec<RdmaDevice>,
    unread: Vec<Unread>,
}

impl Machine {
    /// The machine whose sysfs is `sys` in the directory `root`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let sys = root.join("sys");
        Self::of(Sysfs {
            rdma: sys.clone(),
            sys,
        })
    }

    /// The machine on which this process runs. Its RDMA devices are those that libibverbs finds. `SYSFS_PATH` may name another
    /// tree, such as that of software HCAs, whose devices then have no place in the PCI tree.
    #[must_use]
    pub fn of_this_process() -> Self {
        Self::of(Sysfs::of_this_process())
    }

    /// The machine whose sysfs is `sys` in the directory `root`. Its RDMA devices are those that libibverbs finds where
    /// `SYSFS_PATH` names their tree: software HCAs.
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

    /// Its NUMA nodes, by number. None where the kernel knows of none.
    #[must_use]
    pub fn nodes(&self) -> &[NumaNode] {
        &self.nodes
    }

    /// Its PCI functions, by address.
    pub fn pci(&self) -> impl Iterator<Item = &PciDevice> {
        self.pci.values()
    }

    /// Returns the PCI function at `address`.
    #[must_use]
    pub fn pci_device(&self, address: PciAddress) -> Option<&PciDevice> {
        self.pci.get(&address)
    }

    /// Its NVIDIA GPUs, by address.
    pub fn gpus(&self) -> impl Iterator<Item = &PciDevice> {
        self.pci().filter(|device| device.is_nvidia_gpu())
    }

    /// Its RDMA devices, by name.
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

    /// Files that exist and could not be read.
    #[must_use]
    pub fn unread(&self) -> &[Unread] {
        &self.unread
    }

    /// Returns how far two PCI functions are from each other; none if the machine lacks one of them.
    #[must_use]
    pub fn distance(&self, one: PciAddress, other: PciAddress) -> Option<Distance> {
        let (one, other) = (self.pci_device(one)?, self.pci_device(other)?);
        Some(distance::between(one, other, self.nodes.len()))
    }

    /// Returns how far a PCI function is from the CPUs and the memory of a NUMA node; none if the machine lacks the function.
    #[must_use]
    pub fn distance_from_node(&self, node: u32, function: PciAddress) -> Option<Distance> {
        let function = self.pci_device(function)?;
        Some(distance::from_node(node, function, self.nodes.len()))
    }

    /// Returns the NUMA node that has all of these CPUs. None: several have some, or the kernel does not say.
    #[must_use]
    pub fn node_of(&self, cpus: &CpuList) -> Option<u32> {
        let has_all = |node: &&NumaNode| node.cpu_list().is_some_and(|of| of.has_all(cpus));
        self.nodes.iter().find(has_all).map(|node| node.number)
    }
}
