//! The files of the tree: their contents and their readers.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::counters;
use super::identity::{GidType, Groups, Identity, PortIdentity};

/// Class directories, and the ABI version that libibverbs requires before it looks for devices.
pub(super) fn write_root(tree: &Path) -> io::Result<()> {
    for directory in [
        "class/infiniband",
        "class/infiniband_verbs",
        "bus/pci/devices",
    ] {
        fs::create_dir_all(tree.join(directory))?;
    }
    line(&tree.join("class/infiniband_verbs/abi_version"), "6")
}

/// Everything about `device`; its link in `class/infiniband_verbs` comes last.
pub(super) fn write(tree: &Path, device: &Identity) -> io::Result<()> {
    let pci = pci_path(device);
    let function = tree.join(&pci);
    let verbs = function.join(format!("infiniband_verbs/uverbs{}", device.index));
    let rdma = function.join(format!("infiniband/{}", device.name));
    fs::create_dir_all(&verbs)?;
    fs::create_dir_all(&rdma)?;
    write_function(&function, device)?;
    write_verbs(&verbs, device)?;
    write_rdma(&rdma, device)?;
    for directory in [&verbs, &rdma] {
        symlink("../..", directory.join("device"))?;
    }
    let up = Path::new("../../..");
    symlink(
        up.join(&pci),
        tree.join("bus/pci/devices").join(device.pci_address()),
    )?;
    for link in class_links(device) {
        let target = Path::new("../..").join(&pci).join(&link.inside);
        symlink(target, tree.join(link.name))?;
    }
    Ok(())
}

/// Undoes [`write`], also half of it; the link in `class/infiniband_verbs` goes first.
pub(super) fn remove(tree: &Path, device: &Identity) {
    for link in class_links(device).iter().rev() {
        let _ = fs::remove_file(tree.join(&link.name));
    }
    let _ = fs::remove_file(tree.join("bus/pci/devices").join(device.pci_address()));
    let _ = fs::remove_dir_all(tree.join(pci_path(device)));
}

struct ClassLink {
    /// Path of the link in the tree.
    name: PathBuf,
    /// Path of its target below the PCI function.
    inside: PathBuf,
}

/// In the order in which they appear.
fn class_links(device: &Identity) -> [ClassLink; 2] {
    let link = |class: &str, name: &str| ClassLink {
        name: Path::new("class").join(class).join(name),
        inside: Path::new(class).join(name),
    };
    [
        link("infiniband", &device.name),
        link("infiniband_verbs", &format!("uverbs{}", device.index)),
    ]
}

/// The PCI function, relative to the tree.
fn pci_path(device: &Identity) -> PathBuf {
    Path::new("devices/pci0000:00").join(device.pci_address())
}

/// `modalias` decides which provider takes the device; UCX matches vendor and device and looks at the rest.
fn write_function(function: &Path, device: &Identity) -> io::Result<()> {
    let vendor = Identity::PCI_VENDOR;
    let facts = device.profile.facts();
    let device = facts.pci_device;
    let modalias = format!("pci:v{vendor:08X}d{device:08X}sv{vendor:08X}sd00000001bc02sc07i00");
    let files: &[(&str, &str)] = &[
        ("modalias", &modalias),
        ("vendor", &format!("{vendor:#06x}")),
        ("device", &format!("{device:#06x}")),
        ("class", "0x020700"),
        ("numa_node", "-1"),
        ("current_link_speed", facts.pci_speed),
        ("max_link_speed", facts.pci_speed),
        ("current_link_width", "16"),
        ("max_link_width", "16"),
    ];
    lines(function, files)
}

/// What libibverbs needs to open the device.
fn write_verbs(verbs: &Path, device: &Identity) -> io::Result<()> {
    let number = device.character_device();
    let files: &[(&str, &str)] = &[
        ("ibdev", &device.name),
        (
            "dev",
            &format!("{}:{}", libc::major(number), libc::minor(number)),
        ),
        // libmlx5 accepts exactly this.
        ("abi_version", "1"),
    ];
    lines(verbs, files)
}

/// What describes the device and its ports.
fn write_rdma(rdma: &Path, device: &Identity) -> io::Result<()> {
    let facts = device.profile.facts();
    let guid = Groups(&device.node_guid).to_string();
    let files: &[(&str, &str)] = &[
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("fw_ver", &device.firmware()),
        ("board_id", facts.board),
        ("hca_type", facts.hca_type),
        ("hw_rev", "0"),
        ("node_desc", &format!("softhca {}", device.name)),
    ];
    lines(rdma, files)?;
    device
        .ports()
        .iter()
        .try_for_each(|port| write_port(rdma, device, port))
}

