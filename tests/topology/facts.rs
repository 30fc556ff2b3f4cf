//! The facts of single files.

use std::fs;
use std::os::unix::fs::symlink;

use test_support::machine::MachineTree;
use warpverbs::topology::{GidKind, LinkLayer, Machine, PortState, Unread};

#[test]
fn ports_of_a_machine_have_state_link_layer_rate_and_gids() {
    let tree = MachineTree::named("two-sockets");
    let machine = Machine::read(tree.path());
    let port = |name: &str| machine.rdma_device(name).unwrap().port(1).copied().unwrap();
    let [up, down, waits] = ["mlx5_0", "mlx5_1", "mlx5_2"].map(port);
    assert_eq!(up.state, Some(PortState::Active));
    assert_eq!(up.link_layer, Some(LinkLayer::Ethernet));
    assert_eq!(up.rate_mbps, Some(100_000));
    assert_eq!(down.state, Some(PortState::Down));
    assert_eq!(waits.state, Some(PortState::Initialize));
    assert_eq!(waits.link_layer, Some(LinkLayer::InfiniBand));

    let gids = machine.gids("mlx5_0", 1);
    let indices: Vec<_> = gids.iter().map(|gid| gid.index).collect();
    assert_eq!(indices, [0, 1, 2, 3], "the last entry is not in use");
    assert_eq!(gids[3].gid.to_string(), "::ffff:10.1.0.7");
    assert_eq!(gids[3].kind, Some(GidKind::RoceV2));
    assert_eq!(gids[3].interface.as_deref(), Some("ens1f0"));
    let of_infiniband = machine.gids("mlx5_2", 1);
    assert_eq!(
        (of_infiniband.len(), of_infiniband[0].interface.clone()),
        (1, None)
    );
    for (device, port) in [
        ("mlx5_0", 2),
        ("mlx5_9", 1),
        ("../infiniband/mlx5_0", 1),
        ("", 1),
    ] {
        assert_eq!(machine.gids(device, port), [], "{device} {port}");
    }
}

#[test]
fn a_device_of_software_has_no_place_in_the_pci_tree() {
    let tree = MachineTree::named("laptop");
    let machine = Machine::read(tree.path());
    assert_eq!(machine.rdma_device("rxe0").unwrap().pci, None);
    assert_eq!(machine.rdma()[0].ports[0].rate_mbps, Some(2_500));
    let gpus: Vec<_> = machine.gpus().map(|gpu| gpu.address.to_string()).collect();
    assert_eq!(
        gpus,
        ["0000:01:00.0"],
        "the integrated GPU is another vendor's"
    );
}

#[test]
fn a_directory_without_sysfs_is_a_machine_of_which_nothing_is_known() {
    let empty = tempfile::tempdir().unwrap();
    let machine = Machine::read(empty.path());
    assert_eq!((machine.pci().count(), machine.rdma().len()), (0, 0));
    assert_eq!((machine.nodes().len(), machine.unread().len()), (0, 0));
    let missing = Machine::read(&empty.path().join("nothing"));
    assert_eq!(missing.unread(), []);
}

/// Each spoiled file loses its own fact, is named, and leaves the others as they are.
#[test]
fn a_file_that_cannot_be_a_fact_is_named_with_its_path() {
    let tree = MachineTree::named("two-sockets");
    let sys = tree.path().join("sys");
    let port = sys.join("class/infiniband/mlx5_0/ports/1");
    let gpu = sys.join("bus/pci/devices/0000:3c:00.0");
    fs::write(port.join("state"), "").unwrap();
    fs::write(port.join("link_layer"), b"Ether\xffnet\n").unwrap();
    fs::remove_file(port.join("rate")).unwrap();
    symlink("/dev/zero", port.join("rate")).unwrap();
    fs::write(gpu.join("class"), "a GPU\n").unwrap();
    fs::write(gpu.join("numa_node"), "-7\n").unwrap();
    fs::File::create(gpu.join("vendor"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    fs::remove_file(gpu.join("device")).unwrap();
    let nic = sys.join("class/infiniband/mlx5_3");
    fs::remove_file(&nic).unwrap();
    symlink("mlx5_3", &nic).unwrap();

    let machine = Machine::read(tree.path());
    let spoiled = machine.rdma_device("mlx5_0").unwrap();
    assert!(spoiled.pci.is_some());
    assert_eq!(spoiled.ports[0].state, None);
    assert_eq!(spoiled.ports[0].link_layer, None);
    assert_eq!(spoiled.ports[0].rate_mbps, None);
    let gpu = machine.pci_device("0000:3c:00.0".parse().unwrap()).unwrap();
    assert_eq!(
        (gpu.class, gpu.vendor, gpu.device, gpu.numa_node),
        (None, None, None, None)
    );
    assert_eq!(gpu.bridges.len(), 1);
    let loops = machine.rdma_device("mlx5_3").unwrap();
    assert_eq!((loops.pci, loops.ports.len()), (None, 0));
    assert_eq!(
        machine.rdma_device("mlx5_1").unwrap().ports[0].rate_mbps,
        Some(100_000)
    );

    let named: Vec<_> = machine.unread().iter().map(ToString::to_string).collect();
    let has = |path: &str, words: &str| {
        named
            .iter()
            .any(|line| line.contains(path) && line.contains(words))
    };
    assert!(has("ports/1/link_layer", "not text in UTF-8"), "{named:?}");
    assert!(has("ports/1/rate", "not a regular file"), "{named:?}");
    assert!(
        has("0000:3c:00.0/class", "'a GPU' is not a number"),
        "{named:?}"
    );
    assert!(has("0000:3c:00.0/numa_node", "'-7'"), "{named:?}");
    assert!(
        has("0000:3c:00.0/vendor", "longer than 4096 bytes"),
        "{named:?}"
    );
    assert!(has("mlx5_3", "symbolic links"), "{named:?}");
    let empty = |unread: &&Unread| unread.to_string().contains("/state");
    assert_eq!(
        machine.unread().iter().find(empty),
        None,
        "an empty file is no fact and no fault"
    );
}
