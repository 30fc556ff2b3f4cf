//! The C ABI as C programs see it. The header is what the sources say, and every error of the library has a status. Programs in C,
//! compiled as C and as C++, run dispatch and combine, and kernels on windows. Others run groups in which a rank dies and comes
//! back, or move memory between host engines.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
/// The sources of the ABI, in the order of the header.
const SOURCES: [&str; 20] = [
    "src/status.rs",
    "src/team.rs",
    "src/window.rs",
    "src/launch.rs",
    "src/peer.rs",
    "src/moe.rs",
    "src/placement.rs",
    "src/phases.rs",
    "src/staging.rs",
    "src/group.rs",
    "src/event.rs",
    "src/engine.rs",
    "src/name.rs",
    "src/memory.rs",
    "src/gpu_memory.rs",
    "src/grant.rs",
    "src/transfer.rs",
    "src/notice.rs",
    "src/counter.rs",
    "src/statistics.rs",
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

/// From the name on, each function that `source` exports.
fn exported_of(source: &str) -> impl Iterator<Item = &str> {
    let exports = source.split("#[unsafe(no_mangle)]\n").skip(1);
    exports.map(|after| after.split_once("extern \"C\" fn ").unwrap().1)
}

#[test]
fn the_header_names_every_exported_function_once() {
    let text = rendered();
    let mut exported = 0;
    for file in SOURCES {
        let source = fs::read_to_string(Path::new(CRATE).join(file)).unwrap();
        for after in exported_of(&source) {
            let name = after.split('(').next().unwrap();
            let declared = text
                .lines()
                .filter(|line| !line.starts_with("//"))
                .filter(|line| line.contains(&format!("{name}(")));
            assert_eq!(declared.count(), 1, "{name}");
            exported += 1;
        }
    }
    assert!(exported >= 45, "only {exported} functions found");
}

#[test]
fn no_panic_of_a_function_with_a_status_leaves_it() {
    // What runs a body under `status::guard`.
    const GUARDED: [&str; 5] = [
        "guard(|",
        "launch(call,",
        "copy(team,",
        "create(team,",
        "of_peer(team,",
    ];
    let mut seen = 0;
    for file in SOURCES {
        let source = fs::read_to_string(Path::new(CRATE).join(file)).unwrap();
        for function in exported_of(&source) {
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
        for (helper, of) in [
            ("launch", "phases"),
            ("copy", "team"),
            ("create", "moe"),
            ("of_peer", "peer"),
        ] {
            if file == format!("src/{of}.rs") {
                let body = source.split(&format!("fn {helper}(")).nth(1).unwrap();
                let body = body.split("\n}\n").next().unwrap();
                assert!(body.contains("    guard(|| {"), "{helper}");
            }
        }
    }
    assert!(seen >= 40, "only {seen} functions found");
}

/// Names of the variants of `pub enum name` in `source`.
fn variants(source: &str, name: &str) -> Vec<String> {
    let body = source.split(&format!("pub enum {name} {{\n")).nth(1);
    let body = body
        .unwrap_or_else(|| panic!("no enum {name}"))
        .split("\n}\n")
        .next()
        .unwrap();
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let named = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    let word = |line: &str| line.split([' ', '(', ',']).next().unwrap().to_owned();
    named.map(word).collect()
}

#[test]
fn every_error_of_the_library_has_an_arm_that_chooses_its_status() {
    let root = Path::new(CRATE);
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    // What a comment names has no arm for that.
    let code = |file: &str| {
        let text = read(file);
        let lines = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let causes = code("src/cause.rs");
    let events = code("src/event.rs");
    let mut seen = 0;
    for (enumeration, file, named) in [
        ("ConfigError", "../../src/config/error.rs", &causes),
        ("TeamError", "../../src/team/error.rs", &causes),
        ("MoeError", "../../src/moe/error.rs", &causes),
        ("VerbsError", "../../src/verbs/error.rs", &causes),
        ("GpuError", "../../src/gpu/error.rs", &causes),
        ("GroupError", "../../src/membership/error.rs", &causes),
        ("GroupState", "../../src/membership/event.rs", &causes),
        ("StoreError", "../rendezvous/src/error.rs", &causes),
        ("HostError", "../../src/engine/error.rs", &causes),
        ("EngineError", "../../src/engine/error.rs", &causes),
        ("ProviderError", "../../src/provider/error.rs", &causes),
        ("Cause", "../../src/membership/event.rs", &events),
        ("GroupEventKind", "../../src/membership/event.rs", &events),
    ] {
        for variant in variants(&read(file), enumeration) {
            // Only builds without etcd have it, which this crate is none of.
            if (enumeration, variant.as_str()) == ("StoreError", "NoEtcd") {
                continue;
            }
            let path = format!("{enumeration}::{variant}");
            let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric());
            let found = named.split(&path).skip(1).any(ends);
            assert!(found, "{path} has no arm");
            seen += 1;
        }
    }
    assert!(seen >= 110, "only {seen} variants found");
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
            .arg("-I")
            .arg(Path::new(CRATE).join("../../kernels/include"))
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

/// Runs a program with software HCAs below it, at most three minutes; it must leave no finding, or those that have this word alone.
/// `finds`: words of what the software HCA finds, if it is to. Host engines then go by it, also within a process.
fn run(program: &Path, arguments: &[&Path], folder: &Path, finds: Option<&str>) -> Output {
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
        .envs(finds.map(|_| ("WARPVERBS_ENGINE_PATH", "nic")))
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
    let is_due =
        |line: &str| finds.is_some_and(|words| words.split(' ').any(|it| line.contains(it)));
    assert!(found.lines().all(is_due), "softhca: {found}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        found.is_empty(),
        finds.is_none(),
        "softhca: {found}; {said}"
    );
    output
}

/// Compiles `name`.c, runs it, and looks for what it says at its end. Returns all that it says.
fn program(language: &Language, name: &str, says: &str) -> String {
    program_that_finds(language, name, says, None)
}

fn program_that_finds(language: &Language, name: &str, says: &str, finds: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(name);
    language.compile(&format!("{name}.c"), &program);
    let store = folder.path().join("store");
    fs::create_dir(&store).unwrap();
    let output = run(&program, &[&store], folder.path(), finds);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {text}\n{errors}",
        output.status
    );
    assert!(text.contains(says), "{text}\n{errors}");
    text.into_owned()
}

/// The HCA carries what ranks send: a program has posted so many work requests at least.
fn posted(text: &str, least: u64) {
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("WQEs of mlx5_0: ")?.trim().parse().ok());
    let count: u64 = count.unwrap_or_else(|| panic!("no count of WQEs: {text}"));
    assert!(count >= least, "{count} WQEs of {least}");
}

/// In each of 6 calls each of two ranks sends the other two signals at least.
const SIX_CALLS: u64 = 6 * 2 * 2;

fn two_ranks(language: &Language) {
    let says = "two ranks: 6 calls equal the scalar loop";
    posted(&program(language, "two_ranks", says), SIX_CALLS);
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
fn experts_are_replicated_and_moved_and_write_into_the_layers_memory() {
    let says = "placed experts: 6 calls equal the scalar loop";
    for language in [&C, &CPP] {
        posted(&program(language, "placed", says), SIX_CALLS);
    }
}

#[test]
fn structs_of_all_headers_are_read_and_null_and_dead_handles_are_refused() {
    let says = "structs, statuses and handles are as the header says";
    for language in [&C, &CPP] {
        program(language, "structs", says);
    }
}

#[test]
fn kernels_write_windows_of_peers_whose_qps_fail_and_recover() {
    let says = "windows: 3 ranks gather 6 times";
    for language in [&C, &CPP] {
        // In each gather each rank puts two chunks with their signals.
        posted(&program(language, "windows", says), 6 * 3 * 2 * 2);
    }
}

#[test]
fn a_rank_of_a_group_dies_and_comes_back_while_the_others_call() {
    program(&C, "groups", "groups: a rank died, came back and left");
}

#[test]
fn the_same_group_is_cpp_too() {
    program(&CPP, "groups", "groups: a rank died, came back and left");
}

#[test]
fn memory_of_a_c_program_is_moved_between_two_host_engines() {
    for language in [&C, &CPP] {
        // It writes by a key that the peer does not have, and reads by one that has ended.
        let finds = Some("remote-key key-ended");
        let says = "engines: every byte was moved";
        program_that_finds(language, "engines", says, finds);
        program(language, "engines", says);
    }
}
