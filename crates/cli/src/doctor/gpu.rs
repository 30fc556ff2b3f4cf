//! The checks of each GPU.

use std::process::{Command, Stdio};

use super::check::{Check, Look, Text};
use super::told::Report;
use super::tree::Tree;
use crate::tied;
use warpverbs::gpu::{self, ComputeMode, SurveyedGpu, WriteOrdering};

/// The check that the machine has a GPU.
pub(super) const THERE: Text = Text {
    id: "gpu",
    what: "GPUs",
    why: "Kernels post their work from a GPU. Without one they run on the CPU, for tests and not for speed.",
    mend: "nvidia-smi shows whether the driver sees one; in a container docker run --gpus all; CUDA_VISIBLE_DEVICES may hide it. \
           Without one: wv demo --gpu simt.",
};

pub(super) const CHECKS: &[Check<Gpu>] = &[
    Check {
        id: "gpu-memory",
        what: "memory",
        why: "Queues take 73 KiB per QP, windows what the program asks for.",
        mend: "Take a GPU with more memory, or an instance (MIG) with more; fewer QPs by WARPVERBS_QPS_PER_PEER, shorter ones by \
               WARPVERBS_LOG_DEPTH.",
        look: memory,
    },
    Check {
        id: "gpu-bar1",
        what: "BAR1",
        why: "A NIC reaches GPU memory through this window of PCIe: a program cannot register more memory than that at once.",
        mend: "Switch Above 4G Decoding and Resizable BAR on in the firmware of the machine; nvidia-smi -q -d MEMORY shows BAR1.",
        look: bar1,
    },
    Check {
        id: "gpu-dmabuf",
        what: "DMA-BUF",
        why: "DMA-BUFs are the way of upstream kernels to give GPU memory to a NIC.",
        mend: "The open kernel modules of the driver, release 515 or later (apt-get install nvidia-open), on Linux 5.12 or later; else modprobe \
               nvidia_peermem.",
        look: dmabuf,
    },
    Check {
        id: "gpu-direct",
        what: "GPUDirect RDMA",
        why: "Without it no NIC reaches the memory of the GPU, and everything goes through host memory.",
        mend: "A data-center or workstation GPU; in a virtual machine passthrough of the whole GPU. Until then: WARPVERBS_QUEUES=host.",
        look: direct,
    },
    Check {
        id: "gpu-ordering",
        what: "order of a NIC's writes",
        why: "Where kernels may see the writes of a NIC in another order, a signal is no proof of its data before a flush.",
        mend: "A GPU of the generations Ampere or later; WARPVERBS_MOE_ORDER=flush.",
        look: ordering,
    },
    Check {
        id: "gpu-compute-mode",
        what: "compute mode",
        why: "In an exclusive mode one process alone opens the GPU: other ranks and tools are refused.",
        mend: "nvidia-smi -i NUMBER -c DEFAULT",
        look: compute_mode,
    },
    Check {
        id: "gpu-mig",
        what: "MIG",
        why: "An instance has a part of memory and multiprocessors, and reaches no other instance directly.",
        mend: "nvidia-smi -i NUMBER -mig 0, where the whole GPU is wanted.",
        look: mig,
    },
    Check {
        id: "gpu-confidential",
        what: "confidential computing",
        why: "In confidential mode the memory of the GPU is closed to NICs: queues and windows lie in host memory.",
        mend: "Switch the mode off on the host (gpu_cc_tool of nvidia_gpu_tools.py --set-cc-mode=off), or WARPVERBS_QUEUES=host.",
        look: confidential,
    },
];

/// A GPU, and the files in which more is known of it.
pub(super) struct Gpu {
    pub(super) gpu: SurveyedGpu,
    tree: Tree,
}

impl Gpu {
    /// Returns the GPUs that this process may see, or why it sees none.
    pub(super) fn all(tree: &Tree) -> Result<Vec<Self>, String> {
        let survey = gpu::survey().map_err(|error| error.refusal())?;
        let of = |gpu| Self {
            gpu,
            tree: tree.clone(),
        };
        Ok(survey.gpus.into_iter().map(of).collect())
    }

    pub(super) fn name(&self) -> String {
        format!("gpu {}", self.gpu.slot.ordinal)
    }
}

/// Checks all GPUs.
pub(super) fn look(tree: &Tree, report: &mut Report) {
    let mut gpus = None;
    report.one("", &THERE, false, || match gpus.insert(Gpu::all(tree)) {
        Ok(found) if !found.is_empty() => {
            let name = |gpu: &Gpu| format!("{} {}", gpu.gpu.slot, gpu.gpu.name);
            Look::ok(found.iter().map(name).collect::<Vec<_>>().join(", "))
        }
        Ok(_) => Look::degraded("the driver knows no GPU: kernels run on the CPU"),
        Err(why) => Look::degraded(format!("{why}: kernels run on the CPU")),
    });
    for gpu in gpus.unwrap_or_else(|| Gpu::all(tree)).unwrap_or_default() {
        report.all(&gpu.name(), CHECKS, &gpu);
    }
}

