//! The files of the working tree, which is the current directory of this process, and what cargo builds of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::failure::{At, Failure, Result};
use crate::process::{ask, command, is_installed, run, succeeded, with_input};

/// Returns the folder of `wv` and the library that it preloads, as tests and the demo run them.
pub(crate) fn target() -> PathBuf {
    target_folder().join("debug")
}

/// Returns the folder to which [`build_release`] writes.
pub(crate) fn release() -> PathBuf {
    target_folder().join("release")
}

fn target_folder() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").filter(|folder| !folder.is_empty());
    PathBuf::from(folder.unwrap_or_else(|| "target".into()))
}

/// The packages with the programs, libraries or wheels that users get. One command of cargo builds all of them, so that they and all crates
/// below them share features. Those are the features of the whole workspace, so the tests find the libraries already built.
const FOR_OTHERS: [&str; 10] = [
    "-p",
    "warpverbs",
    "-p",
    "softhca",
    "-p",
    "wv",
    "-p",
    "warpverbs-capi",
    "-p",
    "warpverbs-python",
];

/// Builds all that users get, in the way in which the tests run it.
pub(crate) fn build() -> Result {
    run(command("cargo", ["build", "--locked"]).args(FOR_OTHERS))
}

/// Builds all that users get, in the way in which users get it: without debug assertions and overflow checks.
pub(crate) fn build_release() -> Result {
    run(command("cargo", ["build", "--locked", "--release"]).args(FOR_OTHERS))
}

/// Builds `wv` and what it preloads, which is all that `./x demo` needs.
pub(crate) fn build_programs() -> Result {
    run(&mut command("cargo", ["build", "--locked"]))
}

/// Installs what a task needs, if it is missing. The script `x` has the lists.
pub(crate) fn prepare(task: &str) -> Result {
    succeeded(with_input(&mut command("sh", ["./x", "prepare", task]))?)
}

/// Returns what git prints, or None if git is not installed or fails, as it does outside of a repository.
pub(crate) fn git(arguments: &[&str]) -> Result<Option<String>> {
    if !is_installed("git") {
        return Ok(None);
    }
    let answer = ask(command("git", arguments).stderr(Stdio::null()))?;
    Ok(answer.status.success().then_some(answer.text))
}

/// Returns whether files differ from the last commit.
pub(crate) fn is_changed() -> Result<bool> {
    let status = git(&["status", "--porcelain"])?;
    Ok(status.is_some_and(|files| !files.is_empty()))
}

/// Returns a program of the virtual environment that `x prepare` makes.
pub(crate) fn wheel_program(name: &str) -> PathBuf {
    Path::new(".tools/venv/bin").join(name)
}

/// Returns the files below a folder for which `wanted` holds, sorted.
pub(crate) fn files_below(folder: &str, wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).at(&folder)? {
            let path = entry.at(&folder)?.path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else if wanted(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns whether a file has one of these extensions, which are given without the dot.
pub(crate) fn ends_in(path: &Path, endings: &[&str]) -> bool {
    path.extension()
        .and_then(|ending| ending.to_str())
        .is_some_and(|ending| endings.contains(&ending))
}

/// The folders of kernels, of all packages.
const KERNEL_FOLDERS: [&str; 6] = [
    "kernels",
    "docs/examples/own-kernel/kernels",
    "crates/bench/kernels",
    "crates/cli/kernels",
    "crates/gpuhca/kernels",
    TEST_KERNELS,
];
/// The folder of kernels that only tests launch. NVRTC compiles them in a test, and `./x gpu pack` compiles them for a GPU.
pub(crate) const TEST_KERNELS: &str = "crates/test-support/kernels";
/// The folders of kernels whose PTX is in git, in their subfolder `ptx`: those of the library, which users build by cargo alone, and of the
/// doctor.
pub(crate) const PTX_IN_GIT: [&str; 2] = ["kernels", "crates/cli/kernels"];
/// The folders of kernels whose PTX is written before programs for users are built, into a subfolder `ptx` that git ignores.
pub(crate) const PTX_WRITTEN: [&str; 2] = ["crates/bench/kernels", "crates/gpuhca/kernels"];

pub(crate) fn kernel_sources() -> Result<Vec<PathBuf>> {
    // Adapters to other projects (cuda) are compiled apart from the other kernels.
    below_all(&KERNEL_FOLDERS, |path| ends_in(path, &["cu", "cuda"]))
}

fn below_all(folders: &[&str], wanted: impl Fn(&Path) -> bool) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for folder in folders {
        found.extend(files_below(folder, &wanted)?);
    }
    Ok(found)
}

pub(crate) fn kernel_headers() -> Result<Vec<PathBuf>> {
    let is_header = |path: &Path| ends_in(path, &["cuh", "h"]);
    let mut found = files_below("crates/simt/include", is_header)?;
    found.extend(below_all(&KERNEL_FOLDERS, is_header)?);
    Ok(found)
}

/// Makes an empty folder in the place of the old file or folder.
pub(crate) fn fresh_folder(folder: &Path) -> Result {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::new(1, format!("{}: {error}", folder.display())));
        }
        _ => {}
    }
    fs::create_dir_all(folder).at(folder)
}

/// Returns the seconds since `start`, as the lines of a run print them.
pub(crate) fn seconds_since(start: std::time::Instant) -> u64 {
    start.elapsed().as_secs()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::interop;
    use crate::process::text_of;

    /// Returns the library and all crates below it, each with the features that cargo resolves if these packages are built together.
    fn with_features(packages: &[&str]) -> BTreeSet<String> {
        let mut tree = command(
            "cargo",
            ["tree", "--locked", "--no-dedupe", "--prefix=depth"],
        );
        let tree = text_of(tree.args(["--format", " {p} {f}"]).args(packages)).unwrap();
        let mut found = BTreeSet::new();
        let mut library = None;
        for line in tree.lines() {
            let Some((depth, krate)) = line.split_once(' ') else {
                continue;
            };
            // The first level has the packages themselves, with what their tests need.
            let depth: u32 = depth.parse().unwrap_or(0);
            library = library.filter(|library| depth > *library);
            if depth > 0 && krate.starts_with("warpverbs v") {
                library.get_or_insert(depth);
            }
            if library.is_some() {
                found.insert(krate.to_owned());
            }
        }
        assert!(!found.is_empty(), "{packages:?}: no library: {tree}");
        found
    }

    #[test]
    fn tests_wheel_and_crates_of_others_resolve_one_set_of_features() {
        let built = with_features(&[&FOR_OTHERS[..], &["--edges=no-dev"]].concat());
        let tests = with_features(&["--workspace"]);
        let missing: Vec<_> = built.difference(&tests).collect();
        assert!(missing.is_empty(), "the tests have others: {missing:?}");
        let wheel = with_features(&["-p", "warpverbs-python", "--edges=no-dev"]);
        assert_eq!(wheel, built, "maturin builds another library");
        let interop = [interop::PACKAGES, &["--features", interop::FEATURES]].concat();
        assert_eq!(with_features(&interop), built);
        // A build that lacks one of the packages resolves other features.
        let alone = with_features(&["-p", "warpverbs-capi", "--edges=no-dev"]);
        assert!(!alone.is_subset(&tests), "{alone:?}");
    }
}
