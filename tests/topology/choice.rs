//! Which NIC each rank of a machine gets.

use test_support::machine::MachineTree;
use warpverbs::topology::{Candidate, Distance, LinkLayer, Machine, PciAddress, Reason, Wish};

/// The first choice of each rank, one per GPU of the machine.
fn first_choices(machine: &Machine, layer: LinkLayer) -> Vec<Candidate> {
    let gpus: Vec<_> = machine.gpus().map(|gpu| Some(gpu.address)).collect();
    let first = |place| {
        let wish = Wish {
            gpus: &gpus,
            place,
            link_layer: Some(layer),
            ..Wish::default()
        };
        let choice = wish.choose(machine, |_, _| Ok(()));
        choice.candidates[0].clone()
    };
    (0..gpus.len()).map(first).collect()
}

fn names(chosen: &[Candidate]) -> Vec<String> {
    chosen
        .iter()
        .map(|one| format!("{}:{}", one.device, one.port))
        .collect()
}

#[test]
fn each_gpu_of_a_dgx_h100_has_the_nic_that_its_manual_says() {
    let tree = MachineTree::named("dgx-h100");
    let machine = Machine::read(tree.path());
    let chosen = first_choices(&machine, LinkLayer::InfiniBand);
    let by_manual = [0, 3, 4, 5, 6, 9, 10, 11].map(|number| format!("mlx5_{number}:1"));
    assert_eq!(names(&chosen), by_manual);
    assert!(
        chosen.iter().all(|one| one.distance == Some(Distance::Pix)),
        "{chosen:?}"
    );
    // For RoCE only the storage cards are left: each GPU takes the card of its own socket.
    let roce = names(&first_choices(&machine, LinkLayer::Ethernet));
    assert_eq!(roce[..4], ["mlx5_2:1"; 4]);
    assert_eq!(roce[4..], ["mlx5_8:1"; 4]);
}

#[test]
fn ranks_that_have_the_same_nics_take_them_in_turn() {
    let tree = MachineTree::named("dgx-a100");
    let machine = Machine::read(tree.path());
    let chosen = first_choices(&machine, LinkLayer::InfiniBand);
    assert_eq!(
        names(&chosen),
        ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1"]
    );
    assert!(
        chosen.iter().all(|one| one.distance == Some(Distance::Pxb)),
        "{chosen:?}"
    );
    // Also where the launcher has put the second GPU of each node first.
    let gpus = ["0f", "4e", "07", "47"].map(|bus| format!("0000:{bus}:00.0").parse().ok());
    let first = |place| {
        let wish = Wish {
            gpus: &gpus,
            place,
            ..Wish::default()
        };
        wish.choose(&machine, |_, _| Ok(())).candidates[0]
            .device
            .clone()
    };
    assert_eq!(
        [0, 1, 2, 3].map(first),
        ["mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3"]
    );
}

#[test]
fn a_bond_for_management_is_behind_those_of_the_gpus() {
    let tree = MachineTree::named("bonds");
    let machine = Machine::read(tree.path());
    let chosen = names(&first_choices(&machine, LinkLayer::Ethernet));
    assert_eq!(
        chosen,
        [1, 2, 3, 4].map(|bond| format!("mlx5_bond_{bond}:1"))
    );
    let gpus: Vec<_> = machine.gpus().map(|gpu| Some(gpu.address)).collect();
    let wish = Wish {
        gpus: &gpus,
        ..Wish::default()
    };
    let order = names(&wish.choose(&machine, |_, _| Ok(())).candidates);
    // The own one, the other of the node, the slow one of the node, the other node.
    assert_eq!(
        order,
        [1, 2, 0, 3, 4].map(|bond| format!("mlx5_bond_{bond}:1"))
    );
}

