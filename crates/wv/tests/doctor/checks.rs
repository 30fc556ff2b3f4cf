//! Each check, made missing or degraded.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use test_support::fake_cuda::{Fake, FakeDriver};
use test_support::machine::MachineTree;

use crate::examined::{Examined, doctor, simulated};
use crate::frame::ids;

/// A check that a change of a machine makes worse.
struct Case {
    id: &'static str,
    subject: &'static str,
    state: &'static str,
    /// What is said to mend it.
    mend: &'static str,
    /// A file of the tree with its text.
    files: &'static [(&'static str, &'static str)],
}

/// A machine of two sockets with an Ethernet card, whose second port is down.
const MACHINE: &str = "two-sockets";
const NIC: &str = "sys/class/infiniband/mlx5_0";
const PCI: &str = "sys/bus/pci/devices/0000:3b:00.0";

const fn case(
    id: &'static str,
    (subject, state): (&'static str, &'static str),
    mend: &'static str,
    files: &'static [(&'static str, &'static str)],
) -> Case {
    Case {
        id,
        subject,
        state,
        mend,
        files,
    }
}

const MACHINE_IS: (&str, &str) = ("", "degraded");
const MACHINE_LACKS: (&str, &str) = ("", "missing");
const NIC_IS: (&str, &str) = ("mlx5_0", "degraded");
const NIC_LACKS: (&str, &str) = ("mlx5_0", "missing");

const IN_A_TREE: &[Case] = &[
    case(
        "page-size",
        MACHINE_IS,
        "CONFIG_ARM64_4K_PAGES",
        &[(
            "proc/self/smaps",
            "7f0-7f1 r--p\nKernelPageSize:       64 kB",
        )],
    ),
    case(
        "kernel",
        MACHINE_IS,
        "DOCA-OFED",
        &[("proc/sys/kernel/osrelease", "5.15.0-91-generic")],
    ),
    // A tree without /proc.
    case("kernel", MACHINE_LACKS, "mount -t proc", &[]),
    case(
        "uverbs",
        MACHINE_LACKS,
        "--device=/dev/infiniband",
        &[("sys/class/infiniband_verbs/uverbs0/dev", "231:192")],
    ),
    case(
        "container",
        MACHINE_IS,
        "rdma.max",
        &[
            (".dockerenv", ""),
            (
                "sys/fs/cgroup/rdma.max",
                "mlx5_0 hca_handle=2 hca_object=max",
            ),
        ],
    ),
    case(
        "locked-memory",
        MACHINE_IS,
        "ulimit -l",
        &[(
            "proc/self/limits",
            "Max locked memory         65536                65536                bytes",
        )],
    ),
    case(
        "iommu",
        MACHINE_IS,
        "iommu=pt",
        &[
            ("sys/class/iommu/dmar0/name", "dmar0"),
            ("sys/kernel/iommu_groups/1/type", "DMA-FQ"),
        ],
    ),
    case(
        "peer-memory",
        MACHINE_IS,
        "modprobe nvidia_peermem",
        &[(
            "proc/modules",
            "nvidia 9 1 - Live 0x0\nib_core 9 1 - Live 0x0",
        )],
    ),
    case(
        "nvreg",
        MACHINE_IS,
        "PeerMappingOverride=1",
        &[(
            "proc/driver/nvidia/params",
            "ResmanDebugLevel: 1\nRegistryDwords: \"\"",
        )],
    ),
    case(
        "nic-model",
        NIC_IS,
        "ConnectX-6",
        &[("sys/bus/pci/devices/0000:3b:00.0/device", "0x1013")],
    ),
    case("nic-devx", NIC_LACKS, "UCTX_EN=1", &[]),
    case("nic-port", ("mlx5_1", "missing"), "ip link set", &[]),
    case(
        "nic-speed",
        NIC_IS,
        "lspci -vv",
        &[
            (
                "sys/bus/pci/devices/0000:3b:00.0/current_link_speed",
                "16.0 GT/s PCIe",
            ),
            (
                "sys/bus/pci/devices/0000:3b:00.0/max_link_speed",
                "16.0 GT/s PCIe",
            ),
            ("sys/bus/pci/devices/0000:3b:00.0/current_link_width", "8"),
            ("sys/bus/pci/devices/0000:3b:00.0/max_link_width", "16"),
        ],
    ),
    case(
        "nic-link-layer",
        NIC_LACKS,
        "LINK_TYPE_P1",
        &[(
            "sys/class/infiniband/mlx5_0/ports/1/link_layer",
            "Token Ring",
        )],
    ),
    case(
        "nic-gid",
        NIC_LACKS,
        "ip addr add",
        &[
            (
                "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/1",
                "IB/RoCE v1",
            ),
            (
                "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3",
                "IB/RoCE v1",
            ),
        ],
    ),
    case(
        "nic-mtu",
        NIC_IS,
        "mtu 9000",
        &[("sys/class/net/ens1f0/mtu", "1500")],
    ),
    case(
        "nic-lag",
        NIC_IS,
        "802.3ad",
        &[("sys/class/net/ens1f0/master/bonding/mode", "balance-rr 0")],
    ),
    case(
        "nic-function",
        NIC_IS,
        "trust on",
        &[("sys/bus/pci/devices/0000:3b:00.0/device", "0x101e")],
    ),
    case(
        "nic-retransmission",
        NIC_IS,
        "roce_adp_retrans_en",
        &[(
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/roce_adp_retrans",
            "7",
        )],
    ),
    case(
        "nic-losses",
        NIC_IS,
        "mlnx_qos",
        &[(
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err",
            "3",
        )],
    ),
];