fn write_port(rdma: &Path, device: &Identity, of: &PortIdentity) -> io::Result<()> {
    let facts = device.profile.facts();
    let port = rdma.join(format!("ports/{}", of.number));
    for directory in ["gids", "gid_attrs/types", "gid_attrs/ndevs", "pkeys"] {
        fs::create_dir_all(port.join(directory))?;
    }
    let infiniband = device.link.is_infiniband();
    let link_layer = if infiniband { "InfiniBand" } else { "Ethernet" };
    // CM is supported; on Ethernet, GIDs are made of IP addresses.
    let capabilities = if infiniband {
        "0x00010000"
    } else {
        "0x04010000"
    };
    let files: &[(&str, &str)] = &[
        ("state", counters::STATE[0]),
        ("phys_state", counters::PHYSICAL_STATE[0]),
        ("link_layer", link_layer),
        ("rate", facts.rate),
        ("lid", &format!("{:#x}", of.lid())),
        ("sm_lid", &format!("{:#x}", of.sm_lid())),
        ("lid_mask_count", &of.lmc.to_string()),
        ("sm_sl", "0"),
        ("cap_mask", capabilities),
    ];
    lines(&port, files)?;
    for (index, key) in of.pkeys.keys().iter().enumerate() {
        line(&port.join(format!("pkeys/{index}")), &format!("{key:#06x}"))?;
    }
    for (index, (kind, gid)) in of.gids.iter().enumerate() {
        let kind = match kind {
            GidType::InfiniBand | GidType::RoceV1 => "IB/RoCE v1",
            GidType::RoceV2 => "RoCE v2",
        };
        line(
            &port.join(format!("gids/{index}")),
            &Groups(gid).to_string(),
        )?;
        line(&port.join(format!("gid_attrs/types/{index}")), kind)?;
        // A port of InfiniBand has no network device.
        if !infiniband {
            line(&port.join(format!("gid_attrs/ndevs/{index}")), "lo")?;
        }
    }
    let counters = port.join("hw_counters");
    fs::create_dir_all(&counters)?;
    for name in counters::names() {
        line(&counters.join(name), "0")?;
    }
    Ok(())
}

fn lines(directory: &Path, files: &[(&str, &str)]) -> io::Result<()> {
    files
        .iter()
        .try_for_each(|(name, value)| line(&directory.join(name), value))
}

fn line(path: &Path, value: &str) -> io::Result<()> {
    fs::write(path, format!("{value}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn scratch(name: &str) -> Scratch {
        let path = PathBuf::from(format!("/tmp/softhca-test-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    #[test]
    fn class_links_resolve_to_the_pci_function() {
        let tree = scratch("links");
        let device = Identity::new(3, Ipv4Addr::new(127, 0, 0, 9));
        write_root(&tree.0).unwrap();
        write(&tree.0, &device).unwrap();
        let root = tree.0.canonicalize().unwrap();
        let function = root.join("devices/pci0000:00/0000:00:03.0");
        for (link, target) in [
            ("class/infiniband/mlx5_3", "infiniband/mlx5_3"),
            ("class/infiniband/mlx5_3/device", ""),
            ("class/infiniband_verbs/uverbs3", "infiniband_verbs/uverbs3"),
            ("class/infiniband_verbs/uverbs3/device", ""),
            ("bus/pci/devices/0000:00:03.0", ""),
        ] {
            assert_eq!(
                root.join(link).canonicalize().unwrap(),
                function.join(target).canonicalize().unwrap(),
                "{link}"
            );
        }
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        assert_eq!(
            read("class/infiniband_verbs/uverbs3/device/modalias"),
            "pci:v000015B3d00001021sv000015B3sd00000001bc02sc07i00\n"
        );
        assert_eq!(read("class/infiniband_verbs/uverbs3/dev"), "231:195\n");
        assert_eq!(
            read("class/infiniband/mlx5_3/ports/1/gids/3"),
            "0000:0000:0000:0000:0000:ffff:7f00:0009\n"
        );
    }

    #[test]
    fn removing_a_device_leaves_the_others_and_nothing_of_it() {
        let tree = scratch("remove");
        let ip = Ipv4Addr::LOCALHOST;
        write_root(&tree.0).unwrap();
        write(&tree.0, &Identity::new(0, ip)).unwrap();
        let before = everything(&tree.0);
        write(&tree.0, &Identity::new(1, ip)).unwrap();
        assert!(everything(&tree.0).len() > before.len());
        remove(&tree.0, &Identity::new(1, ip));
        assert_eq!(everything(&tree.0), before);
    }

    fn everything(at: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                found.extend(everything(&path));
            }
            found.push(path);
        }
        found.sort();
        found
    }
}