#[test]
fn equals_without_bridges_are_shared_by_the_ranks_of_their_node() {
    let tree = MachineTree::named("azure-nd-a100-v4");
    let machine = Machine::read(tree.path());
    let chosen = first_choices(&machine, LinkLayer::InfiniBand);
    assert_eq!(
        names(&chosen),
        [0, 1, 2, 3, 4, 5, 6, 7].map(|vf| format!("mlx5_ib{vf}:1"))
    );
    assert!(
        chosen
            .iter()
            .all(|one| one.distance == Some(Distance::Node)),
        "{chosen:?}"
    );
    let grace = MachineTree::named("grace-64k");
    let machine = Machine::read(grace.path());
    let chosen = names(&first_choices(&machine, LinkLayer::InfiniBand));
    assert_eq!(chosen, ["mlx5_0:1", "mlx5_0:1", "mlx5_1:1", "mlx5_1:1"]);
}

#[test]
fn what_a_rank_passes_over_is_named_with_the_reason() {
    let tree = MachineTree::named("two-sockets");
    let machine = Machine::read(tree.path());
    let gpus: Vec<_> = machine.gpus().map(|gpu| Some(gpu.address)).collect();
    let wish = Wish {
        gpus: &gpus,
        link_layer: Some(LinkLayer::Ethernet),
        ..Wish::default()
    };
    let choice = wish.choose(&machine, |device, _| match device.name.as_str() {
        "mlx5_3" => Err(Reason::LeftOut),
        _ => Ok(()),
    });
    assert_eq!(names(&choice.candidates), ["mlx5_0:1"]);
    assert_eq!(choice.candidates[0].distance, Some(Distance::Phb));
    let told: Vec<_> = choice.passed_over.iter().map(ToString::to_string).collect();
    let wanted = [
        "mlx5_1 port 1: the port is down, not active: is the cable of port 1 in, and on Ethernet its interface up (ip link)?",
        "mlx5_2 port 1: the port is InfiniBand, not Ethernet",
        "mlx5_3 port 1: the configuration leaves it out",
    ];
    assert_eq!(told, wanted);
    let infiniband = Wish {
        link_layer: Some(LinkLayer::InfiniBand),
        ..wish
    };
    let choice = infiniband.choose(&machine, |_, _| Ok(()));
    assert_eq!(choice.candidates, []);
    let told = choice.passed_over[2].to_string();
    assert_eq!(
        told,
        "mlx5_2 port 1: the port is initialize (no subnet manager has been there), not active"
    );
}

/// Without a GPU, or with one that the machine does not show, all NICs are as far; the fastest go first, in turn.
#[test]
fn ranks_without_a_gpu_take_the_fastest_in_turn() {
    let tree = MachineTree::named("bonds");
    let machine = Machine::read(tree.path());
    let unknown: PciAddress = "0000:ff:1f.7".parse().unwrap();
    for gpus in [&[][..], &[None; 8], &[Some(unknown); 8]] {
        let first = |place| {
            let wish = Wish {
                gpus,
                place,
                ..Wish::default()
            };
            wish.choose(&machine, |_, _| Ok(())).candidates[0].clone()
        };
        let chosen: Vec<_> = (0..6).map(first).collect();
        assert_eq!(
            names(&chosen),
            [1, 2, 3, 4, 1, 2].map(|bond| format!("mlx5_bond_{bond}:1"))
        );
        assert!(chosen.iter().all(|one| one.distance.is_none()));
    }
    let nothing = Machine::read(tempfile::tempdir().unwrap().path());
    let far = Wish {
        place: usize::MAX,
        ..Wish::default()
    };
    assert_eq!(far.choose(&nothing, |_, _| Ok(())).candidates, []);
    assert_eq!(far.choose(&machine, |_, _| Ok(())).candidates.len(), 5);
}

/// Two ports that are as fast on each of two nodes, a slower one beside the first pair, and one of software.
const TWO_NODES: &str = "\
numa 0 cpus 0-3
numa 1 cpus 4-7
root 0000:10 numa 0
  10:00.0 bridge 8086:2030
    11:00.0 eth 15b3:1021
      rdma mlx5_0
        port 1 Ethernet ACTIVE 200 ens0 10.1.0.7
        port 2 Ethernet DOWN 200 ens1 10.1.1.7
    12:00.0 eth 15b3:1021
      rdma mlx5_1
        port 1 Ethernet ACTIVE 100 ens2 10.1.2.7
    13:00.0 eth 15b3:1021
      rdma mlx5_2
        port 1 Ethernet ACTIVE 200 ens3 10.1.3.7
