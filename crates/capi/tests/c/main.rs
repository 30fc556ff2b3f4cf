//! The C ABI as C programs see it: the header is what the sources say, and a program in C, compiled as C and as C++, runs
//! dispatch and combine between two ranks.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
/// The sources of the ABI, in the order of the header.
const SOURCES: [&str; 6] = [
    "src/status.rs",
    "src/team.rs",
    "src/moe.rs",
    "src/placement.rs",
    "src/phases.rs",
    "src/staging.rs",
];

/// The header as cbindgen renders it now.
fn rendered() -> String {
    let root = Path::new(CRATE);
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in SOURCES {
        builder = builder.with_src(root.join(file));
    }
    let mut bytes = Vec::new();
    builder.generate().unwrap().write(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    text.replace("// # Safety\n", "// Requires:\n")
}

#[test]
fn the_header_is_what_the_sources_say() {
    let path = Path::new(CRATE).join("include/warpverbs.h");
    let text = rendered();
    if env::var_os("UPDATE").is_some_and(|update| update == "1") {
        fs::write(&path, text).unwrap();
        return;
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(text.lines()).position(|(a, b)| a != b);
    assert!(
        found == text,
        "{} is stale from line {}: UPDATE=1 cargo test -p warpverbs-capi",
        path.display(),
        differs.unwrap_or(found.lines().count()) + 1
    );
}

#[test]
fn the_header_names_every_exported_function_once() {
    let text = rendered();
    let mut exported = 0;
    for file in SOURCES {
        let source = fs::read_to_string(Path::new(CRATE).join(file)).unwrap();
        for after in source.split("extern \"C\" fn ").skip(1) {
            let name = after.split('(').next().unwrap();
            let declared = text
                .lines()
                .filter(|line| !line.starts_with("//"))
                .filter(|line| line.contains(&format!("{name}(")));
            assert_eq!(declared.count(), 1, "{name}");
            exported += 1;
        }
    }
    assert!(exported >= 20, "only {exported} functions found");
}

#[test]
fn no_panic_of_a_function_with_a_status_leaves_it() {
    // What runs a body under `status::guard`.
    const GUARDED: [&str; 4] = ["guard(|", "launch(call,", "copy(team,", "create(team,"];
    let mut seen = 0;
    for file in SOURCES {
        let source = fs::read_to_string(Path::new(CRATE).join(file)).unwrap();
        for function in source.split("extern \"C\" fn ").skip(1) {
            let (signature, body) = function.split_once('{').unwrap();
            if !signature.contains("-> wv_status") {
                continue;
            }
            let body: String = body
                .split("\n}\n")
                .next()
                .unwrap()
                .split_whitespace()
                .collect();
            let name = signature.split('(').next().unwrap();
            assert!(
                GUARDED.iter().any(|guard| body.contains(guard)),
                "{name}: {body}"
            );
            seen += 1;
        }
        for (helper, of) in [("launch", "phases"), ("copy", "team"), ("create", "moe")] {
            if file == format!("src/{of}.rs") {
                let body = source
                    .split(&format!("unsafe fn {helper}("))
                    .nth(1)
                    .unwrap();
                let body = body.split("\n}\n").next().unwrap();
                assert!(body.contains("    guard(|| {"), "{helper}");
            }
        }
    }
    assert!(seen >= 20, "only {seen} functions found");
}

/// Where cargo put the libraries: beside or above this program.
fn library(name: &str) -> PathBuf {
    let program = env::current_exe().unwrap();
    let folders = program.ancestors().skip(1).take(2);
    let mut found = folders.map(|folder| folder.join(name));
    found
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no {name} beside {}", program.display()))
}

struct Language {
    /// Variable that names the compiler, and the one to take if it is not set.
    compiler: (&'static str, &'static str),
    arguments: &'static [&'static str],
}

const C: Language = Language {
    compiler: ("CC", "cc"),
    arguments: &["-std=c11", "-x", "c"],
};
const CPP: Language = Language {
    compiler: ("CXX", "c++"),
    arguments: &["-std=c++17", "-x", "c++"],
};

impl Language {
    fn compile(&self, source: &str, program: &Path) {
        let (variable, default) = self.compiler;
        let library = library("libwarpverbs_c.so");
        let output = Command::new(env::var(variable).unwrap_or_else(|_| default.to_owned()))
            .args(self.arguments)
            .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"])
            .args(["-ffp-contract=off", "-pthread", "-I"])
            .arg(Path::new(CRATE).join("include"))
            .arg(Path::new(CRATE).join("tests/c").join(source))
            .args(["-x", "none"])
            .arg(&library)
            .arg(format!(
                "-Wl,-rpath,{}",
                library.parent().unwrap().display()
            ))
            .arg("-o")
            .arg(program)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
    }
}

/// Runs a program with software HCAs below it, at most three minutes; it must leave no finding.
fn run(program: &Path, arguments: &[&Path], folder: &Path) -> Output {
    let findings = folder.join("findings");
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if ["WARPVERBS_", "SOFTHCA_", "SYSFS_PATH"]
            .iter()
            .any(|start| text.starts_with(start))
        {
            command.env_remove(&name);
        }
    }
    let child = command
        .args(arguments)
        .env("LD_PRELOAD", library("libsofthca.so"))
        .env("XDG_RUNTIME_DIR", folder)
        .env("SOFTHCA_FINDINGS", &findings)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id().to_string();
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        if ended.recv_timeout(Duration::from_secs(100)).is_err() {
            // The one process that this test has started.
            let _ = Command::new("kill").args(["-9", &id]).status();
        }
    });
    let output = child.wait_with_output().unwrap();
    let _ = done.send(());
    watch.join().unwrap();
    let found = fs::read_to_string(&findings).unwrap_or_default();
    assert!(found.is_empty(), "softhca: {found}");
    output
}

/// Compiles `name`.c, runs it, and looks for what it says at its end.
fn program(language: &Language, name: &str, says: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(name);
    language.compile(&format!("{name}.c"), &program);
    let store = folder.path().join("store");
    fs::create_dir(&store).unwrap();
    let output = run(&program, &[&store], folder.path());
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {text}\n{errors}",
        output.status
    );
    assert!(text.contains(says), "{text}\n{errors}");
    let posted = text
        .lines()
        .find_map(|line| line.strip_prefix("WQEs of mlx5_0: ")?.trim().parse().ok());
    let posted: u64 = posted.unwrap_or_else(|| panic!("no count of WQEs: {text}"));
    // In each of 6 calls each rank sends the other two signals at least.
    assert!(
        posted >= 6 * 2 * 2,
        "the HCA carries what ranks send: {posted} WQEs"
    );
}

fn two_ranks(language: &Language) {
    program(
        language,
        "two_ranks",
        "two ranks: 6 calls equal the scalar loop",
    );
}

#[test]
fn a_c_program_runs_dispatch_and_combine_between_two_ranks() {
    two_ranks(&C);
}

#[test]
fn the_same_program_is_cpp_too() {
    two_ranks(&CPP);
}

#[test]
fn experts_are_replicated_and_moved_and_write_into_the_memory_of_the_layer() {
    let says = "placed experts: 6 calls equal the scalar loop";
    program(&C, "placed", says);
    program(&CPP, "placed", says);
}
