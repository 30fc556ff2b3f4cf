//! `./x kernels` and `./x sass`: compiles kernels to PTX with the pinned nvcc, and counts what their calls cost.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{At, Failure, Result};
use crate::process::{self, Ending, Running, command, run, text_of};
use crate::tree::{
    PTX_IN_GIT, PTX_WRITTEN, ends_in, files_below, fresh_folder, prepare, wheel_program,
};
use crate::written_ptx;

const COMPILED: &str = "target/kernels";
pub(crate) const ARCHITECTURES: [&str; 2] = ["80", "90"];

/// The options with which nvcc compiles every kernel.
const OPTIONS: [&str; 3] = ["-O3", "-std=c++17", "--ptx"];

/// With a file, compiles it for the CPU check and to PTX. Without a file, compiles every kernel and refreshes all folders of PTX.
pub(crate) fn kernels(file: Option<&str>) -> Result {
    prepare("kernels")?;
    match file {
        None => refresh(),
        Some(file) => compile_one(Path::new(file)),
    }
}

fn refresh() -> Result {
    for folder in PTX_IN_GIT {
        let checked_in = format!("{folder}/ptx");
        fresh_folder(Path::new(&checked_in))?;
        compile_all(folder, Path::new(&checked_in))?;
    }
    written_ptx::compile_everything()?;
    let mut made = Vec::new();
    for folder in PTX_IN_GIT.iter().chain(&PTX_WRITTEN) {
        let ptx = format!("{folder}/ptx");
        made.extend(files_below(&ptx, |path| ends_in(path, &["ptx"]))?);
    }
    run(command("wc", ["-c"]).args(made))
}

fn compile_one(file: &Path) -> Result {
    let readable = fs::File::open(file).is_ok();
    let name = file.file_stem().and_then(OsStr::to_str);
    let Some(name) = name.filter(|_| readable) else {
        return Err(Failure::new(2, format!("no such file: {}", file.display())));
    };
    fs::create_dir_all(COMPILED).at(COMPILED)?;
    let object = format!("{COMPILED}/{name}.o");
    run(Command::new("g++")
        .args(["-std=c++20", "-O2", "-Wall", "-x", "c++"])
        .args(["-I", "kernels/include", "-I", "crates/simt/include", "-I"])
        .arg(folder_of(file))
        .arg("-c")
        .arg(file)
        .args(["-o", &object]))?;
    compile_ptx(file, Path::new(COMPILED), name)?;
    println!("compiled for the CPU: {object}");
    println!("compiled to PTX:      {COMPILED}/sm_80/{name}.ptx {COMPILED}/sm_90/{name}.ptx");
    Ok(())
}

/// Compiles `source` to `folder`/sm_80/`name`.ptx and `folder`/sm_90/`name`.ptx, at the same time.
pub(crate) fn compile_ptx(source: &Path, folder: &Path, name: &str) -> Result {
    let nvcc = nvcc()?;
    let mut running = Vec::new();
    for architecture in ARCHITECTURES {
        let made = folder.join(format!("sm_{architecture}/{name}.ptx"));
        let parent = folder_of(&made);
        fs::create_dir_all(parent).at(parent)?;
        let mut command = Command::new(&nvcc);
        command
            .args(OPTIONS)
            .arg(format!("-arch=compute_{architecture}"))
            .args(["-I", "kernels/include", "-I"])
            .arg(folder_of(source))
            .arg("-o")
            .args([&made, source]);
        running.push(Running::start(&mut command, Ending::Asked)?);
    }
    let ended: Vec<_> = running
        .iter_mut()
        .map(|one| one.wait(None))
        .collect::<Result<_>>()?;
    ended.into_iter().flatten().try_for_each(process::succeeded)
}

/// Returns the folder of a file, or `.` for a file in the current directory.
fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn nvcc() -> Result<PathBuf> {
    cuda_program("nvcc")
}

/// Returns, in one line, what PTX depends on besides its sources.
pub(crate) fn compiler() -> Result<String> {
    let said = text_of(Command::new(nvcc()?).arg("--version"))?;
    let build = said.lines().next_back().unwrap_or_default();
    let architectures = ARCHITECTURES.join(" ");
    Ok(format!(
        "nvcc {}, {build}, {architectures}",
        OPTIONS.join(" ")
    ))
}

/// Returns a program of the pinned toolkit, below the one version of Python of the virtual environment.
pub(crate) fn cuda_program(name: &str) -> Result<PathBuf> {
    let libraries = Path::new(".tools/venv/lib");
    for entry in fs::read_dir(libraries).at(libraries)? {
        let folder = entry.at(libraries)?.path();
        let program = folder.join("site-packages/nvidia/cu13/bin").join(name);
        if program.is_file() {
            return Ok(program);
        }
    }
    Err(Failure::new(
        3,
        format!("there is no {name} in .tools/venv"),
    ))
}

/// Compiles all kernels below `folder`: `folder`/moe/dispatch.cu becomes `to`/sm_90/moe/dispatch.ptx.
fn compile_all(folder: &str, to: &Path) -> Result {
    for source in files_below(folder, |path| ends_in(path, &["cu"]))? {
        let name = source.strip_prefix(folder).unwrap_or(&source);
        compile_ptx(&source, to, &name.with_extension("").to_string_lossy())?;
    }
    Ok(())
}

/// Compiles the kernels in `folder` to PTX, beside the PTX that is there. Returns the folder of the new PTX.
pub(crate) fn compile_fresh(folder: &str) -> Result<PathBuf> {
    let fresh = Path::new("target/kernels/fresh").join(folder);
    fresh_folder(&fresh)?;
    compile_all(folder, &fresh)?;
    Ok(fresh)
}

/// Compiles every kernel. Fails if a kernel does not compile, or if PTX in git is not what the sources compile to. PTX that git does not
/// carry is written, so that what is built next has it.
pub(crate) fn check_ptx() -> Result {
    written_ptx::compile_everything()?;
    for folder in PTX_IN_GIT {
        let checked_in = format!("{folder}/ptx");
        let fresh = compile_fresh(folder)?;
        run(command("diff", ["-rq", &checked_in]).arg(fresh)).map_err(|_differs| {
            Failure::new(
                1,
                format!(
                    "{checked_in} is not what these sources compile to; run ./x kernels and commit the result"
                ),
            )
        })?;
    }
    Ok(())
}

/// Returns the command that counts what a call costs (.ci/sass).
pub(crate) fn count_sass(arguments: &[String]) -> Command {
    command(
        wheel_program("python"),
        [".ci/sass"]
            .iter()
            .copied()
            .chain(arguments.iter().map(String::as_str)),
    )
}

/// Returns the command that tests the counting.
pub(crate) fn test_sass() -> Command {
    command(
        wheel_program("python"),
        ["-m", "unittest", "discover", "-s", ".ci/sass"],
    )
}

pub(crate) fn sass(arguments: &[String]) -> Result {
    prepare("sass")?;
    run(&mut count_sass(arguments))
}
