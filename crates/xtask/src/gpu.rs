//! `./x gpu`: packs everything into one folder that a machine with a GPU and nothing else needs, and runs it (.ci/gpu-run.sh).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{At, Failure, Result};
use crate::kernels::{ARCHITECTURES, compile_ptx, cuda_program};
use crate::others;
use crate::process::{answer, command, run, succeeded, text_of};
use crate::programs::messages;
use crate::tree::{
    PTX_IN_GIT, PTX_WRITTEN, TEST_KERNELS, build, ends_in, files_below, fresh_folder, git,
    is_changed, target,
};
use crate::widen::{code_of, widened};
use crate::written_ptx;

const PACK: &str = "target/gpu/pack";
/// The folder of the files that the pack has as one compressed file.
const FILES: &str = "target/gpu/files";
pub(crate) const RESULTS: &str = "target/gpu/results";

/// The tests that run kernels on the device that WARPVERBS_TEST_GPU names. Tests that take long are in the full pack only.
const TESTS: [&str; 5] = ["gpu", "post", "put", "signal", "put_errors"];
const LONG_TESTS: [&str; 4] = ["conformance", "failures", "ops", "ring_all_gather"];

/// The architecture whose machine code is packed.
const MACHINE: &str = "sm_90";

/// The most megabytes of a pack. At most 64 travel to a lent machine at once.
const MOST_MEGABYTES: u32 = 48;

/// The test kernels that the packed tests do not run.
const OF_OTHER_TESTS: [&str; 4] = ["mutants", "cost*", "moe*", "guard"];

/// The size of a pack. Quick leaves out the long tests, and the PTX of the test kernels, which only a GPU needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Full,
    Quick,
}

/// Packs and runs the quick pack, as a step of `./x test`.
pub(crate) fn in_tests() -> Result {
    pack(Size::Quick, None)?;
    run_pack(RESULTS, Size::Quick, &[])
}

/// Makes a pack. `others` is a folder with headers of other projects, whose posting is measured too.
pub(crate) fn pack(size: Size, others: Option<&str>) -> Result {
    written_ptx::write()?;
    build()?;
    let (pack, files) = (Path::new(PACK), Path::new(FILES));
    fresh_folder(pack)?;
    fresh_folder(files)?;
    for folder in ["bin", "lib", "tests"].map(|name| files.join(name)) {
        fs::create_dir(&folder).at(&folder)?;
    }
    pack_tests(size)?;
    let built = target();
    written_ptx::check_carried(&built.join("wv"))?;
    let strip = |options: &[&str], file: &str| {
        let place = files.join("bin").join(file);
        run(command("strip", options)
            .arg("-o")
            .args([place, built.join(file)]))
    };
    strip(&[], "wv")?;
    strip(&["--strip-unneeded"], "libsofthca.so")?;
    pack_verbs_libraries()?;
    if size == Size::Full {
        pack_ptx()?;
        pack_cubins()?;
    }
    if let Some(folder) = others {
        pack_others(folder)?;
    }
    let tar = pack.join("files.tar.gz");
    run(
        command("tar", ["-C", FILES, "--owner=0", "--group=0", "-czf"])
            .arg(tar)
            .arg("."),
    )?;
    let script = pack.join("run.sh");
    fs::copy(".ci/gpu-run.sh", &script).at(&script)?;
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?.unwrap_or_default();
    let changed = if is_changed()? { " changed" } else { "" };
    let of_what = format!("{}{changed}", commit.trim());
    fs::write(pack.join("COMMIT"), of_what).at(pack)?;
    let size = text_of(&mut command("du", ["-sm", PACK]))?;
    let megabytes = size
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    let Some(megabytes) = megabytes.filter(|size: &u32| *size <= MOST_MEGABYTES) else {
        let text = format!(
            "{PACK} has {} MB, at most {MOST_MEGABYTES} travel",
            size.trim()
        );
        return Err(Failure::new(1, text));
    };
    println!(
        "packed: {PACK}, {megabytes} MB. On a machine with a GPU: sh run.sh [RESULTS], see its first lines"
    );
    Ok(())
}

fn pack_tests(size: Size) -> Result {
    let mut tests = TESTS.to_vec();
    if size == Size::Full {
        tests.extend(LONG_TESTS);
    }
    let mut cargo = command("cargo", ["test", "--locked", "--workspace"]);
    for test in &tests {
        cargo.args(["--test", test]);
    }
    cargo.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let built = answer(&mut cargo, None)?;
    succeeded(built.status)?;
    for test in tests {
        let made = executable_of(test, &built.text)
            .ok_or_else(|| Failure::new(1, format!("cargo made no test {test}")))?;
        let place = Path::new(FILES).join("tests").join(test);
        run(command("strip", ["-o"]).args([place, made]))?;
    }
    Ok(())
}

