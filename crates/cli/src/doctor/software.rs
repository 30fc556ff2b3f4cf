//! The checks of libraries and drivers.

use std::fs;

use super::check::{Check, Look};
use super::tree::Tree;
use warpverbs::gpu::{self, GpuError, KernelSet, Survey};
use warpverbs::verbs::{VerbsError, device_list, missing_functions};

/// A set of kernels that this program has beside those of the library and of the doctor.
pub struct Carried {
    /// The kernels.
    pub set: &'static KernelSet,
    /// What runs them, as the check of NVRTC names it: a command or an option.
    pub user: &'static str,
}

/// The libraries and drivers of the machine, and the kernels of this program.
pub(super) struct Software {
    pub(super) tree: Tree,
    pub(super) carried: &'static [Carried],
}

pub(super) const CHECKS: &[Check<Software>] = &[
    Check {
        id: "rdma-core",
        what: "libibverbs and libmlx5",
        why: "The runtime makes all objects of a NIC through them: without one of their functions nothing runs. UMEMs by DMA-BUF came with \
              rdma-core 44.",
        mend: "apt-get install libibverbs1 ibverbs-providers; for rdma-core 44 a later release of the distribution, or DOCA-OFED. A \
               library on LD_LIBRARY_PATH goes before the system's.",
        look: rdma_core,
    },
    Check {
        id: "cuda-driver",
        what: "CUDA driver against the kernels' PTX",
        why: "The driver compiles the kernels for the GPU, and reads PTX up to its own version. Without a driver kernels run on the CPU.",
        mend: "Install the driver release that is named, or NVRTC (see the check nvrtc). Without a GPU: wv demo --gpu simt.",
        look: cuda_driver,
    },
    Check {
        id: "nvrtc",
        what: "NVRTC",
        why: "Where the driver cannot read the PTX, NVRTC compiles the kernels on this machine. It also compiles those of which a program \
              has no PTX, as one that cargo has built of a fresh clone.",
        mend: "Set WARPVERBS_NVRTC=/path/to/libnvrtc.so, of a CUDA version that the driver runs; pip install nvidia-cuda-nvrtc-cu12 has one. \
               What ./x install, ./x dist and ./x wheel make has PTX of all kernels, and what cargo builds after ./x kernels.",
        look: nvrtc,
    },
    Check {
        id: "page-size",
        what: "page size",
        why: "Memory is given to the NIC in whole pages, and a doorbell register is a page of the process: with larger pages each takes \
              more.",
        mend: "A kernel with pages of 4 KiB, where the architecture has a choice (CONFIG_ARM64_4K_PAGES); else nothing: all sizes work.",
        look: page_size,
    },
];