root 0000:80 numa 1
  80:00.0 bridge 8086:2030
    81:00.0 eth 15b3:1021
      rdma mlx5_3
        port 1 Ethernet ACTIVE 200 ens4 10.1.4.7
    82:00.0 eth 15b3:1021
      rdma mlx5_4
        port 1 Ethernet ACTIVE 200 ens5 10.1.5.7
rdma mlx5_9
  port 1 Ethernet ACTIVE 400 ens9 10.1.9.7
";

#[test]
fn without_a_gpu_ports_of_the_node_of_the_cpus_go_first() {
    let tree = MachineTree::of(TWO_NODES);
    let machine = Machine::read(tree.path());
    let node_of = |cpus: &str| machine.node_of(&cpus.parse().unwrap());
    for (cpus, node) in [
        ("0-3", Some(0)),
        ("2", Some(0)),
        ("4,7", Some(1)),
        ("3-4", None),
        ("7-8", None),
    ] {
        assert_eq!(node_of(cpus), node, "{cpus}");
    }
    let seen_from = |node| {
        let wish = Wish {
            node,
            ..Wish::default()
        };
        wish.choose(&machine, |_, _| Ok(())).candidates
    };
    for (node, expected) in [
        (Some(0), [0, 2, 1, 3, 4, 9]),
        (Some(1), [3, 4, 0, 2, 1, 9]),
        // Nothing is near: the fastest first.
        (None, [9, 0, 2, 3, 4, 1]),
        // As far from all.
        (Some(7), [0, 2, 3, 4, 1, 9]),
    ] {
        let ports = expected.map(|number| format!("mlx5_{number}:1"));
        assert_eq!(names(&seen_from(node)), ports, "{node:?}");
    }
    let near = seen_from(Some(1));
    let distances: Vec<_> = near.iter().map(|port| port.distance).collect();
    let [node, sys] = [Some(Distance::Node), Some(Distance::Sys)];
    assert_eq!(distances, [node, node, sys, sys, sys, None]);
    let as_good: Vec<_> = near.iter().map(|it| it.is_as_good_as(&near[0])).collect();
    assert_eq!(as_good, [true, true, false, false, false, false]);
    let words = [&near[0], &near[5]].map(ToString::to_string);
    assert_eq!(
        words,
        ["mlx5_3 port 1 (NODE, 200 Gb/s)", "mlx5_9 port 1 (400 Gb/s)"]
    );
}

/// The node counts for a rank without a GPU alone, and for no other rank of the machine.
#[test]
fn a_gpu_stands_before_the_node_of_the_cpus() {
    let tree = MachineTree::named("two-sockets");
    let machine = Machine::read(tree.path());
    let gpus: Vec<_> = machine.gpus().map(|gpu| Some(gpu.address)).collect();
    for node in [None, Some(0), Some(1)] {
        for (place, expected) in [(0, Distance::Phb), (3, Distance::Node)] {
            let wish = Wish {
                gpus: &gpus,
                place,
                node,
                link_layer: Some(LinkLayer::Ethernet),
            };
            let first = wish.choose(&machine, |_, _| Ok(())).candidates[0].clone();
            assert_eq!(first.distance, Some(expected), "{place}, {node:?}");
        }
    }
    let tree = MachineTree::of(TWO_NODES);
    let machine = Machine::read(tree.path());
    // The rank before this one is not known to look near node 1, so it takes no turn of these ports.
    let wish = Wish {
        gpus: &[None],
        place: 1,
        node: Some(1),
        link_layer: None,
    };
    let order = names(&wish.choose(&machine, |_, _| Ok(())).candidates);
    assert_eq!(order[..2], ["mlx5_3:1", "mlx5_4:1"]);
}