/// Returns the executable that cargo says it has made of tests/`test`.
fn executable_of(test: &str, said: &str) -> Option<PathBuf> {
    let made = messages(said).filter(|message| {
        let target = &message["target"];
        target["name"] == test && target["kind"][0] == "test"
    });
    let executables = made.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    executables.last()
}

/// Packs the verbs libraries as files, because the other machine has no packages. They are downloaded. If that fails, those of this machine
/// are taken.
fn pack_verbs_libraries() -> Result {
    let debs = Path::new("target/gpu/debs");
    if !debs.join("done").exists() {
        fresh_folder(debs)?;
        let script = "apt-get download -qq libibverbs1 ibverbs-providers libnl-3-200 libnl-route-3-200 >apt.log 2>&1 &&
            mkdir root && for deb in *.deb; do dpkg-deb -x \"$deb\" root || exit 1; done && touch done";
        let fetched = run(command("sh", ["-c", script]).current_dir(debs));
        crate::process::check_interrupted()?;
        if fetched.is_err() {
            println!("x: no packages to be had; packing the installed libraries");
        }
    }
    let folders = folders_of_libraries(&debs.join("root"))?;
    let lib = Path::new(FILES).join("lib");
    for name in [
        "libibverbs.so.1",
        "libmlx5.so.1",
        "libnl-3.so.200",
        "libnl-route-3.so.200",
    ] {
        let mut places = folders.iter().map(|folder| folder.join(name));
        let found = places.find(|path| path.exists()).ok_or_else(|| {
            Failure::new(3, format!("no {name}: neither in a package nor installed"))
        })?;
        fs::copy(&found, lib.join(name)).at(&found)?;
    }
    // libibverbs adds the suffix of its providers to each name in IBV_DRIVERS.
    let libibverbs = fs::read(lib.join("libibverbs.so.1")).at(&lib)?;
    let suffix = provider_suffix(&libibverbs).unwrap_or_else(|| "-rdmav34.so".to_owned());
    let link = lib.join(format!("libmlx5{suffix}"));
    symlink("libmlx5.so.1", &link).at(&link)
}

/// Returns the folders of libraries: those that were unpacked, then those of this machine.
fn folders_of_libraries(unpacked: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for parent in [
        unpacked.join("usr/lib"),
        unpacked.join("lib"),
        "/usr/lib".into(),
        "/lib".into(),
    ] {
        if !parent.is_dir() {
            continue;
        }
        let mut found = Vec::new();
        for entry in fs::read_dir(&parent).at(&parent)? {
            let path = entry.at(&parent)?.path();
            if path.to_string_lossy().ends_with("-linux-gnu") {
                found.push(path);
            }
        }
        found.sort();
        folders.extend(found);
    }
    Ok(folders)
}

/// Returns the suffix of providers, as `-rdmav34.so`, which is in the bytes of libibverbs.
fn provider_suffix(library: &[u8]) -> Option<String> {
    const START: &[u8] = b"-rdmav";
    let mut places = library.windows(START.len()).enumerate();
    places.find_map(|(at, bytes)| {
        if bytes != START {
            return None;
        }
        let after = &library[at + START.len()..];
        let digits = after
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (number, rest) = after.split_at(digits);
        let number = std::str::from_utf8(number).ok()?;
        rest.starts_with(b".so")
            .then(|| format!("-rdmav{number}.so"))
    })
}

/// Packs the PTX of the test kernels, which is not checked in. It is compiled again if a source is newer.
fn pack_ptx() -> Result {
    let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified());
    let is_source = |path: &Path| ends_in(path, &["cu", "cuh", "h"]);
    let mut sources = files_below("kernels", is_source)?;
    sources.extend(files_below(TEST_KERNELS, is_source)?);
    let newest = sources
        .into_iter()
        .map(|path| changed(&path).at(&path))
        .collect::<Result<Vec<_>>>()?;
    let newest = newest.into_iter().max();
    let compiled = Path::new("target/kernels");
    let is_top =
        |path: &Path| ends_in(path, &["cu"]) && path.parent() == Some(Path::new(TEST_KERNELS));
    for source in files_below(TEST_KERNELS, is_top)? {
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        if is_of_other_tests(&name) {
            continue;
        }
        let fresh = compiled.join(format!("sm_90/test/{name}.ptx"));
        if changed(&fresh).map_or(true, |made| newest.is_some_and(|newest| newest > made)) {
            compile_ptx(&source, compiled, &format!("test/{name}"))?;
        }
        for architecture in ARCHITECTURES {
            let folder = Path::new(FILES).join(format!("ptx/sm_{architecture}"));
            fs::create_dir_all(&folder).at(&folder)?;
            let made = compiled.join(format!("sm_{architecture}/test/{name}.ptx"));
            fs::copy(&made, folder.join(format!("{name}.ptx"))).at(&made)?;
        }
    }
    Ok(())
}

