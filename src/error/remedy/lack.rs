//! What to do where no call was refused: a device lacks something, or memory, a driver or a compiler are missing.

/// By the beginning of a capability's name, what to do. Empty, the error itself says it. The first row that fits is taken.
const CAPABILITIES: &[(&str, &str)] = &[
    ("DevX of the adopted context", ""),
    ("libibverbs of the adopted context", ""),
    ("a doorbell register shared by QPs", ""),
    ("port state", ""),
    ("lid", ""),
    (
        "provider",
        "name a device of libmlx5 (WARPVERBS_DEVICE); wv doctor lists them",
    ),
    (
        "GID table",
        "give the port's interface such an address (ip addr add), or name another GID (WARPVERBS_GID)",
    ),
    (
        "link_layer",
        "name another port (WARPVERBS_DEVICE=NAME:PORT), or set this one's type (mlxconfig LINK_TYPE_P1)",
    ),
    (
        "port_type",
        "the firmware and the kernel name different types of the port: mlxfwreset -d DEVICE reset lets both read it again",
    ),
    (
        "roce",
        "RoCE is off: devlink dev param set pci/ADDRESS name enable_roce value true cmode driverinit, then devlink dev reload, turn \
         it on",
    ),
    (
        "send_dbr_mode_no_dbr_ext",
        "WARPVERBS_DOORBELL=auto takes a doorbell that the device has",
    ),
    (
        "mode of the bond",
        "without WARPVERBS_LAG_PORT the bond chooses the port",
    ),
    (
        "",
        "another device (WARPVERBS_DEVICE) or a later firmware (mlxfwmanager --online -u) may have it; wv doctor compares them",
    ),
];

/// After an error about the capability `what`.
pub(crate) fn of_capability(what: &str) -> String {
    let row = CAPABILITIES
        .iter()
        .find(|(begin, _)| what.starts_with(begin));
    behind(row.map_or("", |(_, advice)| advice))
}

/// After an answer of a device that cannot be.
pub(crate) const OF_REPLY: &str = "; its firmware and libmlx5 do not agree, and a later release of either may: wv doctor shows both";

/// After an empty list of devices.
pub(crate) const OF_NO_DEVICE: &str = "load the kernel module mlx5_ib, give a container --device=/dev/infiniband, or run under wv sim";

/// After a full control heap.
pub(crate) const OF_HEAP: &str = "; WARPVERBS_CONTROL_BYTES=0 makes it as large as the QPs need; fewer QPs (WARPVERBS_QPS_PER_PEER) and \
                                  shorter ones (WARPVERBS_LOG_DEPTH) need less";

/// After a driver that is not there.
pub(crate) const OF_DRIVER: &str = ". A GPU needs NVIDIA's driver, a container docker run --gpus all as well, and a build of this library \
                                    the feature `cuda`. Kernels run on the CPU with WARPVERBS_GPU=simt";

/// After kernels that have nothing for a GPU.
pub(crate) const OF_KERNELS: &str = "; let the build script of the package make the set by warpverbs_build::kernels, without for_cpu_only";

/// After kernels without PTX that NVRTC does not compile.
pub(crate) const OF_PTX: &str = ". Either build the program again with PTX, or install NVRTC (pip install nvidia-cuda-nvrtc, or a CUDA \
                                 toolkit), of a CUDA version that the driver runs, and name it by WARPVERBS_NVRTC=/path/to/libnvrtc.so";

/// After memory of `kind` that an allocation did not get.
pub(crate) fn of_memory(kind: &str) -> String {
    behind(match kind {
        "device" => {
            "smaller windows need less of it, and WARPVERBS_MEMORY=host keeps them in host memory"
        }
        _ => {
            "free -m and the limits of the container (docker run --memory) show what is left; smaller windows need less"
        }
    })
}

/// After what a compiler says. A log that names the variable says already what to do.
pub(crate) fn of_compiler(log: &str) -> String {
    behind(if log.contains("WARPVERBS_NVRTC") {
        ""
    } else {
        "mend the source, if it is your own; a later driver, or another compiler by WARPVERBS_NVRTC=/path/to/libnvrtc.so, may take \
             others"
    })
}

fn behind(advice: &str) -> String {
    match advice {
        "" => String::new(),
        advice => format!("; {advice}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn each_capability_of_the_table_is_asked_for_and_found() {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/verbs")];
        let mut sources: Vec<String> = Vec::new();
        while let Some(folder) = folders.pop() {
            for file in fs::read_dir(folder).unwrap() {
                let path = file.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    sources.push(fs::read_to_string(path).unwrap());
                }
            }
        }
        for (name, advice) in CAPABILITIES {
            assert_eq!(of_capability(name), behind(advice), "{name}");
            let literal = format!("\"{name}");
            let is_asked = sources.iter().any(|text| text.contains(&literal));
            assert!(name.is_empty() || is_asked, "{name}");
        }
    }
}