/// The least memory that is enough for a layer of common shape.
const LEAST_MEMORY: u64 = 4 << 30;

fn memory(of: &Gpu) -> Look {
    let bytes = of.gpu.memory_bytes;
    Look::ok_if(bytes >= LEAST_MEMORY, format!("{} MiB", bytes >> 20))
}

fn bar1(of: &Gpu) -> Look {
    let resource = of.tree.pci(of.gpu.slot.pci, "resource");
    let line = resource.as_deref().and_then(|text| text.lines().nth(1));
    let Some(bytes) = line.and_then(length_of) else {
        return Look::not_looked("sysfs does not show it");
    };
    let memory = of.gpu.memory_bytes;
    let found = format!("{} MiB for {} MiB of memory", bytes >> 20, memory >> 20);
    Look::ok_if(bytes >= memory, found)
}

/// Returns the number of bytes of a region. A line of `resource` has begin, end and flags.
fn length_of(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    let mut number = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (begin, end) = (number()?, number()?);
    (end > begin).then(|| (end - begin).saturating_add(1))
}

fn dmabuf(of: &Gpu) -> Look {
    match (of.gpu.rdma.dmabuf, of.gpu.rdma.registration) {
        (true, _) => Look::ok("DMA-BUFs"),
        (false, true) => Look::degraded("no DMA-BUFs: memory by its address alone"),
        (false, false) => Look::degraded("no DMA-BUFs"),
    }
}

fn direct(of: &Gpu) -> Look {
    if of.gpu.rdma.registration {
        Look::ok("GPUDirect RDMA")
    } else {
        Look::degraded("no GPUDirect RDMA: queues and windows in host memory")
    }
}

fn ordering(of: &Gpu) -> Look {
    match of.gpu.rdma.write_ordering {
        WriteOrdering::None => Look::degraded("writes appear in any order before a flush"),
        WriteOrdering::Owner => Look::ok("writes appear in order to the GPU"),
        WriteOrdering::AllDevices => Look::ok("writes appear in order to all GPUs"),
    }
}

fn compute_mode(of: &Gpu) -> Look {
    match of.gpu.compute_mode {
        ComputeMode::Default => Look::ok("default"),
        ComputeMode::ExclusiveProcess => Look::degraded("exclusive process"),
        ComputeMode::Prohibited => Look::missing("prohibited"),
        other => Look::not_looked(format!("{other:?}")),
    }
}

fn mig(of: &Gpu) -> Look {
    if of.gpu.name.contains(" MIG ") {
        return Look::degraded(format!("an instance: {}", of.gpu.name));
    }
    let address = of.gpu.slot.pci.to_string();
    let query = [
        "--query-gpu=mig.mode.current",
        "--format=csv,noheader",
        "-i",
        &address,
    ];
    match nvidia_smi(&query) {
        Ok(said) if said.starts_with("Enabled") => Look::degraded("on"),
        Ok(said) if said.starts_with("Disabled") || said.contains("N/A") => Look::ok("off"),
        Ok(said) => Look::not_looked(format!("nvidia-smi says '{said}'")),
        Err(why) => Look::not_looked(why),
    }
}

fn confidential(_: &Gpu) -> Look {
    match nvidia_smi(&["conf-compute", "-f"]) {
        Ok(said) if said.ends_with("ON") => Look::degraded("on"),
        Ok(said) if said.ends_with("OFF") => Look::ok("off"),
        // Releases of nvidia-smi, and GPUs, without this feature do not print the words.
        Ok(_) => Look::ok("nvidia-smi knows of none"),
        Err(why) => Look::not_looked(why),
    }
}

/// Returns the first line that nvidia-smi prints. If nvidia-smi hangs, the doctor kills this process, and with it the kernel kills
/// nvidia-smi.
fn nvidia_smi(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("nvidia-smi");
    command.args(arguments).stdin(Stdio::null());
    tied::tie(&mut command);
    let output = command
        .output()
        .map_err(|error| format!("nvidia-smi: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default().trim();
    Ok(line.chars().take(80).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_as_long_as_its_line_says() {
        let line = "0x0000004000000000 0x0000004fffffffff 0x000000000014220c";
        assert_eq!(length_of(line), Some(64 << 30));
        let all = "0x0000000000000000 0xffffffffffffffff 0x0";
        assert_eq!(length_of(all), Some(u64::MAX));
        for line in ["0x0 0x0 0x0", "", "0x1", "1 2 3", "0x5 0x4 0x0"] {
            assert_eq!(length_of(line), None, "{line}");
        }
    }
}