/// Packs machine code for the GPUs of today, made of the PTX in the programs and in the test kernels. So the driver compiles nothing at the
/// start of each program. Tests, and all programs beside a software HCA, have their memory in the host, for which the PTX text is widened.
fn pack_cubins() -> Result {
    for folder in PTX_IN_GIT.iter().chain(&PTX_WRITTEN) {
        for text in texts_of(&format!("{folder}/ptx/{MACHINE}"))? {
            assemble(&text)?;
            assemble(&widened(&text))?;
        }
    }
    let tests = texts_of(&format!("{FILES}/ptx/{MACHINE}"))?;
    tests.iter().try_for_each(|text| assemble(&widened(text)))
}

/// Packs adapters to other projects, as PTX and as machine code.
fn pack_others(folder: &str) -> Result {
    let made = format!("{FILES}/others");
    others::compile(folder, Path::new(&made))?;
    let texts = texts_of(&format!("{made}/{MACHINE}"))?;
    texts.iter().try_for_each(|text| assemble(text))
}

/// Returns the PTX texts below a folder.
fn texts_of(folder: &str) -> Result<Vec<String>> {
    let files = files_below(folder, |path| ends_in(path, &["ptx"]))?;
    let texts = files.iter().map(|file| fs::read_to_string(file).at(file));
    texts.collect()
}

/// Packs machine code of a PTX text, in the place where a program that loads the text finds it.
fn assemble(ptx: &str) -> Result {
    let folder = Path::new(FILES).join("cubins").join(MACHINE);
    fs::create_dir_all(&folder).at(&folder)?;
    let made = folder.join(code_of(ptx));
    if made.exists() {
        return Ok(());
    }
    let text = Path::new("target/gpu/text.ptx");
    fs::write(text, ptx).at(text)?;
    run(Command::new(cuda_program("ptxas")?)
        .args(["-O3", "-arch", MACHINE, "-o"])
        .args([&made, text]))
}

fn is_of_other_tests(kernel: &str) -> bool {
    OF_OTHER_TESTS
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => kernel.starts_with(start),
            None => kernel == *pattern,
        })
}

/// Runs the pack with nothing of this machine except the Linux kernel, sh and the C library. Results of a GPU are also copied to where they
/// can be committed.
///
/// The driver's library may be in a folder that only the caller's LD_LIBRARY_PATH names.
pub(crate) fn run_pack(results: &str, size: Size, options: &[&str]) -> Result {
    let script = format!("{PACK}/run.sh");
    if !Path::new(&script).exists() {
        return Err(Failure::new(2, "nothing is packed: ./x gpu pack"));
    }
    let home = std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
    let mut packed = Command::new("/bin/sh");
    packed.args([&script, results]);
    if size == Size::Quick {
        packed.arg("quick");
    }
    let kept = ["LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"]
        .into_iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    run(packed
        .args(options)
        .env_clear()
        .envs(kept)
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin"))?;
    let kept = Path::new("crates/bench/kernels/results");
    for entry in fs::read_dir(results).at(results)? {
        let entry = entry.at(results)?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("NVIDIA-") {
            fs::create_dir_all(kept).at(kept)?;
            fs::copy(entry.path(), kept.join(&name)).at(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_of_providers_is_found_among_bytes() {
        let suffix = |bytes: &[u8]| provider_suffix(bytes);
        assert_eq!(
            suffix(b"\0-rdmavX\0lib%s-rdmav34.so\0"),
            Some("-rdmav34.so".to_owned())
        );
        assert_eq!(suffix(b"no library"), None);
    }

    #[test]
    fn the_program_of_a_test_is_the_one_that_cargo_names() {
        let message = |kind: &str, name: &str, path: &str| {
            format!(r#"{{"target":{{"kind":["{kind}"],"name":"{name}"}},"executable":"{path}"}}"#)
        };
        let said = [
            message("test", "put_errors", "/a"),
            message("test", "put", "/b"),
            message("bin", "put", "/c"),
        ];
        assert_eq!(executable_of("put", &said.join("\n")), Some("/b".into()));
        assert_eq!(executable_of("gpu", &said.join("\n")), None);
    }

    #[test]
    fn kernels_of_tests_that_are_not_packed_stay_away() {
        assert!(is_of_other_tests("cost_put") && is_of_other_tests("guard"));
        assert!(!is_of_other_tests("guards") && !is_of_other_tests("put"));
    }
}
