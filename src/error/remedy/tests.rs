//! Rows are found, and say what to change.

use super::*;

fn advice(call: &str, memory: Option<MemoryKind>, reason: Reason) -> String {
    let remedy = Remedy {
        call,
        memory,
        reason,
    };
    remedy.to_string()
}

/// Returns the reasons that a row names. A row for all reasons names none: for it, returns a reason that no row names.
fn reasons_of(reasons: Reasons) -> Vec<Reason> {
    fn each<T: Copy>(of: &[T], other: T, as_reason: fn(T) -> Reason) -> Vec<Reason> {
        let of = if of.is_empty() { &[other] } else { of };
        of.iter().map(|one| as_reason(*one)).collect()
    }
    match reasons {
        Errno(of) => each(of, libc::EDOM, Reason::Errno),
        Status(of) => each(of, 0x77, Reason::Status),
        Cuda(of) => each(of, 4711, Reason::Cuda),
    }
}

#[test]
fn no_row_hides_another() {
    let mut seen = 0;
    for row in TABLE {
        let (call, memory, reasons, text) = *row;
        for reason in reasons_of(reasons) {
            let remedy = Remedy {
                call,
                memory,
                reason,
            };
            let found = TABLE.iter().find(|row| remedy.fits(row)).unwrap();
            assert!(std::ptr::eq(found, row), "{call} {reason:?}: {text}");
            seen += 1;
        }
    }
    println!("{} rows, {seen} reasons", TABLE.len());
}

#[test]
fn every_refusal_has_a_remedy() {
    let kinds = [None, Some(Address), Some(Dmabuf), Some(Host)];
    for call in ["ibv_reg_mr", "mlx5dv_devx_umem_reg_ex", "ibv_alloc_pd", "x"] {
        for (errno, kind) in (1..134).flat_map(|errno| kinds.map(|kind| (errno, kind))) {
            let text = advice(call, kind, Reason::Errno(errno));
            assert!(text.starts_with("; "), "{call} {errno} {kind:?}");
        }
    }
    for status in 0..=u8::MAX {
        let text = advice("CREATE_CQ", None, Reason::Status(status));
        assert!(text.starts_with("; "), "{status}");
    }
    for code in 1..1000 {
        let text = advice("cuMemAlloc", None, Reason::Cuda(code));
        assert!(text.starts_with("; "), "{code}");
        // Its error says it.
        assert_eq!(advice("cuInit", None, Reason::Cuda(code)), "");
    }
}

/// A refusal, and words of what is said of it.
type Case = (&'static str, Option<MemoryKind>, Reason, &'static str);

const OPEN: &str = "mlx5dv_open_device (with DevX)";
const UMEM: &str = "mlx5dv_devx_umem_reg_ex";
const CREATE_MKEY: &str = "CREATE_MKEY (0x200)";
const CREATE_CQ: &str = "CREATE_CQ (0x400)";
const RTS2RTS: &str = "RTS2RTS_QP (0x505)";
const LOAD: &str = "cuModuleLoadDataEx";

const CALLS: [Case; 27] = [
    (
        OPEN,
        None,
        Reason::Errno(libc::EACCES),
        "--device=/dev/infiniband",
    ),
    (OPEN, None, Reason::Errno(libc::ENOENT), "mlx5_ib"),
    (OPEN, None, Reason::Errno(libc::EOPNOTSUPP), "UCTX_EN=1"),
    (OPEN, None, Reason::Errno(libc::EIO), "dmesg (mlx5_core)"),
    (
        "ibv_reg_mr",
        Some(Address),
        Reason::Errno(libc::EFAULT),
        "nvidia_peermem",
    ),
    (
        "ibv_reg_mr",
        Some(Address),
        Reason::Errno(libc::ENOMEM),
        "may lock",
    ),
    (
        "ibv_reg_mr",
        Some(Host),
        Reason::Errno(libc::EPERM),
        "may lock",
    ),
    (
        "ibv_reg_mr",
        Some(Host),
        Reason::Errno(libc::EFAULT),
        "not mapped",
    ),
    (
        "ibv_reg_mr",
        Some(Host),
        Reason::Errno(libc::EAGAIN),
        "no room left",
    ),
    (
        "ibv_reg_dmabuf_mr",
        Some(Dmabuf),
        Reason::Errno(libc::EFAULT),
        "exporter",
    ),
    (
        "ibv_reg_dmabuf_mr",
        Some(Dmabuf),
        Reason::Errno(libc::EINVAL),
        "Linux 5.12",
    ),
    // DMA-BUFs do not count against locked memory.
    (
        "ibv_reg_dmabuf_mr",
        Some(Dmabuf),
        Reason::Errno(libc::ENOMEM),
        "BAR1",
    ),
    (UMEM, Some(Dmabuf), Reason::Errno(libc::ENOMEM), "BAR1"),
    (
        UMEM,
        Some(Address),
        Reason::Errno(libc::EFAULT),
        "WARPVERBS_QUEUES=host",
    ),
    (UMEM, Some(Host), Reason::Errno(libc::ENOMEM), "may lock"),
    (UMEM, Some(Dmabuf), Reason::Errno(libc::EINVAL), "Linux 6.0"),
    (UMEM, Some(Address), Reason::Errno(libc::EINVAL), "dmesg"),
    (
        "ibv_create_ah",
        None,
        Reason::Errno(libc::ETIMEDOUT),
        "ip neigh",
    ),
    (
        "mlx5dv_devx_alloc_uar",
        None,
        Reason::Errno(libc::ENOMEM),
        "doorbell page",
    ),
    (
        "mlx5dv_devx_alloc_uar",
        None,
        Reason::Errno(libc::EAGAIN),
        "doorbell page",
    ),
    (
        "ibv_alloc_pd",
        None,
        Reason::Errno(libc::ENOMEM),
        "rdma.max",
    ),
    (
        "ibv_alloc_pd",
        None,
        Reason::Errno(libc::EMFILE),
        "ulimit -n",
    ),
    (
        "ibv_alloc_pd",
        None,
        Reason::Errno(libc::EAGAIN),
        "no room left",
    ),
    (
        "ibv_dealloc_pd",
        None,
        Reason::Errno(libc::EBUSY),
        "reverse order of their making",
    ),
    (
        "ibv_dereg_mr",
        None,
        Reason::Errno(libc::EBUSY),
        "reverse order of their making",
    ),
    (
        "mlx5dv_devx_obj_destroy",
        None,
        Reason::Errno(libc::EBUSY),
        "reverse order of their making",
    ),
    (
        "mlx5dv_devx_obj_destroy",
        None,
        Reason::Errno(libc::EREMOTEIO),
        "dmesg",
    ),
];

