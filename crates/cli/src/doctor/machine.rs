//! The checks of Linux kernel, device files and limits.

use super::check::{Check, Look};
use super::tree::Tree;

pub(super) const CHECKS: &[Check<Tree>] = &[
    Check {
        id: "kernel",
        what: "kernel",
        why: "DevX needs Linux 5.1, memory regions by DMA-BUF 5.12, queues in GPU memory by DMA-BUF (UMEMs) 6.0, or OFED 23.07.",
        mend: "Install a later kernel (apt-get install linux-image-amd64 from backports), or DOCA-OFED. Until then: nvidia_peermem, or \
               WARPVERBS_QUEUES=host. Where /proc is missing: mount -t proc proc /proc.",
        look: kernel,
    },
    Check {
        id: "uverbs",
        what: "device files of NICs",
        why: "A process opens a NIC through /dev/infiniband/uverbsN, to read and write.",
        mend: "modprobe ib_uverbs mlx5_ib. In a container: docker run --device=/dev/infiniband. For the rights: a udev rule with \
               MODE=\"0666\", as rdma-core installs it.",
        look: uverbs,
    },
    Check {
        id: "container",
        what: "limits of the container",
        why: "The cgroup of a container may limit memory, and how many objects of a NIC its processes make.",
        mend: "docker run --memory with more, or none; write 'DEVICE hca_handle=max hca_object=max' to rdma.max of the cgroup.",
        look: container,
    },
    Check {
        id: "locked-memory",
        what: "locked memory",
        why: "Memory that a NIC reads and writes is locked, and counts against this limit of the process.",
        mend: "ulimit -l unlimited; docker run --ulimit memlock=-1 or --cap-add=IPC_LOCK; LimitMEMLOCK=infinity of systemd.",
        look: locked_memory,
    },
    Check {
        id: "iommu",
        what: "IOMMU",
        why: "An IOMMU that translates sends what GPU and NIC exchange through the root complex, slower, and may refuse it.",
        mend: "Boot with iommu=pt (and intel_iommu=on or amd_iommu=on), or switch the IOMMU off in the firmware.",
        look: iommu,
    },
    Check {
        id: "peer-memory",
        what: "nvidia_peermem",
        why: "Without DMA-BUFs a NIC takes GPU memory by its address. That needs this module, and a kernel that takes peer-memory clients.",
        mend: "modprobe nvidia_peermem; kernels of DOCA-OFED and of Ubuntu take it. With DMA-BUFs it is not needed.",
        look: peer_memory,
    },
    Check {
        id: "nvreg",
        what: "options of the NVIDIA kernel driver",
        why: "With PeerMappingOverride=1 the GPU may map the doorbell registers of a NIC for every user. Otherwise it may for root alone, \
              and a thread of the host rings.",
        mend: "options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\" in /etc/modprobe.d/nvidia.conf; then load the module anew. \
               Until then: WARPVERBS_DOORBELL=mailbox.",
        look: nvreg,
    },
];

fn kernel(tree: &Tree) -> Look {
    let Some(release) = tree.text("proc/sys/kernel/osrelease") else {
        // Ranks read in /proc which processes live, and their own limits.
        return Look::missing(
            "/proc is not mounted, or cannot be read: no release in /proc/sys/kernel/osrelease",
        );
    };
    let Some(version) = numbers(&release) else {
        return Look::not_looked(format!("the release '{release}' is no version"));
    };
    let ofed = tree.text("sys/module/mlx5_core/version");
    let has_umems = ofed.as_deref().and_then(numbers) >= Some((23, 7));
    let ofed = ofed.map_or_else(String::new, |version| format!(", OFED {version}"));
    let found = format!("Linux {release}{ofed}");
    match version {
        _ if has_umems => Look::ok(found),
        (6.., _) => Look::ok(found),
        (5, 12..) => Look::degraded(format!("{found}: no queues in GPU memory by DMA-BUF")),
        (5, 1..) => Look::degraded(format!("{found}: no DMA-BUFs")),
        _ => Look::missing(format!("{found}: no DevX")),
    }
}

/// Returns the first two numbers of a version.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(|mark: char| !mark.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn uverbs(tree: &Tree) -> Look {
    if tree.has_own_rdma() {
        return Look::ok("software HCAs have none, and need none");
    }
    let names = tree.rdma_names("infiniband_verbs");
    let nodes: Vec<&String> = names
        .iter()
        .filter(|name| name.starts_with("uverbs"))
        .collect();
    let path = |name: &str| format!("dev/infiniband/{name}");
    let missing = nodes.iter().filter(|name| !tree.is_there(&path(name)));
    let missing: Vec<&str> = missing.map(|name| name.as_str()).collect();
    let closed = nodes.iter().filter(|name| !tree.may_use(&path(name)));
    let closed: Vec<&str> = closed.map(|name| name.as_str()).collect();
    match nodes.len() {
        0 => Look::missing("the kernel has no uverbs device"),
        _ if !missing.is_empty() => Look::missing(format!(
            "/dev/infiniband lacks {}, which the kernel has",
            missing.join(", ")
        )),
        _ if !closed.is_empty() => Look::missing(format!(
            "this user may not read and write {} in /dev/infiniband",
            closed.join(", ")
        )),
        count => Look::ok(format!("{count} in /dev/infiniband, to read and write")),
    }
}