fn rdma_core(_: &Software) -> Look {
    if let Err(error) = device_list() {
        return match error {
            VerbsError::Load(_) => Look::missing(error.to_string()),
            other => Look::degraded(other.to_string()),
        };
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let [verbs, mlx5] = ["libibverbs.so.", "libmlx5.so."].map(|name| version_of(&maps, name));
    let release = mlx5.as_deref().and_then(release);
    let known =
        |version: Option<String>| version.unwrap_or_else(|| "of unknown version".to_owned());
    let found = format!("libibverbs {}, libmlx5 {}", known(verbs), known(mlx5));
    let lacks = missing_functions().unwrap_or_default();
    if !lacks.is_empty() {
        let lacks: Vec<String> = lacks.iter().map(ToString::to_string).collect();
        return Look::degraded(format!("{found}: {}", lacks.join("; ")));
    }
    match release {
        Some(release) => Look::ok_if(release >= 44, format!("{found} (rdma-core {release})")),
        None => Look::ok(found),
    }
}

/// Returns the version in the file name of a library that this process has open: `1.24.44.0` for `libmlx5.so.1.24.44.0`.
fn version_of(maps: &str, name: &str) -> Option<String> {
    let line = maps.lines().find(|line| line.contains(name))?;
    let (_, version) = line.rsplit_once(name)?;
    Some(version.to_owned())
}

/// Returns the release of rdma-core, which is the last but one number of each of its libraries.
fn release(version: &str) -> Option<u32> {
    let numbers: Vec<&str> = version.split('.').collect();
    match numbers[..] {
        [.., release, _] if numbers.len() == 4 => release.parse().ok(),
        _ => None,
    }
}

/// Returns, in words, the PTX that the first GPU needs, and whether the driver reads that PTX. None without a GPU.
fn reads_ptx(survey: &Survey) -> Option<(String, bool)> {
    let gpu = survey.gpus.first()?;
    let needs = gpu.kernels;
    let (major, minor) = survey.cuda;
    let words = format!(
        "runs CUDA {major}.{minor}; PTX {}.{} of the kernels needs CUDA {}.{} (driver release {})",
        needs.ptx.0, needs.ptx.1, needs.cuda.0, needs.cuda.1, needs.release
    );
    Some((words, survey.cuda >= needs.cuda))
}

fn cuda_driver(_: &Software) -> Look {
    let survey = match gpu::survey() {
        Ok(survey) => survey,
        Err(error @ (GpuError::NoDriver { .. } | GpuError::NoDevice { .. })) => {
            return Look::degraded(format!("{}: kernels run on the CPU", error.refusal()));
        }
        Err(error) => return Look::missing(error.to_string()),
    };
    match reads_ptx(&survey) {
        None => Look::degraded("the driver knows no GPU: kernels run on the CPU"),
        Some((words, true)) => Look::ok(words),
        Some((words, false)) => match gpu::nvrtc() {
            Ok(nvrtc) => Look::degraded(format!("{words}; {nvrtc} compiles them")),
            Err(_) => Look::missing(words),
        },
    }
}

fn nvrtc(of: &Software) -> Look {
    let ptx = gpu::survey().ok().and_then(|survey| reads_ptx(&survey));
    let lacking = of.carried.iter().filter(|of| of.set.ptx().is_empty());
    let lacking: Vec<&str> = lacking.map(|of| of.user).collect();
    judge_nvrtc(gpu::nvrtc(), ptx.map(|(_, reads)| reads), &lacking)
}

/// Judges the check of NVRTC. `reads_ptx`: whether the driver reads PTX of these kernels; None without a GPU. `lacking`: the
/// users of kernels of which this program has no PTX.
fn judge_nvrtc(found: Result<String, String>, reads_ptx: Option<bool>, lacking: &[&str]) -> Look {
    match (found, reads_ptx) {
        (Ok(found), _) => Look::ok(found),
        (Err(why), Some(false)) => Look::missing(why),
        (Err(why), Some(true)) if !lacking.is_empty() => Look::degraded(format!(
            "{why}; this program has no PTX for {}",
            lacking.join(" and ")
        )),
        (Err(_), _) => Look::ok("none, and none is needed"),
    }
}

fn page_size(of: &Software) -> Look {
    let smaps = of.tree.text("proc/self/smaps");
    let size = smaps.as_deref().and_then(|smaps| {
        let line = smaps
            .lines()
            .find_map(|line| line.strip_prefix("KernelPageSize:"))?;
        line.trim().strip_suffix(" kB")?.parse::<u32>().ok()
    });
    match size {
        Some(size) => Look::ok_if(size == 4, format!("{size} KiB")),
        None => Look::not_looked("/proc/self/smaps does not say"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvrtc_is_needed_on_a_gpu_by_an_old_driver_or_a_program_without_ptx() {
        let none = || Err("not found".to_owned());
        let not_needed = Look::ok("none, and none is needed");
        let bench = &["wv bench"][..];
        assert_eq!(judge_nvrtc(none(), None, bench), not_needed);
        assert_eq!(judge_nvrtc(none(), Some(true), &[]), not_needed);
        let missing = Look::missing("not found");
        assert_eq!(judge_nvrtc(none(), Some(false), &[]), missing);
        let without = Look::degraded("not found; this program has no PTX for wv bench");
        assert_eq!(judge_nvrtc(none(), Some(true), bench), without);
        let found = Ok("libnvrtc.so.13 (13.0)".to_owned());
        let ok = Look::ok("libnvrtc.so.13 (13.0)");
        assert_eq!(judge_nvrtc(found, Some(true), bench), ok);
    }

    #[test]
    fn the_release_of_rdma_core_is_in_the_names_of_its_libraries() {
        let maps = "7f0-7f1 r-xp 0 00:1 2 /usr/lib/libibverbs.so.1.14.44.0\n7f2-7f3 r-xp 0 00:1 3 /usr/lib/libmlx5.so.1.24.44.0\n";
        let mlx5 = version_of(maps, "libmlx5.so.").unwrap();
        assert_eq!(mlx5, "1.24.44.0");
        assert_eq!(release(&mlx5), Some(44));
        for other in ["1", "1.24", "1.24.x.0", ""] {
            assert_eq!(release(other), None, "{other}");
        }
        assert_eq!(version_of("", "libmlx5.so."), None);
    }
}