/// A check that the words of `how` make worse; the tests below say what each word is.
struct Worse {
    id: &'static str,
    /// Subject and state.
    seen: (&'static str, &'static str),
    mend: &'static str,
    how: &'static [&'static str],
}

const fn worse(
    id: &'static str,
    seen: (&'static str, &'static str),
    mend: &'static str,
    how: &'static [&'static str],
) -> Worse {
    Worse {
        id,
        seen,
        mend,
        how,
    }
}

const GPU_IS: (&str, &str) = ("gpu 0", "degraded");
const PAIR_IS: (&str, &str) = ("with mlx5_0", "degraded");

/// On a machine without anything.
const OF_NOTHING: &[Worse] = &[
    worse(
        "rdma-core",
        MACHINE_LACKS,
        "apt-get install libibverbs1",
        &[],
    ),
    worse("nic", MACHINE_LACKS, "wv sim -- wv doctor", &[]),
];

/// By a driver that does what the second word says, in the groups of the first.
const BY_A_DRIVER: &[Worse] = &[
    worse("gpu", MACHINE_IS, "--gpus all", &["gpu", "devices 0"]),
    // PTX of CUDA 13 on a driver of 12.0, and no NVRTC.
    worse(
        "cuda-driver",
        MACHINE_LACKS,
        "driver release",
        &["software", "driver 12000"],
    ),
    worse(
        "nvrtc",
        MACHINE_LACKS,
        "WARPVERBS_NVRTC",
        &["software", "driver 12000"],
    ),
    worse(
        "gpu-memory",
        GPU_IS,
        "WARPVERBS_LOG_DEPTH",
        &["gpu", "memory 1073741824"],
    ),
    worse("gpu-bar1", GPU_IS, "Resizable BAR", &["gpu", ""]),
    worse(
        "gpu-dmabuf",
        GPU_IS,
        "nvidia-open",
        &["gpu", "attribute 124 0"],
    ),
    worse(
        "gpu-direct",
        GPU_IS,
        "WARPVERBS_QUEUES=host",
        &["gpu", "attribute 116 0"],
    ),
    worse(
        "gpu-ordering",
        GPU_IS,
        "WARPVERBS_MOE_ORDER=flush",
        &["gpu", "attribute 118 0"],
    ),
    worse(
        "gpu-compute-mode",
        GPU_IS,
        "-c DEFAULT",
        &["gpu", "attribute 20 3"],
    ),
    worse(
        "gpu-compute-mode",
        ("gpu 0", "missing"),
        "-c DEFAULT",
        &["gpu", "attribute 20 2"],
    ),
    worse("gpu-mig", GPU_IS, "-mig 0", &["gpu", ""]),
    worse(
        "gpu-confidential",
        GPU_IS,
        "--set-cc-mode=off",
        &["gpu", ""],
    ),
];

/// Of a GPU that is far from the NIC, below a bridge that redirects.
const OF_A_PAIR: &[Worse] = &[
    worse("pair-distance", PAIR_IS, "WARPVERBS_DEVICE=auto", &[]),
    worse("pair-acs", PAIR_IS, "setpci -s", &[]),
    // libibverbs finds no NIC of the tree.
    worse(
        "pair-auto",
        ("with mlx5_0", "missing"),
        "WARPVERBS_DEVICE=NAME:PORT",
        &[],
    ),
];

