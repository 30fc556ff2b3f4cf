//! The part `interop` of `./x test`: builds and tests `crates/interop` with all its features, and gives the crates of other projects what
//! they need to build.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{At, Failure, Result};
use crate::process::{ask, command, run, succeeded};
use crate::programs::Build;
use crate::runners::Profile;
use crate::skips::Extent;
use crate::steps::{Run, Wanted};
use crate::tree::{build, fresh_folder, prepare, target};

/// The folder in which the crate cust looks for libcuda, and the source of the driver without a GPU that is put there.
const CUDA: &str = "target/interop";
const DRIVER: &str = "crates/test-support/fake_cuda/libcuda.c";
/// The packages and features of the part. `PACKAGES` also has `-p warpverbs-python`, and `FEATURES` has one feature that `warpverbs` gives
/// its tests. With the package alone cargo would resolve other features of the library and of test-support, and would build both and their
/// kernels once more.
pub(crate) const PACKAGES: &[&str] = &["-p", "warpverbs-python", "-p", "warpverbs-interop"];
pub(crate) const FEATURES: &str =
    "warpverbs-interop/rdma-sys,warpverbs-interop/cust,warpverbs-interop/cudarc,test-support/cuda";
const TESTS: &[&str] = &["rdma_sys", "cust", "cudarc"];

/// Runs the part alone.
pub(crate) fn interop() -> Result {
    prepare("test")?;
    let mut test = Run::start("interop")?;
    in_tests(&mut test)?;
    test.finish_parts();
    test.compare_skips(Extent::Some)?;
    test.print_summary()
}

/// Builds and runs the tests, those in the documentation, and the example. It also checks what our own programs link.
pub(crate) fn in_tests(test: &mut Run) -> Result {
    test.part("interop");
    test.step("what Warpverbs links", |_| links_neither())?;
    test.step("what an application has opened itself", |test| {
        make_driver()?;
        let environment = environment()?;
        let mut arguments = [PACKAGES, &["--features", FEATURES]].concat();
        for name in TESTS {
            arguments.extend(["--test", name]);
        }
        let tests = Build {
            arguments: arguments.into_iter().map(str::to_owned).collect(),
            label: "interop".to_owned(),
            environment,
        };
        test.build_tests("interop", tests)?;
        test.run_tests("interop.log", &Wanted::all_of("interop", Profile::Default))
    })?;
    test.step("drops in an order that must not compile", |_| {
        let mut cargo = with_features("test")?;
        run(cargo.args(["--doc", "--", "crates/interop"]))
    })?;
    test.step("a program of rdma-sys beside a team", |_| {
        let mut cargo = with_features("build")?;
        run(cargo.args(["--example", "ping_pong"]))?;
        build()?;
        let mut sim = Command::new(target().join("wv"));
        // With all features the example is linked with libcuda as well.
        sim.envs(environment()?);
        run(sim
            .args(["sim", "--"])
            .arg(target().join("examples/ping_pong")))
    })?;
    Ok(())
}

/// Returns a command of cargo for both packages with all features.
fn with_features(task: &str) -> Result<Command> {
    let mut cargo = command("cargo", [task, "--locked"]);
    cargo.args(PACKAGES).args(["--features", FEATURES]);
    cargo.envs(environment()?);
    Ok(cargo)
}

/// Checks that no program of ours is linked with libibverbs or libcuda, because the runtime opens them itself.
fn links_neither() -> Result {
    build()?;
    for name in ["wv", "libwarpverbs_c.so"] {
        let file = target().join(name);
        let needs = ask(command("readelf", ["-d"]).arg(&file))?;
        succeeded(needs.status)?;
        let needed: Vec<_> = needs
            .text
            .lines()
            .filter(|line| line.contains("(NEEDED)"))
            .collect();
        let linked = ["libibverbs", "libmlx5", "libcuda"];
        let found = linked
            .iter()
            .find(|library| needed.iter().any(|line| line.contains(*library)));
        if let Some(library) = found {
            return Err(Failure::new(
                1,
                format!("{} is linked with {library}", file.display()),
            ));
        }
        println!(
            "{name} needs {} libraries, none of RDMA or CUDA",
            needed.len()
        );
    }
    Ok(())
}

/// Makes the driver without a GPU, under the names by which programs are linked with it and find it.
fn make_driver() -> Result {
    let stubs = Path::new(CUDA).join("lib64/stubs");
    fresh_folder(&stubs)?;
    let library = stubs.join("libcuda.so.1");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut cc = command(&compiler, ["-std=gnu11", "-O1", "-g", "-shared", "-fPIC"]);
    cc.args(["-Wl,-soname,libcuda.so.1", "-o"]).arg(&library);
    run(cc.args([DRIVER, "-ldl", "-pthread"]))?;
    symlink("libcuda.so.1", stubs.join("libcuda.so")).at(&stubs)
}

/// Returns the variables that rdma-sys and cust need: a libclang that the bindgen of rdma-sys knows, with the compiler's own headers, and
/// libcuda.
fn environment() -> Result<Vec<(String, OsString)>> {
    let here = std::env::current_dir().at(".")?;
    let headers = ask(&mut command("gcc", ["-print-file-name=include"]))?;
    let cuda = here.join(CUDA);
    let mut libraries = vec![cuda.join("lib64/stubs")];
    if let Some(inherited) = std::env::var_os("LD_LIBRARY_PATH") {
        libraries.extend(std::env::split_paths(&inherited).filter(|path| path != Path::new("")));
    }
    let joined = std::env::join_paths(libraries).unwrap_or_default();
    let include = format!("-I{}", headers.text.trim_end());
    Ok([
        ("LIBCLANG_PATH", here.join(libclang()?).into_os_string()),
        ("BINDGEN_EXTRA_CLANG_ARGS", include.into()),
        ("CUDA_LIBRARY_PATH", cuda.into_os_string()),
        ("LD_LIBRARY_PATH", joined),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into())
}

/// Returns the folder of the wheel's libclang, below the one version of Python of the virtual environment.
fn libclang() -> Result<PathBuf> {
    let versions = Path::new(".tools/venv/lib");
    for entry in fs::read_dir(versions).at(versions)? {
        let folder = entry
            .at(versions)?
            .path()
            .join("site-packages/clang/native");
        if folder.is_dir() {
            return Ok(folder);
        }
    }
    Err(Failure::new(3, "there is no libclang in .tools/venv"))
}
