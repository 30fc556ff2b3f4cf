//! The files of the machine, below a root that tests may choose.
//!
//! A path may lead to anything, such as a pipe that nothing writes to, or a file without end. Reads end at a bound and never wait for a
//! writer.

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};

use warpverbs::topology::{Machine, PciAddress};

/// The most bytes of a file that are read. `proc/self/smaps` and `proc/modules` are longer than a page.
const LONGEST: u64 = 1 << 18;
/// The most names of a directory that are read.
const MOST: usize = 1 << 13;

/// The roots below which the files of the machine are read.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: PathBuf,
    /// The `sys` folder of RDMA devices. Software HCAs have one of their own.
    rdma: PathBuf,
}

impl Tree {
    pub(super) fn new(root: &Path) -> Self {
        let own = env::var_os("SYSFS_PATH").map(PathBuf::from);
        Self {
            rdma: own.unwrap_or_else(|| root.join("sys")),
            root: root.to_owned(),
        }
    }

    /// Returns whether the RDMA devices are software HCAs of this process.
    pub(super) fn has_own_rdma(&self) -> bool {
        self.rdma != self.root.join("sys")
    }

    /// Returns the places of GPUs and NICs in the machine.
    pub(super) fn topology(&self) -> Machine {
        Machine::below(&self.root)
    }

    /// Returns the text of a file, or None if it does not exist or is no text.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        read(&self.root.join(path))
    }

    /// Returns the bytes of a file, at most the first 256 KiB.
    pub(super) fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        bytes(&self.root.join(path))
    }

    /// Returns the text of a file below `class` of the RDMA devices' sysfs.
    pub(super) fn rdma(&self, path: &str) -> Option<String> {
        read(&self.rdma.join("class").join(path))
    }

    /// Returns the text of a file of a PCI function.
    pub(super) fn pci(&self, address: PciAddress, file: &str) -> Option<String> {
        self.text(&format!("sys/bus/pci/devices/{address}/{file}"))
    }

    /// Returns the names in a directory, sorted, or no names if the directory does not exist.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        names(&self.root.join(path))
    }

    /// Returns the names in a directory below `class` of the RDMA devices' sysfs.
    pub(super) fn rdma_names(&self, path: &str) -> Vec<String> {
        names(&self.rdma.join("class").join(path))
    }

    pub(super) fn is_there(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Returns whether this process may read and write a file.
    pub(super) fn may_use(&self, path: &str) -> bool {
        let rights = Access::READ_OK | Access::WRITE_OK;
        rustix::fs::access(self.root.join(path), rights).is_ok()
    }
}

fn read(path: &Path) -> Option<String> {
    let text = String::from_utf8(bytes(path)?).ok()?;
    let text = text.trim_end();
    (!text.is_empty()).then(|| text.to_owned())
}

fn bytes(path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let is_file = file.metadata().is_ok_and(|kind| kind.is_file());
    let mut bytes = Vec::new();
    let read = file.take(LONGEST).read_to_end(&mut bytes);
    (is_file && read.is_ok()).then_some(bytes)
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path)
        .into_iter()
        .flatten()
        .take(MOST)
        .flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