fn container(tree: &Tree) -> Look {
    let marks = [".dockerenv", "run/.containerenv"];
    let is_container = marks.iter().any(|mark| tree.is_there(mark));
    let place = if is_container {
        "a container"
    } else {
        "no container"
    };
    let limit = |file: &str| {
        let text = tree.text(&format!("sys/fs/cgroup/{file}"))?;
        (text != "max").then_some(text)
    };
    let mut limits = Vec::new();
    if let Some(bytes) = limit("memory.max").and_then(|text| text.parse::<u64>().ok()) {
        limits.push(format!("memory {} MiB", bytes >> 20));
    }
    for line in limit("rdma.max").iter().flat_map(|text| text.lines()) {
        let is_limit = line
            .split_whitespace()
            .skip(1)
            .any(|word| !word.ends_with("=max"));
        limits.extend(is_limit.then(|| line.to_owned()));
    }
    if limits.is_empty() {
        Look::ok(format!("{place}, no limit"))
    } else {
        Look::degraded(format!("{place}, limited: {}", limits.join("; ")))
    }
}

/// Enough locked memory for a team of some hundred ranks, in bytes.
const LOCKED: u64 = 1 << 30;
/// The bit of `CAP_IPC_LOCK` in the mask of capabilities.
const IPC_LOCK: u64 = 1 << 14;

fn locked_memory(tree: &Tree) -> Look {
    let limits = tree.text("proc/self/limits").unwrap_or_default();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"));
    let Some(limit) = line.and_then(|line| line.split_whitespace().next()) else {
        return Look::not_looked("/proc/self/limits does not say");
    };
    let status = tree.text("proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    match limit.parse::<u64>() {
        Err(_) => Look::ok(limit),
        Ok(bytes) if mask.is_some_and(|mask| mask & IPC_LOCK != 0) => Look::ok(format!(
            "{} KiB, which CAP_IPC_LOCK overrides",
            bytes / 1024
        )),
        Ok(bytes) => Look::ok_if(bytes >= LOCKED, format!("{} KiB", bytes / 1024)),
    }
}

fn iommu(tree: &Tree) -> Look {
    if tree.names("sys/class/iommu").is_empty() {
        return Look::ok("none, or switched off");
    }
    let groups = tree.names("sys/kernel/iommu_groups");
    let kinds = groups
        .iter()
        .filter_map(|group| tree.text(&format!("sys/kernel/iommu_groups/{group}/type")));
    let kinds: Vec<String> = kinds.collect();
    let translated = kinds.iter().filter(|kind| kind.starts_with("DMA")).count();
    match (kinds.len(), translated) {
        (0, _) => Look::not_looked("its groups do not say how it translates"),
        (_, 0) => Look::ok("on, and passes addresses through"),
        (all, some) => Look::degraded(format!("translates for {some} of {all} groups")),
    }
}

fn peer_memory(tree: &Tree) -> Look {
    let modules = tree.text("proc/modules").unwrap_or_default();
    let is_loaded = |module: &str| {
        modules
            .lines()
            .any(|line| line.split(' ').next() == Some(module))
    };
    if !is_loaded("nvidia") {
        return Look::ok("no NVIDIA kernel driver");
    }
    let takes = if tree.is_there("sys/kernel/mm/memory_peers") {
        "the kernel takes peer-memory clients"
    } else {
        "the kernel shows no peer-memory clients"
    };
    let is_there = ["nvidia_peermem", "nv_peer_mem"].into_iter().any(is_loaded);
    let loaded = if is_there { "loaded" } else { "not loaded" };
    Look::ok_if(is_there, format!("{loaded}; {takes}"))
}

fn nvreg(tree: &Tree) -> Look {
    let Some(params) = tree.text("proc/driver/nvidia/params") else {
        return Look::ok("no NVIDIA kernel driver");
    };
    let words = params
        .lines()
        .find_map(|line| line.strip_prefix("RegistryDwords:"));
    let words = words.unwrap_or("").trim().trim_matches('"');
    let has = words
        .split(';')
        .any(|word| word.trim() == "PeerMappingOverride=1");
    match words {
        "" => Look::degraded("no RegistryDwords"),
        words => Look::ok_if(has, format!("RegistryDwords {words}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_its_first_two_numbers() {
        assert_eq!(numbers("6.1.0-13-amd64"), Some((6, 1)));
        assert_eq!(numbers("23.10-1.1.9"), Some((23, 10)));
        for text in ["", "6", "six.one", ".1"] {
            assert_eq!(numbers(text), None, "{text}");
        }
    }
}
