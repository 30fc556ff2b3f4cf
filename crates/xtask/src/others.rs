//! `./x gpu others`: measures how other projects post, beside this project (`wv bench others`). Their device headers are in a given folder.
//! An adapter of ours (crates/bench/kernels/others) includes the headers and calls the project's function.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{At, Failure, Result};
use crate::kernels::{ARCHITECTURES, cuda_program};
use crate::process::{answer, command, run};
use crate::tree::{build, fresh_folder, prepare, target};

/// The folder of compiled adapters, which are sm_NN/NAME.ptx, and the folder of their sources.
const COMPILED: &str = "target/gpu/others";
const ADAPTERS: &str = "crates/bench/kernels/others";

/// A project with an adapter.
struct Project {
    /// The name of the project, and of the adapter NAME.cuda.
    name: &'static str,
    /// The layouts that the project's files may have, in a checkout or as installed: a header by which the layout is known, and the folders
    /// of headers below its place.
    layouts: &'static [(&'static str, &'static [&'static str])],
    /// Another project whose headers this project's headers include.
    on: Option<&'static str>,
}

const PROJECTS: [Project; 4] = [
    Project {
        name: "gpunetio",
        layouts: &[("include/doca_gpunetio_device.h", &["include"])],
        on: None,
    },
    Project {
        name: "ucx",
        layouts: &[
            ("src/uct/ib/mlx5/gdaki/gdaki.cuh", &["src"]),
            ("include/uct/ib/mlx5/gdaki/gdaki.cuh", &["include"]),
        ],
        on: None,
    },
    Project {
        name: "nvshmem",
        layouts: &[
            (
                "include/non_abi/device/pt-to-pt/ibgda_device.cuh",
                &["include"],
            ),
            (
                "src/include/non_abi/device/pt-to-pt/ibgda_device.cuh",
                &["src/include"],
            ),
        ],
        on: None,
    },
    Project {
        name: "deepep",
        layouts: &[(
            "csrc/kernels/legacy/ibgda_device.cuh",
            &["csrc/kernels/legacy", "deep_ep/include"],
        )],
        on: Some("nvshmem"),
    },
];

/// What has become of one project.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Compiled,
    /// The project is not in the folder. The text says what was looked for.
    Absent(String),
    /// The project could not be compiled. The text says why, with what the compiler said.
    LeftOut(String),
}

/// Compiles the projects in `folder`, and measures them on the GPU of this machine. Without a GPU only this project is counted.
pub(crate) fn others(folder: &str, options: &[&str]) -> Result {
    prepare("kernels")?;
    compile(folder, Path::new(COMPILED))?;
    build()?;
    run(command(
        target().join("wv"),
        ["bench", "others", "--kernels", COMPILED],
    )
    .args(options))
}

/// Makes `to`/sm_NN/NAME.ptx of each known project in `folder`, and prints what has become of each.
pub(crate) fn compile(folder: &str, to: &Path) -> Result {
    let outcomes = compile_with(
        &cuda_program("nvcc")?,
        Path::new(folder),
        Path::new("."),
        to,
    )?;
    for (name, outcome) in &outcomes {
        match outcome {
            Outcome::Compiled => println!("{name}: compiled"),
            Outcome::Absent(why) | Outcome::LeftOut(why) => println!("{name}: left out: {why}"),
        }
    }
    if outcomes
        .iter()
        .all(|(_, outcome)| *outcome != Outcome::Compiled)
    {
        return Err(Failure::new(
            1,
            format!("none of the projects in {folder} could be compiled"),
        ));
    }
    Ok(())
}

/// Compiles the projects. `root` is the root of this repository.
fn compile_with(
    nvcc: &Path,
    folder: &Path,
    root: &Path,
    to: &Path,
) -> Result<Vec<(&'static str, Outcome)>> {
    let places = places(folder)?;
    let known = |name: &str| PROJECTS.iter().find(|project| project.name == name);
    let includes = |project: &Project| {
        let own = found(project, &places)?;
        let others = project.on.and_then(known).map(|on| found(on, &places));
        Some((own, others))
    };
    fresh_folder(to)?;
    let mut outcomes = Vec::new();
    for project in &PROJECTS {
        let outcome = match includes(project) {
            None => Outcome::Absent(format!(
                "there is no {} in {} or a folder of it",
                project.layouts[0].0,
                folder.display()
            )),
            Some((_, Some(None))) => Outcome::LeftOut(format!(
                "its headers include those of {}, which {} has not",
                project.on.unwrap_or_default(),
                folder.display()
            )),
            Some((mut searched, on)) => {
                searched.extend(on.flatten().unwrap_or_default());
                // Headers that several projects need, as <infiniband/mlx5dv.h>.
                searched.push(folder.join("include"));
                compile_one(nvcc, project.name, &searched, root, to)?
            }
        };
        outcomes.push((project.name, outcome));
    }
    let absent = |(_, outcome): &(_, Outcome)| matches!(outcome, Outcome::Absent(_));
    if outcomes.iter().all(absent) {
        let names: Vec<_> = PROJECTS.iter().map(|project| project.name).collect();
        return Err(Failure::new(
            2,
            format!(
                "{} has no project that there is an adapter to: {}",
                folder.display(),
                names.join(", ")
            ),
        ));
    }
    Ok(outcomes)
}