/// On a software HCA: variables have an equals sign, other words are options of `wv sim`.
const ON_A_SOFTWARE_HCA: &[Worse] = &[
    worse(
        "nic-order",
        NIC_IS,
        "WARPVERBS_MOE_ORDER=auto",
        &["SOFTHCA_ORDER=flush"],
    ),
    worse(
        "nic-atomics",
        NIC_IS,
        "WARPVERBS_MOE_ORDER=inline or flush",
        &["--profile", "cx5"],
    ),
    worse(
        "nic-reads",
        NIC_IS,
        "both sides take the smaller number",
        &["--profile", "cx5"],
    ),
    worse(
        "nic-no-record",
        NIC_IS,
        "ConnectX-7 with later firmware",
        &["--profile", "cx5"],
    ),
    worse(
        "nic-engine",
        MACHINE_IS,
        "WARPVERBS_DEVICE=NAME:PORT",
        &["WARPVERBS_DEVICE=mlx5_9"],
    ),
    worse(
        "pair-signals",
        NIC_IS,
        "nic-order",
        &["SOFTHCA_ORDER=flush"],
    ),
    worse(
        "pair-doorbells",
        NIC_IS,
        "WARPVERBS_DOORBELL=mailbox",
        &["WARPVERBS_DOORBELL=mailbox"],
    ),
    worse(
        "pair-queues",
        NIC_IS,
        "gpu-dmabuf",
        &["WARPVERBS_QUEUES=host"],
    ),
    worse(
        "pair-windows",
        NIC_IS,
        "gpu-direct",
        &["WARPVERBS_MEMORY=host"],
    ),
    // No step of any ladder holds where no QP can be made.
    worse(
        "pair-queues",
        NIC_LACKS,
        "WARPVERBS_QUEUES=host",
        &["--fault", NO_QPS],
    ),
    worse(
        "pair-loopback",
        NIC_IS,
        "WARPVERBS_DOORBELL=mailbox",
        &["--fault", "cmd=CREATE_QP#3:status=0x5"],
    ),
];

const NO_QPS: &str = "cmd=CREATE_QP#1:status=0x5,cmd=CREATE_QP#2:status=0x5,cmd=CREATE_QP#3:status=0x5,\
    cmd=CREATE_QP#4:status=0x5,cmd=CREATE_QP#5:status=0x5,cmd=CREATE_QP#6:status=0x5,\
    cmd=CREATE_QP#7:status=0x5,cmd=CREATE_QP#8:status=0x5";

/// With this store.
const BY_A_STORE: &[Worse] = &[worse(
    "store",
    MACHINE_LACKS,
    "WARPVERBS_STORE=file:///DIRECTORY",
    &["file:///nonexistent/store"],
)];

#[test]
fn each_check_is_made_worse_by_one_test() {
    let tables = [
        OF_NOTHING,
        BY_A_DRIVER,
        OF_A_PAIR,
        ON_A_SOFTWARE_HCA,
        BY_A_STORE,
    ];
    let elsewhere = tables.into_iter().flatten().map(|worse| worse.id);
    let here = IN_A_TREE.iter().map(|case| case.id);
    let all: BTreeSet<String> = here.chain(elsewhere).map(str::to_owned).collect();
    assert_eq!(all, ids());
}

#[test]
fn what_a_machine_lacks_is_said_with_what_mends_it() {
    for case in IN_A_TREE {
        let tree = MachineTree::named(MACHINE);
        for (file, text) in case.files {
            write(tree.path(), file, text);
        }
        let root = tree.path().to_str().unwrap();
        let found = Examined::by(doctor(&[
            "--json",
            "--only",
            "software,machine,nic",
            "--root",
            root,
        ]));
        is(&found, case.subject, case.id, case.state, case.mend);
    }
}