const COMMANDS: [Case; 28] = [
    (
        "CREATE_QP (0x500)",
        None,
        Reason::Status(0x08),
        "WARPVERBS_LOG_DEPTH",
    ),
    (
        "CREATE_QP (0x500)",
        None,
        Reason::Status(0x0f),
        "WARPVERBS_QPS_PER_PEER",
    ),
    (
        "INIT2RTR_QP (0x503)",
        None,
        Reason::Status(0x03),
        "WARPVERBS_LAG_PORT=1",
    ),
    (
        RTS2RTS,
        None,
        Reason::Status(0x02),
        "without WARPVERBS_LAG_PORT",
    ),
    (
        RTS2RTS,
        None,
        Reason::Status(0x03),
        "without WARPVERBS_LAG_PORT",
    ),
    (RTS2RTS, None, Reason::Status(0x10), "in another state"),
    (
        CREATE_MKEY,
        None,
        Reason::Status(0x08),
        "no memory key left: fewer grants",
    ),
    (
        CREATE_MKEY,
        None,
        Reason::Status(0x0f),
        "no memory key left: fewer grants",
    ),
    (CREATE_MKEY, None, Reason::Status(0x03), "syndrome"),
    (
        CREATE_MKEY,
        None,
        Reason::Status(0x05),
        "knows the object no more",
    ),
    (
        CREATE_MKEY,
        None,
        Reason::Status(0x06),
        "reverse order of their making",
    ),
    (
        "ALLOC_Q_COUNTER (0x771)",
        None,
        Reason::Status(0x0f),
        "no counter set left",
    ),
    (CREATE_CQ, None, Reason::Status(0x01), "mlxfwreset"),
    (CREATE_CQ, None, Reason::Status(0x02), "mlxfwmanager"),
    (CREATE_CQ, None, Reason::Status(0x03), "syndrome"),
    (CREATE_CQ, None, Reason::Status(0x04), "dmesg"),
    (
        CREATE_CQ,
        None,
        Reason::Status(0x06),
        "reverse order of their making",
    ),
    (
        CREATE_CQ,
        None,
        Reason::Status(0x07),
        "starts, is reset or has failed",
    ),
    (CREATE_CQ, None, Reason::Status(0x08), "another CQ"),
    (CREATE_CQ, None, Reason::Status(0x0f), "another CQ"),
    (CREATE_CQ, None, Reason::Status(0x50), "another length"),
    (CREATE_CQ, None, Reason::Status(0x51), "another length"),
    (CREATE_CQ, None, Reason::Status(0x77), "may say more"),
    (CREATE_CQ, None, Reason::Status(0xff), "did not reach"),
    (
        "QUERY_QP (0x50b)",
        None,
        Reason::Status(0x08),
        "a limit of the device",
    ),
    (
        "QUERY_QP (0x50b)",
        None,
        Reason::Status(0x0a),
        "start the rank again",
    ),
    (
        "RTR2RTS_QP (0x504)",
        None,
        Reason::Status(0x09),
        "start the rank again",
    ),
    (
        "RTR2RTS_QP (0x504)",
        None,
        Reason::Status(0x10),
        "start the rank again",
    ),
];