/// Returns the folder itself, and the folders in it.
fn places(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut places = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).at(folder)? {
        let path = entry.at(folder)?.path();
        if path.is_dir() {
            places.push(path);
        }
    }
    places.sort();
    Ok(places)
}

/// Returns the folders of a project's headers, if the project is in one of `places`.
fn found(project: &Project, places: &[PathBuf]) -> Option<Vec<PathBuf>> {
    places.iter().find_map(|place| {
        let (_, includes) = project
            .layouts
            .iter()
            .find(|(header, _)| place.join(header).is_file())?;
        Some(includes.iter().map(|folder| place.join(folder)).collect())
    })
}

fn compile_one(
    nvcc: &Path,
    name: &str,
    searched: &[PathBuf],
    root: &Path,
    to: &Path,
) -> Result<Outcome> {
    let all = ARCHITECTURES.map(|architecture| to.join(format!("sm_{architecture}/{name}.ptx")));
    for (architecture, made) in ARCHITECTURES.iter().zip(&all) {
        let parent = made.parent().unwrap_or(to);
        fs::create_dir_all(parent).at(parent)?;
        // The compiler prints its messages on standard error. NDEBUG leaves out asserts, which are no part of a project's put.
        let mut compiler = command("sh", ["-c", "exec \"$@\" 2>&1", "sh"]);
        compiler
            .arg(nvcc)
            .args(["-O3", "-std=c++17", "--ptx", "-x", "cu", "-DNDEBUG"])
            .arg("--expt-relaxed-constexpr")
            .arg(format!("-arch=compute_{architecture}"))
            .arg("-I")
            .arg(root.join("kernels/include"));
        for folder in searched {
            compiler.arg("-I").arg(folder);
        }
        let adapter = root.join(ADAPTERS).join(name).with_extension("cuda");
        let said = answer(compiler.arg("-o").arg(made).arg(adapter), None)?;
        if !said.status.success() {
            // An adapter must exist for all architectures or for none.
            for half in all.iter().filter(|half| half.exists()) {
                fs::remove_file(half).at(half)?;
            }
            let said = said.text.trim_end();
            return Ok(Outcome::LeftOut(format!(
                "it does not compile for sm_{architecture}:\n{said}"
            )));
        }
    }
    Ok(Outcome::Compiled)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// Enough made-up names to compile the adapter to gpunetio. Its functions do nothing.
    const MADE_UP: &str = r"
#pragma once
#include <stdint.h>
enum doca_gpu_dev_verbs_resource_sharing_mode {
  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_EXCLUSIVE,
  DOCA_GPUNETIO_VERBS_RESOURCE_SHARING_MODE_GPU,
};
enum doca_gpu_dev_verbs_nic_handler { DOCA_GPUNETIO_VERBS_NIC_HANDLER_GPU_SM_DB };
enum doca_gpu_dev_verbs_mem_type { DOCA_GPUNETIO_VERBS_MEM_TYPE_GPU };
enum { DOCA_GPUNETIO_IB_MLX5_SND_DBR = 1 };
typedef uint64_t doca_gpu_dev_verbs_ticket_t;
struct doca_gpu_dev_verbs_addr { uint64_t addr; uint32_t key; };
struct doca_gpu_dev_verbs_cq {
  uint8_t* cqe_daddr;
  uint32_t cqe_num, cqe_mask;
  uint8_t cqe_size;
  doca_gpu_dev_verbs_mem_type mem_type;
};
struct doca_gpu_dev_verbs_qp {
  uint32_t sq_num, sq_num_shift8, sq_num_shift8_be, sq_num_shift8_be_1ds, sq_num_shift8_be_2ds;
  uint32_t sq_num_shift8_be_3ds, sq_num_shift8_be_4ds, sq_num_shift8_be_5ds;
  uint16_t sq_wqe_num, sq_wqe_mask;
  uint8_t* sq_wqe_daddr;
  uint32_t* sq_dbrec;
  uint64_t* sq_db;
  doca_gpu_dev_verbs_cq cq_sq;
  doca_gpu_dev_verbs_nic_handler nic_handler;
  doca_gpu_dev_verbs_mem_type mem_type;
};
template <doca_gpu_dev_verbs_resource_sharing_mode, doca_gpu_dev_verbs_nic_handler>
__device__ void doca_gpu_dev_verbs_put(doca_gpu_dev_verbs_qp*, doca_gpu_dev_verbs_addr,
                                       doca_gpu_dev_verbs_addr, size_t, uint64_t*) {}
template <doca_gpu_dev_verbs_resource_sharing_mode>
__device__ int doca_gpu_dev_verbs_poll_cq_at(doca_gpu_dev_verbs_cq*, uint64_t) { return 0; }
";

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// Returns a folder with these files.
    fn folder(files: &[(&str, &str)]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    /// Compiles with the pinned compiler. Returns None if that is not installed.
    fn compiled(folder: &Path, to: &Path) -> Option<Result<Vec<(&'static str, Outcome)>>> {
        let tools = repository().join(".tools/venv/lib");
        let versions = fs::read_dir(tools).into_iter().flatten().flatten();
        let nvcc = versions
            .map(|entry| entry.path().join("site-packages/nvidia/cu13/bin/nvcc"))
            .find(|path| path.is_file());
        let Some(nvcc) = nvcc else {
            println!("skipped: adapters to other projects: there is no nvcc in .tools/venv");
            return None;
        };
        Some(compile_with(&nvcc, folder, &repository(), to))
    }

    fn outcome<'a>(outcomes: &'a [(&'static str, Outcome)], name: &str) -> &'a Outcome {
        let (_, outcome) = outcomes.iter().find(|(known, _)| *known == name).unwrap();
        outcome
    }

    #[test]
    fn a_project_is_found_in_the_folder_or_in_one_of_it() {
        let header = "include/doca_gpunetio_device.h";
        for place in ["", "any name"] {
            let header = Path::new(place).join(header);
            let folder = folder(&[(header.to_str().unwrap(), "")]);
            let found = found(&PROJECTS[0], &places(folder.path()).unwrap());
            let expected = folder.path().join(place).join("include");
            assert_eq!(found, Some(vec![expected]));
        }
        let deeper = folder(&[(&format!("one/two/{header}"), "")]);
        assert_eq!(found(&PROJECTS[0], &places(deeper.path()).unwrap()), None);
    }

    #[test]
    fn an_adapter_compiles_with_the_given_headers_and_absent_ones_are_named() {
        let folder = folder(&[("gpunetio/include/doca_gpunetio_device.h", MADE_UP)]);
        let to = tempfile::tempdir().unwrap();
        let Some(outcomes) = compiled(folder.path(), to.path()) else {
            return;
        };
        let outcomes = outcomes.unwrap();
        assert_eq!(*outcome(&outcomes, "gpunetio"), Outcome::Compiled);
        for architecture in ARCHITECTURES {
            let made = to.path().join(format!("sm_{architecture}/gpunetio.ptx"));
            let text = fs::read_to_string(made).unwrap();
            for kernel in ["open", "shared", "exclusive"] {
                let entry = format!(".entry wv_other_gpunetio_{kernel}(");
                assert!(text.contains(&entry), "{text}");
            }
        }
        let Outcome::Absent(why) = outcome(&outcomes, "ucx") else {
            panic!("{outcomes:?}");
        };
        assert!(why.contains("there is no src/uct/ib/mlx5/gdaki/gdaki.cuh in"));
    }

    #[test]
    fn headers_that_do_not_compile_are_left_out_with_what_the_compiler_says() {
        let bad = MADE_UP.replace("sq_wqe_num", "sq_wqe_count");
        let folder = folder(&[
            ("gpunetio/include/doca_gpunetio_device.h", &bad),
            ("ucx/src/uct/ib/mlx5/gdaki/gdaki.cuh", ""),
        ]);
        let to = tempfile::tempdir().unwrap();
        let Some(outcomes) = compiled(folder.path(), to.path()) else {
            return;
        };
        let outcomes = outcomes.unwrap();
        for (name, said) in [
            ("gpunetio", "has no member \"sq_wqe_num\""),
            ("ucx", "ucs/sys/device_code.h"),
        ] {
            let Outcome::LeftOut(why) = outcome(&outcomes, name) else {
                panic!("{outcomes:?}");
            };
            assert!(why.contains("it does not compile for sm_80"), "{why}");
            assert!(why.contains(said), "{why}");
            assert!(!to.path().join(format!("sm_80/{name}.ptx")).exists());
        }
    }

    #[test]
    fn a_project_on_another_one_that_is_not_there_says_so() {
        let folder = folder(&[
            ("DeepEP/csrc/kernels/legacy/ibgda_device.cuh", ""),
            ("include/unrelated.h", ""),
        ]);
        let to = tempfile::tempdir().unwrap();
        // This needs no compiler.
        let none = Path::new("/no/nvcc");
        let outcomes = compile_with(none, folder.path(), &repository(), to.path()).unwrap();
        let Outcome::LeftOut(why) = outcome(&outcomes, "deepep") else {
            panic!("{outcomes:?}");
        };
        assert!(
            why.contains("its headers include those of nvshmem"),
            "{why}"
        );
    }

    #[test]
    fn a_folder_that_is_missing_or_has_no_known_project_is_refused_by_name() {
        let to = tempfile::tempdir().unwrap();
        let refused = |folder: &Path| {
            let none = Path::new("/no/nvcc");
            compile_with(none, folder, &repository(), to.path()).unwrap_err()
        };
        let missing = refused(Path::new("/no/such/folder"));
        assert_eq!(missing.status, 1);
        assert!(missing.to_string().starts_with("/no/such/folder: "));
        let unknown = folder(&[("other/include/other.h", "")]);
        let failure = refused(unknown.path());
        assert_eq!(failure.status, 2);
        let names = "gpunetio, ucx, nvshmem, deepep";
        let text = failure.to_string();
        assert!(
            text.contains("no project") && text.ends_with(names),
            "{text}"
        );
    }
}