#[test]
fn a_whole_machine_of_a_tree_is_ok_in_what_its_files_say() {
    let tree = MachineTree::named(MACHINE);
    for (file, text) in [
        ("proc/sys/kernel/osrelease", "6.8.0-31-generic"),
        (
            "proc/self/limits",
            "Max locked memory         unlimited            unlimited            bytes",
        ),
        (
            "proc/modules",
            "nvidia 9 1 - Live 0x0\nnvidia_peermem 9 1 - Live 0x0",
        ),
        (
            "proc/driver/nvidia/params",
            "RegistryDwords: \"PeerMappingOverride=1;\"",
        ),
        ("sys/class/iommu/dmar0/name", "dmar0"),
        ("sys/kernel/iommu_groups/1/type", "identity"),
        ("sys/class/infiniband_verbs/uverbs0/dev", "231:192"),
        ("dev/infiniband/uverbs0", ""),
        ("sys/class/net/ens1f0/mtu", "9000"),
    ] {
        write(tree.path(), file, text);
    }
    let root = tree.path().to_str().unwrap();
    let found = Examined::by(doctor(&["--json", "--only", "machine,nic", "--root", root]));
    for id in [
        "kernel",
        "uverbs",
        "container",
        "locked-memory",
        "iommu",
        "peer-memory",
        "nvreg",
    ] {
        assert_eq!(
            found.check("", id)["state"],
            "ok",
            "{:#}",
            found.check("", id)
        );
    }
    for id in [
        "nic-model",
        "nic-port",
        "nic-speed",
        "nic-link-layer",
        "nic-gid",
        "nic-mtu",
        "nic-function",
        "nic-losses",
    ] {
        assert_eq!(
            found.check("mlx5_0", id)["state"],
            "ok",
            "{:#}",
            found.check("mlx5_0", id)
        );
    }
    assert!(tree.path().join(NIC).exists() && tree.path().join(PCI).exists());
}

#[test]
fn a_machine_without_nic_gpu_and_libraries_says_what_to_install() {
    let tree = tempfile::tempdir().unwrap();
    // What is no library comes before the system's.
    for name in ["libmlx5.so.1", "libmlx5.so"] {
        write(tree.path(), name, "no library");
    }
    let root = tree.path().to_str().unwrap();
    let mut command = doctor(&["--json", "--only", "software,nic,gpu", "--root", root]);
    command.env("LD_LIBRARY_PATH", root);
    let found = Examined::by(command);
    assert_eq!(found.status, Some(1));
    for worse in OF_NOTHING {
        worse.is_seen(&found);
    }
}

#[test]
fn what_a_gpu_lacks_is_said_with_what_mends_it() {
    // PCI address 0000:86:00.0, on the other socket than mlx5_0.
    const AT: &str = "attribute 33 134\n";
    FakeDriver::new(AT).run(|fake| {
        let tree = MachineTree::named(MACHINE);
        let root = tree.path().to_str().unwrap();
        write(
            tree.path(),
            "sys/bus/pci/devices/0000:86:00.0/resource",
            "0x1000 0x1fff 0x0\n0x4000000000 0x400fffffff 0x0",
        );
        for worse in BY_A_DRIVER {
            let [groups, settings] = worse.how else {
                panic!("{}: groups and settings", worse.id);
            };
            fake.set(&format!("{AT}{settings}"));
            let mut command = doctor(&["--json", "--only", groups, "--root", root]);
            with_nvidia_smi(fake, &mut command);
            worse.is_seen(&Examined::by(command));
        }
    });
}

#[test]
fn what_a_pair_lacks_is_said_with_what_mends_it() {
    const AT: &str = "attribute 33 134\n";
    FakeDriver::new(AT).run(|_| {
        let tree = MachineTree::named(MACHINE);
        let root = tree.path().to_str().unwrap();
        // The bridge above the GPU redirects: a configuration of 4 KiB with that capability.
        let mut config = vec![0; 4096];
        config[0x100..0x108].copy_from_slice(&[0x0d, 0, 1, 0, 0x5f, 0, 0x1d, 0]);
        for bridge in [
            "0000:85:00.0",
            "0000:3a:00.0",
            "0000:5d:00.0",
            "0000:ae:00.0",
        ] {
            let file = tree
                .path()
                .join(format!("sys/bus/pci/devices/{bridge}/config"));
            fs::write(file, &config).unwrap();
        }
        let found = Examined::by(doctor(&["--json", "--only", "pair", "--root", root]));
        for worse in OF_A_PAIR {
            worse.is_seen(&found);
        }
        assert_eq!(found.check("with mlx5_0", "pair-distance")["found"], "SYS");
        let on = found.check("with mlx5_0", "pair-acs")["found"]
            .as_str()
            .unwrap();
        assert!(
            on.contains("0000:85:00.0") && on.contains("0000:3a:00.0"),
            "{on}"
        );
        assert_eq!(
            found.check("with mlx5_0", "pair-queues")["state"],
            "not-looked-at"
        );
    });
}