const DRIVER: [Case; 19] = [
    (CUDA_OPEN, None, Reason::Cuda(46), "nvidia-smi -c DEFAULT"),
    (CUDA_OPEN, None, Reason::Cuda(2), "nvidia-smi shows"),
    (
        CUDA_OPEN,
        None,
        Reason::Cuda(101),
        "CUDA_VISIBLE_DEVICES=MIG-",
    ),
    (CUDA_OPEN, None, Reason::Cuda(802), "nvidia-fabricmanager"),
    (CUDA_OPEN, None, Reason::Cuda(214), "nvidia-smi -r"),
    (CUDA_EXPORT, None, Reason::Cuda(1), "CUDA 12.8"),
    (CUDA_EXPORT, None, Reason::Cuda(801), "nvidia-open"),
    (CUDA_EXPORT, None, Reason::Cuda(304), "ulimit -n"),
    ("cuMemHostAlloc", None, Reason::Cuda(2), "container"),
    ("cuMemAlloc", None, Reason::Cuda(2), "WARPVERBS_LOG_DEPTH"),
    (LOAD, None, Reason::Cuda(221), "NVIDIA_DRIVER_CAPABILITIES"),
    (LOAD, None, Reason::Cuda(223), "CUDA_DISABLE_PTX_JIT"),
    (LOAD, None, Reason::Cuda(209), "8.0"),
    ("cuCtxSetCurrent", None, Reason::Cuda(3), "forked"),
    (
        "cuStreamQuery",
        None,
        Reason::Cuda(700),
        "compute-sanitizer",
    ),
    ("cuStreamCreate", None, Reason::Cuda(999), "NVRM"),
    // Their errors have advice of their own.
    ("cuInit", None, Reason::Cuda(800), ""),
    ("cuMemHostRegister", None, Reason::Cuda(800), ""),
    (LOAD, None, Reason::Cuda(222), ""),
];

#[test]
fn each_row_of_the_table_names_what_to_change() {
    let mut shown = vec![false; TABLE.len()];
    for (call, memory, reason, words) in CALLS.into_iter().chain(COMMANDS).chain(DRIVER) {
        let remedy = Remedy {
            call,
            memory,
            reason,
        };
        let row = TABLE.iter().position(|row| remedy.fits(row)).unwrap();
        shown[row] = true;
        let text = remedy.to_string();
        let says = match words {
            "" => text.is_empty(),
            words => text.starts_with("; ") && text.contains(words),
        };
        assert!(says, "{call} {reason:?}: {text}");
    }
    let hidden = TABLE.iter().zip(shown).filter(|(_, shown)| !shown);
    let hidden: Vec<_> = hidden.map(|(row, _)| row).collect();
    assert!(hidden.is_empty(), "no case shows {hidden:?}");
}

/// What makes no QP is not mended by fewer QPs.
#[test]
fn only_what_takes_memory_or_objects_of_qps_is_mended_by_fewer_qps() {
    let of_keys = [
        CREATE_MKEY,
        RTS2RTS,
        "ALLOC_Q_COUNTER (0x771)",
        "QUERY_HCA_CAP (0x100)",
    ];
    for (call, status) in of_keys
        .into_iter()
        .flat_map(|call| (0..=u8::MAX).map(move |it| (call, it)))
    {
        let text = advice(call, None, Reason::Status(status));
        assert!(!text.contains("QPS_PER_PEER"), "{call} {status:#x}: {text}");
    }
}

#[test]
fn a_limit_of_locked_memory_is_reported_with_its_value() {
    let told = |limit| Locked(limit).to_string();
    assert!(told(Some(65_536)).starts_with("this process may lock 64 KiB of memory: "));
    assert!(told(Some(0)).starts_with("this process may lock 0 KiB"));
    assert!(told(None).contains("any amount"));
    let registered = advice("ibv_reg_mr", Some(Address), Reason::Errno(libc::ENOMEM));
    assert!(registered.contains("this process may lock"), "{registered}");
}

#[test]
fn a_device_that_cannot_be_opened_is_named_by_its_node() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path();
    for (node, device) in [
        ("uverbs0", "mlx5_0\n"),
        ("uverbs12", "mlx5_1\n"),
        ("abi", ""),
    ] {
        fs::create_dir(root.join(node)).unwrap();
        fs::write(root.join(node).join("ibdev"), device).unwrap();
    }
    fs::create_dir(root.join("uverbs3")).unwrap();
    assert_eq!(node_of(root, "mlx5_1").as_deref(), Some("uverbs12"));
    for absent in ["mlx5_2", "mlx5", ""] {
        assert_eq!(node_of(root, absent), None, "{absent}");
    }
    assert_eq!(node_of(&root.join("none"), "mlx5_1"), None);
    // A device that sysfs does not show: the text stays as it is.
    let remedy = Remedy {
        call: "mlx5dv_open_device (with DevX)",
        memory: None,
        reason: Reason::Errno(libc::EACCES),
    };
    let text = OnDevice {
        device: "no device",
        remedy,
    };
    assert_eq!(text.to_string(), remedy.to_string());
    assert!(text.to_string().contains("/dev/infiniband/uverbsN"));
}
