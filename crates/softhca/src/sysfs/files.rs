//! Writes and removes the files of the tree. The comments name the programs that read them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::identity::{GidType, Groups, Identity, PortIdentity};
use super::{counters, cpus};

/// Writes the class directories, and the ABI version that libibverbs requires before it looks for devices.
pub(super) fn write_root(tree: &Path) -> io::Result<()> {
    for directory in [
        "class/infiniband",
        "class/infiniband_verbs",
        "class/infiniband_mad",
        "bus/pci/devices",
    ] {
        fs::create_dir_all(tree.join(directory))?;
    }
    // libibumad looks for this file. There is no device to send management datagrams by.
    line(&tree.join("class/infiniband_mad/abi_version"), "5")?;
    line(&tree.join("class/infiniband_verbs/abi_version"), "6")
}

/// Writes everything about `device`. Its link in `class/infiniband_verbs` comes last.
pub(super) fn write(tree: &Path, device: &Identity) -> io::Result<()> {
    let pci = pci_path(device);
    let function = tree.join(&pci);
    let verbs = function.join(format!("infiniband_verbs/uverbs{}", device.index));
    let rdma = function.join(format!("infiniband/{}", device.name));
    fs::create_dir_all(&verbs)?;
    fs::create_dir_all(&rdma)?;
    write_function(&function, device)?;
    write_interfaces(&function, device)?;
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

/// Undoes [`write`], or the part of it that was done. The link in `class/infiniband_verbs` goes first.
pub(super) fn remove(tree: &Path, device: &Identity) {
    for link in class_links(device).iter().rev() {
        let _ = fs::remove_file(tree.join(&link.name));
    }
    let _ = fs::remove_file(tree.join("bus/pci/devices").join(device.pci_address()));
    let _ = fs::remove_dir_all(tree.join(pci_path(device)));
}

struct ClassLink {
    /// The path of the link in the tree.
    name: PathBuf,
    /// The path of the link's target below the PCI function.
    inside: PathBuf,
}

/// Returns the class links of `device`, in the order in which they appear.
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

/// Returns the path of the PCI function, relative to the tree.
fn pci_path(device: &Identity) -> PathBuf {
    Path::new("devices/pci0000:00").join(device.pci_address())
}

/// Writes the files of the PCI function. `modalias` decides which provider takes the device. UCX matches vendor and device, and looks at
/// the other files.
fn write_function(function: &Path, device: &Identity) -> io::Result<()> {
    let vendor = Identity::PCI_VENDOR;
    let facts = device.profile.facts();
    let device = facts.pci_device;
    let cpus = cpus::online();
    let modalias = format!("pci:v{vendor:08X}d{device:08X}sv{vendor:08X}sd00000001bc02sc07i00");
    let files: &[(&str, &str)] = &[
        ("modalias", &modalias),
        ("vendor", &format!("{vendor:#06x}")),
        ("device", &format!("{device:#06x}")),
        ("class", "0x020700"),
        ("numa_node", "-1"),
        // The device is of no NUMA node, so all processors are near to it.
        ("local_cpus", &cpus::mask(&cpus)),
        ("local_cpulist", &cpus::list(&cpus)),
        ("current_link_speed", facts.pci_speed),
        ("max_link_speed", facts.pci_speed),
        ("current_link_width", "16"),
        ("max_link_width", "16"),
    ];
    lines(function, files)
}

/// Writes links to the interfaces of the device's ports. These are interfaces of this machine.
fn write_interfaces(function: &Path, device: &Identity) -> io::Result<()> {
    let interfaces = device
        .ports()
        .iter()
        .flat_map(|port| (0..port.gids.len()).filter_map(|index| port.interface_of(index)));
    let names: BTreeSet<_> = interfaces.map(|interface| &interface.name).collect();
    for name in names {
        fs::create_dir_all(function.join("net"))?;
        symlink(
            Path::new("/sys/class/net").join(name),
            function.join("net").join(name),
        )?;
    }
    Ok(())
}

/// Writes the files that libibverbs needs to open the device.
fn write_verbs(verbs: &Path, device: &Identity) -> io::Result<()> {
    let number = device.character_device();
    let files: &[(&str, &str)] = &[
        ("ibdev", &device.name),
        (
            "dev",
            &format!("{}:{}", libc::major(number), libc::minor(number)),
        ),
        // libmlx5 accepts exactly this version.
        ("abi_version", "1"),
    ];
    lines(verbs, files)
}

/// Writes the files that describe the device and its ports.
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
    // Connection management is supported. On Ethernet, GIDs are made of IP addresses.
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
        if let Some(interface) = of.interface_of(index) {
            line(
                &port.join(format!("gid_attrs/ndevs/{index}")),
                &interface.name,
            )?;
        }
    }
    for (folder, name) in counters::names() {
        let folder = port.join(folder);
        fs::create_dir_all(&folder)?;
        line(&folder.join(name), "0")?;
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
    use crate::wire::config::CarrierConfig;
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
    fn a_device_over_udp_names_the_interface_of_its_address() {
        let tree = scratch("interface");
        let ip = Ipv4Addr::new(127, 0, 0, 9);
        let device = Identity::new(0, ip).with_interfaces(&CarrierConfig::Udp, None);
        write_root(&tree.0).unwrap();
        write(&tree.0, &device).unwrap();
        let of = tree.0.join("class/infiniband/mlx5_0");
        let read = |path: &str| fs::read_to_string(of.join(path)).unwrap();
        for index in 0..4 {
            let path = format!("ports/1/gid_attrs/ndevs/{index}");
            assert_eq!(read(&path), "lo\n");
        }
        let link = fs::read_link(of.join("device/net/lo")).unwrap();
        assert_eq!(link, Path::new("/sys/class/net/lo"));
        assert_eq!(read("ports/1/counters/port_xmit_data"), "0\n");
        assert!(!read("device/local_cpus").trim().is_empty());
        assert_eq!(device.first().mtu(), 5, "lo takes 64 KiB");
        // A second device, whose packets no interface carries.
        let other = Identity::new(1, ip);
        write(&tree.0, &other).unwrap();
        let of = tree.0.join("class/infiniband/mlx5_1");
        assert!(!of.join("ports/1/gid_attrs/ndevs/3").exists());
        assert!(!of.join("device/net").exists());
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