#[test]
fn what_a_software_hca_refuses_is_said_with_what_mends_it() {
    let scratch = tempfile::tempdir().unwrap();
    let look = |how: &[&str], more: &[&str]| {
        let (variables, options): (Vec<&str>, Vec<&str>) = how.iter().partition(|word| {
            word.split_once('=')
                .is_some_and(|(name, _)| is_variable(name))
        });
        let arguments = [&["--json", "--only", "nic,pair"], more].concat();
        let mut command = simulated(scratch.path(), &options, &arguments);
        command.envs(variables.iter().filter_map(|word| word.split_once('=')));
        Examined::by(command)
    };
    for worse in ON_A_SOFTWARE_HCA {
        let more: &[&str] = match worse.id {
            "pair-loopback" => &["--loopback"],
            _ => &[],
        };
        let found = look(worse.how, more);
        worse.is_seen(&found);
        let is_usable = found.json["usable"].as_bool().unwrap();
        assert_eq!(is_usable, worse.seen.1 == "degraded", "{}", worse.id);
    }
    let whole = look(&["WARPVERBS_GPU=simt-dmabuf"], &[]);
    let queues = whole.check("mlx5_0", "pair-queues");
    assert_eq!(queues["state"], "ok", "{queues:#}");
    assert_eq!(queues["found"], "by dmabuf (PCIe)");
}

/// Returns whether an equals sign after this makes it a variable.
fn is_variable(name: &str) -> bool {
    ["WARPVERBS_", "SOFTHCA_"]
        .iter()
        .any(|begin| name.starts_with(begin))
}

#[test]
fn a_store_that_cannot_be_had_is_said_with_what_mends_it() {
    for worse in BY_A_STORE {
        let [store] = worse.how else {
            panic!("{}: a store", worse.id);
        };
        let command = doctor(&["--json", "--only", "store", "--store", store]);
        worse.is_seen(&Examined::by(command));
    }
}

#[test]
fn a_gpu_that_does_not_do_what_it_should_is_said_with_what_mends_it() {
    FakeDriver::new("").run(|fake| {
        let scratch = tempfile::tempdir().unwrap();
        let arguments = ["--json", "--only", "pair", "--loopback"];
        let look = || Examined::by(simulated(scratch.path(), &[], &arguments));
        // Kernels of this driver end at once and do nothing.
        let idle = look();
        is(
            &idle,
            "gpu 0 with mlx5_0",
            "pair-loopback",
            "missing",
            "WARPVERBS_DOORBELL=mailbox",
        );
        let why = idle.check("gpu 0 with mlx5_0", "pair-loopback")["found"]
            .as_str()
            .unwrap();
        assert_eq!(
            why.matches("64 KiB from rank 0: timeout").count(),
            5,
            "{why}"
        );
        assert_eq!(
            idle.check("gpu 0 with mlx5_0", "pair-doorbells")["state"],
            "ok"
        );
        // The one kernel, and none of the library or of the measurements.
        assert_eq!(fake.calls("cuModuleLoadDataEx").len(), 1);
        fake.set("refuse cuMemHostRegister_v2 800");
        let unmapped = look();
        is(
            &unmapped,
            "gpu 0 with mlx5_0",
            "pair-doorbells",
            "degraded",
            "nvreg",
        );
        let why = unmapped.check("gpu 0 with mlx5_0", "pair-loopback")["found"]
            .as_str()
            .unwrap();
        assert!(why.contains("the GPU does not map the register"), "{why}");
    });
}

/// A program of this name that says that MIG and confidential mode are on.
fn with_nvidia_smi(fake: &Fake, command: &mut Command) {
    let folder = fake.file("bin");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("nvidia-smi");
    let script =
        "#!/bin/sh\ncase $1 in conf-compute) echo 'CC status: ON' ;; *) echo Enabled ;; esac\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
}

impl Worse {
    /// The check has its state, and says what mends it.
    fn is_seen(&self, found: &Examined) {
        let (subject, state) = self.seen;
        is(found, subject, self.id, state, self.mend);
    }
}

/// That a check has this state, and says that this mends it.
fn is(found: &Examined, subject: &str, id: &str, state: &str, mend: &str) {
    let check = found.check(subject, id);
    assert_eq!(check["state"], state, "{check:#}");
    let said = check["mend"].as_str().unwrap();
    assert!(said.contains(mend), "{id}: {said}");
}

/// A file of a tree, with the directories above it.
fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}
