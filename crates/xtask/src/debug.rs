//! `./x debug`: runs a test that launches a kernel on the CPU, and stops it by gdb at a line of the kernel.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::failure::{At, Failure, Result};
use crate::number::whole;
use crate::process::{answer, command, is_installed, succeeded};
use crate::tree::{kernel_sources, prepare};

/// Where gdb stops: a file, and the line of the kernel's definition or the line that was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    file: PathBuf,
    line: usize,
}

/// Runs `./x debug KERNEL PROGRAM [TEST]`. KERNEL is the name of a kernel or FILE:LINE, and PROGRAM is a test program of the root package
/// or PACKAGE/PROGRAM.
pub(crate) fn debug(words: &[&str]) -> Result {
    let (kernel, program, test) = match *words {
        [kernel, program] => (kernel, program, ""),
        [kernel, program, test] => (kernel, program, test),
        _ => {
            return Err(Failure::new(
                2,
                "usage: ./x debug KERNEL|FILE:LINE [PACKAGE/]PROGRAM [TEST]",
            ));
        }
    };
    prepare("demo")?;
    if !is_installed("gdb") {
        return Err(Failure::new(3, "gdb is missing: apt-get install gdb"));
    }
    let place = place_of(kernel, &kernel_sources()?)?;
    let executable = build(program, &place)?;
    let error = gdb(&place, &executable, test).exec();
    Err(Failure::new(1, format!("cannot start gdb: {error}")))
}

fn place_of(kernel: &str, sources: &[PathBuf]) -> Result<Place> {
    if let Some((file, line)) = kernel.rsplit_once(':') {
        let file = PathBuf::from(file);
        let text = fs::read_to_string(&file).at(&file)?;
        let lines = text.lines().count();
        let line = whole(line).and_then(|line| usize::try_from(line).ok());
        return match line {
            Some(line) if (1..=lines).contains(&line) => Ok(Place { file, line }),
            _ => {
                let told = format!("{kernel}: {} has the lines 1 to {lines}", file.display());
                Err(Failure::new(2, told))
            }
        };
    }
    for file in sources {
        let text = fs::read_to_string(file).at(file)?;
        if let Some(line) = line_of(&text, kernel) {
            let file = file.clone();
            return Ok(Place { file, line });
        }
    }
    let told =
        format!("no file of the kernel folders exports a kernel {kernel}: WV_EXPORT({kernel})");
    Err(Failure::new(2, told))
}

/// Returns the line in which the kernel begins, if the text exports it.
fn line_of(text: &str, kernel: &str) -> Option<usize> {
    if !text.contains(&format!("WV_EXPORT({kernel})")) {
        return None;
    }
    let head = format!("__global__ void {kernel}(");
    let at = text.lines().position(|line| line.contains(&head))?;
    Some(at + 1)
}

/// Returns the package whose build script compiles a file of kernels. Its name is in the manifest of the next folder above the file.
fn package_of(file: &Path) -> Result<String> {
    let folders = file.ancestors().skip(1);
    let Some(manifest) = folders
        .map(|folder| folder.join("Cargo.toml"))
        .find(|manifest| manifest.is_file())
    else {
        let told = format!("{} belongs to no package", file.display());
        return Err(Failure::new(2, told));
    };
    let text = fs::read_to_string(&manifest).at(&manifest)?;
    let name = text.lines().find_map(|line| line.strip_prefix("name = \""));
    let name = name.and_then(|rest| rest.split('"').next());
    let name = name.ok_or_else(|| Failure::new(1, format!("{} has no name", manifest.display())));
    Ok(name?.to_owned())
}

/// Returns the name of the variable that tells `simt::build` which file of that package a debugger will read.
fn variable_of(package: &str) -> String {
    format!("SIMT_DEBUG_{}", package.replace('-', "_").to_uppercase())
}

/// Builds a test program, with the file of the kernel made for a debugger. Returns the path of the program.
fn build(program: &str, place: &Place) -> Result<OsString> {
    let (package, program) = program.split_once('/').unwrap_or(("warpverbs", program));
    let name = place.file.file_name().unwrap_or_default();
    let mut cargo = command(
        "cargo",
        ["test", "--locked", "--no-run", "--message-format=json"],
    );
    cargo
        .args(["-p", package, "--test", program])
        .env(variable_of(&package_of(&place.file)?), name)
        .stderr(Stdio::inherit());
    // No limit is set, because the first build of a tree takes minutes.
    let built = answer(&mut cargo, None)?;
    succeeded(built.status)?;
    let built = built
        .text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let executables = built.filter(|it| it["target"]["name"] == program);
    let executable = executables
        .filter_map(|it| Some(OsString::from(it["executable"].as_str()?)))
        .next_back();
    executable.ok_or_else(|| {
        Failure::new(
            2,
            format!("package {package} has no test program {program}"),
        )
    })
}

/// Settings of gdb for the processes that a test starts, because kernels of an example run in rank processes of their own.
const CHILDREN: [&str; 2] = ["set detach-on-fork off", "set schedule-multiple on"];

/// Returns the command of gdb. Tests run in one thread, and their output is shown as it comes. simt's own stacks and signals need no action
/// of the user.
fn gdb(place: &Place, executable: &OsString, test: &str) -> Command {
    let name = place.file.file_name().unwrap_or_default().to_string_lossy();
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-ex", "set breakpoint pending on"])
        .args(CHILDREN.map(|set| ["-ex", set]).concat())
        .args(["-ex", &format!("break {name}:{}", place.line), "-ex", "run"])
        .arg("--args")
        .arg(executable)
        .args(["--test-threads=1", "--nocapture"]);
    if !test.is_empty() {
        gdb.arg(test);
    }
    gdb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_found_by_its_name_and_a_line_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.cu");
        fs::write(
            &file,
            "// one\nextern \"C\" __global__ void one(P p) {\n}\nWV_EXPORT(one)\n",
        )
        .unwrap();
        let sources = [file.clone()];
        let place = |line| Place {
            file: file.clone(),
            line,
        };
        assert_eq!(place_of("one", &sources), Ok(place(2)));
        assert_eq!(
            place_of(&format!("{}:4", file.display()), &sources),
            Ok(place(4))
        );
        for wrong in [
            "two",
            &format!("{}:0", file.display()),
            &format!("{}:5", file.display()),
            "none.cu:1",
        ] {
            assert!(place_of(wrong, &sources).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_belongs_to_the_package_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = "[package]\nname = \"own-kernel\"\n";
        fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
        let file = folder.path().join("kernels/deep/a.cu");
        assert_eq!(package_of(&file), Ok("own-kernel".to_owned()));
        assert_eq!(variable_of("own-kernel"), "SIMT_DEBUG_OWN_KERNEL");
    }

    #[test]
    fn wrong_numbers_of_words_are_refused() {
        for words in [&[][..], &["hello"], &["hello", "readme", "a", "b"]] {
            assert!(debug(words).is_err());
        }
    }
}
