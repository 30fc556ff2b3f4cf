//! The module table of ARCHITECTURE.md, enforced: which module may use which in `src/`, between the crates and in `kernels/`.
//! Every module which opens `unsafe` says why. Device headers say what their fences and functions do. Programs of other tests are
//! not run as tests. Names of tests are short, and every test program has its entry in Cargo.toml. Documentation of public items says
//! more than their names. Waits read the clock before each look. Text of strangers is shown by `printable`. Inside the modules,
//! circles of files, slices of objects and long code do not grow, and arrows between the rooms of a folder go down (`walls`). Each file
//! of a crate is a module of it.

mod children;
mod headers;
mod names;
mod orphans;
mod planted;
mod programs;
mod repeats;
mod scan;
mod strangers;
mod tables;
mod unsafety;
mod waits;
mod walls;

use scan::{Language, RootName, code_of, root_names, tokens};
use std::path::{Component, Path, PathBuf};

/// Modules of `src/`, each with those it may use. One that has no row here is refused.
const MODULES: &[(&str, &[&str])] = &[
    ("abi", &[]),
    ("memheap", &[]),
    ("sys", &[]),
    ("error", &[]),
    ("config", &[]),
    ("deadline", &[]),
    ("topology", &["config"]),
    (
        "verbs",
        &["sys", "memheap", "abi", "topology", "error", "config"],
    ),
    ("gpu", &["abi", "topology", "error", "config", "deadline"]),
    ("fabric", &["verbs", "gpu", "topology", "error", "config"]),
    (
        "provider",
        &["verbs", "gpu", "fabric", "error", "config", "deadline"],
    ),
    (
        "team",
        &[
            "fabric", "verbs", "gpu", "abi", "topology", "error", "config", "deadline",
        ],
    ),
    (
        "membership",
        &["team", "verbs", "abi", "error", "config", "deadline"],
    ),
    (
        "moe",
        &[
            "membership",
            "team",
            "gpu",
            "abi",
            "error",
            "config",
            "deadline",
        ],
    ),
    (
        "engine",
        &[
            "provider", "fabric", "verbs", "gpu", "topology", "error", "config", "deadline",
        ],
    ),
    (
        "internal",
        &[
            "engine", "provider", "moe", "team", "verbs", "gpu", "memheap", "sys", "abi",
        ],
    ),
];

/// Crates that only some modules of `src/` may name. Unit tests may name softhca and softofi, which are dev-dependencies.
const CRATE_USERS: &[(&str, &[&str])] = &[
    ("mlx5_prm", &["abi", "verbs", "provider"]),
    ("file_memory", &["provider"]),
    ("libfabric_abi", &["provider"]),
    ("membership_rules", &["membership"]),
    ("simt", &["gpu"]),
    ("cudarc", &["gpu"]),
    (
        "rendezvous",
        &[
            "fabric",
            "provider",
            "membership",
            "team",
            "engine",
            "error",
            "deadline",
        ],
    ),
    ("softhca", &[]),
    ("softofi", &[]),
    ("moe_reference", &[]),
];

/// Packages of the workspace: dependencies, dev-dependencies and build-dependencies among each other.
const PACKAGES: &[(&str, [&[&str]; 3])] = &[
    ("crates/mlx5-prm", [&[], &[], &[]]),
    ("crates/membership-rules", [&[], &[], &[]]),
    ("crates/rendezvous", [&[], &["test-basics"], &[]]),
    ("crates/simt", [&[], &[], &[]]),
    ("crates/warpverbs-build", [&["simt"], &[], &[]]),
    ("crates/simt-tests", [&["simt"], &[], &["simt"]]),
    ("crates/private-dir", [&[], &[], &[]]),
    ("crates/gpuhca-abi", [&[], &[], &[]]),
    ("crates/libfabric-abi", [&[], &[], &[]]),
    ("crates/file-memory", [&[], &["test-basics"], &[]]),
    (
        "crates/softhca",
        [
            &["file-memory", "gpuhca-abi", "mlx5-prm", "private-dir"],
            &["softhca-rig", "test-basics"],
            &[],
        ],
    ),
    (
        "crates/softofi",
        [&["file-memory", "libfabric-abi"], &["test-basics"], &[]],
    ),
    ("crates/softhca-rig", [&["mlx5-prm", "softhca"], &[], &[]]),
    ("crates/test-basics", [&[], &[], &[]]),
    (
        "crates/test-support",
        [
            &[
                "gpuhca",
                "mlx5-prm",
                "moe-reference",
                "simt",
                "softhca",
                "test-basics",
                "warpverbs",
            ],
            &[],
            &["warpverbs-build"],
        ],
    ),
    ("crates/models", [&["membership-rules"], &[], &[]]),
    ("crates/moe-reference", [&[], &[], &[]]),
    ("crates/xtask", [&[], &[], &[]]),
    (
        "crates/gpuhca",
        [
            &["gpuhca-abi", "warpverbs"],
            &["softhca", "test-support"],
            &["warpverbs-build"],
        ],
    ),
    ("crates/capi", [&["warpverbs"], &["softhca"], &[]]),
    (
        "crates/interop",
        [&["warpverbs"], &["softhca", "test-support"], &[]],
    ),
    ("crates/python", [&["warpverbs"], &[], &[]]),
    (
        "crates/cli",
        [
            &["private-dir", "warpverbs"],
            &["softhca", "test-basics"],
            &["warpverbs-build"],
        ],
    ),
    (
        "crates/demo",
        [
            &[
                "gpuhca",
                "moe-reference",
                "private-dir",
                "warpverbs",
                "warpverbs-cli",
            ],
            &[],
            &[],
        ],
    ),
    (
        "crates/bench",
        [
            &["gpuhca", "private-dir", "warpverbs", "warpverbs-cli"],
            &["test-support"],
            &["warpverbs-build"],
        ],
    ),
    (
        "crates/wv",
        [
            &[
                "gpuhca",
                "warpverbs-bench",
                "warpverbs-cli",
                "warpverbs-demo",
            ],
            &[
                "softhca",
                "softofi",
                "test-basics",
                "test-support",
                "warpverbs",
            ],
            &[],
        ],
    ),
    (
        ".",
        [
            &[
                "file-memory",
                "libfabric-abi",
                "membership-rules",
                "mlx5-prm",
                "rendezvous",
                "simt",
            ],
            &[
                "models",
                "moe-reference",
                "softhca",
                "softofi",
                "test-basics",
                "test-support",
            ],
            &["warpverbs-build"],
        ],
    ),
];
/// The packages of the command line.
const COMMAND_LINE: [&str; 4] = ["crates/wv", "crates/cli", "crates/demo", "crates/bench"];
/// What only the command line depends on, outside of tests.
const OF_THE_COMMAND_LINE: [&str; 4] = ["clap", "indicatif", "npyz", "tracing-subscriber"];
const DEPENDENCY_SECTIONS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Device headers from the bottom up: a file may include its own layer and those below it.
const HEADER_LAYERS: &[&[&str]] = &[
    &["abi.h"],
    &["detail/ptx.cuh", "detail/simt_ops.cuh"],
    &["platform.cuh"],
    &["coop.cuh", "spin.cuh"],
    &[
        "peer.cuh",
        "qp.cuh",
        "detail/wqe.cuh",
        "detail/cq.cuh",
        "detail/order.cuh",
    ],
    &[
        "detail/combine.cuh",
        "detail/atomic.cuh",
        "detail/direct.cuh",
    ],
    &[
        "detail/sq.cuh",
        "detail/admit.cuh",
        "detail/serve.cuh",
        "detail/doorbell.cuh",
    ],
    &["post.cuh"],
    &["detail/transfer.cuh"],
    &[
        "put.cuh",
        "get.cuh",
        "amo.cuh",
        "imm.cuh",
        "wait.cuh",
        "guard.cuh",
        "path.cuh",
        "quiet.cuh",
    ],
];

/// Words of CUDA C++ and the one header that may hold each.
const CONFINED: &[(&str, &str)] = &[
    ("__CUDACC__", "platform.cuh"),
    ("asm", "detail/ptx.cuh"),
    ("threadIdx", "coop.cuh"),
];

/// Written by programs, so not read.
const GENERATED: &[&str] = &[
    "src/sys/bindings.rs",
    "crates/libfabric-abi/src/bindings.rs",
    "kernels/include/warpverbs/abi.h",
    "crates/test-support/kernels/abi.h",
    "crates/bench/kernels/abi.h",
    "crates/cli/kernels/abi.h",
    "crates/gpuhca/kernels/gpuhca/abi.h",
    "crates/capi/include/warpverbs.h",
];
const HEADERS: &str = "kernels/include/warpverbs/";

struct Source {
    path: String,
    text: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    /// `team` for src/team/rail.rs and src/team.rs; None for src/lib.rs and everything outside src/.
    fn module(&self) -> Option<&str> {
        let inside = self.path.strip_prefix("src/")?;
        let name = inside.split('/').next()?.trim_end_matches(".rs");
        (name != "lib").then_some(name)
    }

    /// Returns how many modules deep the file is: src/lib.rs 0, src/team/mod.rs 1, src/team/rail.rs 2.
    fn depth(&self) -> usize {
        let inside = self
            .path
            .trim_start_matches("src/")
            .trim_end_matches("/mod.rs");
        inside.split('/').count()
    }

    fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

#[test]
fn the_tree_keeps_its_layers() {
    let sources = read_tree();
    let modules = sources.iter().filter(|s| s.module().is_some()).count();
    assert!(
        modules >= 10,
        "only {modules} files of src/ found: is the test run in the package's directory?"
    );
    let mut violations: Vec<String> = sources.iter().flat_map(check_source).collect();
    for (package, allowed) in PACKAGES {
        let manifest = std::fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
        violations.extend(check_manifest(package, &manifest, allowed));
    }
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

/// Everything that one file can do wrong.
fn check_source(source: &Source) -> Vec<String> {
    if GENERATED.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let mut violations = Vec::new();
    match source.path.rsplit('.').next() {
        Some("rs") => {
            violations.extend(check_unsafe(source));
            violations.extend(check_format_crate(source));
            violations.extend(children::check(source));
            violations.extend(names::check(source));
            violations.extend(repeats::check(source));
            violations.extend(strangers::check(source));
            violations.extend(waits::check(source));
            if let Some(module) = source.module() {
                violations.extend(check_module(source, module));
            }
        }
        Some("cu" | "cuh" | "h") if is_of_kernels(&source.path) => {
            violations.extend(check_kernel(source));
            violations.extend(headers::check(source));
        }
        _ => {}
    }
    violations
}

/// Returns whether the file is in `kernels/` of the root package or of another one.
fn is_of_kernels(path: &str) -> bool {
    let package = path
        .strip_prefix("crates/")
        .and_then(|path| path.split_once('/'));
    package
        .map_or(path, |(_, path)| path)
        .starts_with("kernels/")
}

fn check_module(source: &Source, module: &str) -> Vec<String> {
    let Some((_, allowed)) = MODULES.iter().find(|(name, _)| *name == module) else {
        return vec![format!(
            "{}: module `{module}` has no row in MODULES",
            source.path
        )];
    };
    let tokens = tokens(&code_of(&source.text, Language::Rust));
    let mut violations = Vec::new();
    let names = root_names(&tokens, source.depth());
    for RootName {
        line,
        name,
        is_macro,
    } in names
    {
        if is_macro || name == module || allowed.contains(&name.as_str()) {
            continue;
        }
        violations.push(format!(
            "{}:{line}: `{module}` may not use `{name}` (allowed: {})",
            source.path,
            allowed.join(", ")
        ));
    }
    // A file of this name is all tests, and so is a folder.
    let tests_at = if source.path.ends_with("/tests.rs") || source.path.contains("/tests/") {
        Some(0)
    } else {
        source
            .text
            .lines()
            .position(|l| l.trim() == "#[cfg(test)]")
            .map(|n| n + 1)
    };
    let tests_at = tests_at.unwrap_or(usize::MAX);
    for (at, token) in tokens.iter().enumerate() {
        let text = |at: usize| tokens.get(at).map_or("", |t| t.text.as_str());
        let starts_path = at == 0 || text(at - 1) != "::";
        let named = starts_path && (text(at + 1) == "::" || text(at.wrapping_sub(1)) == "use");
        let Some((name, users)) = CRATE_USERS
            .iter()
            .find(|(name, _)| named && *name == token.text)
        else {
            continue;
        };
        let is_of_tests = ["softhca", "softofi"].contains(name);
        let in_tests = is_of_tests && token.line > tests_at;
        if !users.contains(&module) && !in_tests {
            violations.push(format!(
                "{}:{}: `{module}` may not use crate `{name}`",
                source.path, token.line
            ));
        }
    }
    violations
}

/// A module that opens `unsafe` has its reason in a comment above the attribute. (One item that opens it says it in
/// the attribute: the lints want `expect` with a reason.)
fn check_unsafe(source: &Source) -> Vec<String> {
    let tokens = tokens(&code_of(&source.text, Language::Rust));
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|t| t.text == text);
    let mut violations = Vec::new();
    for at in (0..tokens.len()).filter(|&at| is(at, "#") && is(at + 1, "!") && is(at + 2, "[")) {
        let mut words = tokens[at + 3..].iter().take_while(|t| t.text != "]");
        if is(at + 3, "forbid") || is(at + 3, "deny") || words.all(|t| t.text != "unsafe_code") {
            continue;
        }
        let above = lines[..tokens[at].line - 1].iter().rev();
        let reason = above
            .take_while(|line| line.starts_with("//"))
            .find_map(|line| line.strip_prefix("// UNSAFETY:"));
        if reason.is_none_or(|reason| reason.trim().is_empty()) {
            let place = format!("{}:{}", source.path, tokens[at].line);
            violations.push(format!(
                "{place}: unsafe is opened without `// UNSAFETY: why` above"
            ));
        }
    }
    violations
}

/// mlx5-prm is formats only.
fn check_format_crate(source: &Source) -> Vec<String> {
    let is_root = source.path == "crates/mlx5-prm/src/lib.rs";
    ["#![no_std]", "#![forbid(unsafe_code)]"]
        .iter()
        .filter(|attribute| {
            is_root && !source.text.contains(**attribute) && !conditional(&source.text, attribute)
        })
        .map(|attribute| format!("{}: lacks {attribute}", source.path))
        .collect()
}

/// `#![cfg_attr(not(test), no_std)]` counts as `#![no_std]`.
fn conditional(text: &str, attribute: &str) -> bool {
    let inner = attribute.trim_start_matches("#![").trim_end_matches(']');
    text.contains(&format!("#![cfg_attr(not(test), {inner})]"))
}

/// The layer of a file of `kernels/`: its header's, and above all headers for kernels and their own parts.
fn layer_of(path: &str) -> Result<usize, String> {
    match path.strip_prefix(HEADERS) {
        None => Ok(HEADER_LAYERS.len()),
        Some(header) => HEADER_LAYERS
            .iter()
            .position(|layer| layer.contains(&header))
            .ok_or_else(|| format!("{path}: header has no row in HEADER_LAYERS")),
    }
}

fn check_kernel(source: &Source) -> Vec<String> {
    let layer = match layer_of(&source.path) {
        Ok(layer) => layer,
        Err(unknown) => return vec![unknown],
    };
    let mut violations = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let Some(included) = included_file(source, line) else {
            continue;
        };
        let place = format!("{}:{}", source.path, index + 1);
        if line.contains("warpverbs/detail/") && !source.path.starts_with("kernels/moe/") {
            violations.push(format!(
                "{place}: only kernels/moe includes what is in detail/ from outside"
            ));
        }
        if let Some(header) = included.strip_prefix("warpverbs/") {
            match layer_of(&format!("{HEADERS}{header}")) {
                Ok(below) if below <= layer => {}
                Ok(_) => violations.push(format!(
                    "{place}: includes {included} of a layer above its own"
                )),
                Err(unknown) => violations.push(format!("{place}: {unknown}")),
            }
        } else if included.starts_with("simt")
            && !matches!(source.file_name(), "platform.cuh" | "simt_ops.cuh")
        {
            violations.push(format!(
                "{place}: only platform.cuh and simt_ops.cuh include {included}"
            ));
        } else if included.contains('/') && source.path.starts_with(HEADERS) {
            violations.push(format!(
                "{place}: a header of the library includes {included}"
            ));
        }
    }
    for token in tokens(&code_of(&source.text, Language::Cpp)) {
        let word = if token.text == "__asm__" {
            "asm"
        } else {
            &token.text
        };
        let Some((_, home)) = CONFINED.iter().find(|(confined, _)| *confined == word) else {
            continue;
        };
        if source.path != format!("{HEADERS}{home}") {
            violations.push(format!(
                "{}:{}: `{word}` belongs into {home} only",
                source.path, token.line
            ));
        }
    }
    violations
}

/// The name in `#include <x>` or `#include "x"`. Headers of the library are `warpverbs/x`, however they are included: so, by a path
/// from beside the source, or by their bare name.
fn included_file(source: &Source, line: &str) -> Option<String> {
    let rest = line
        .trim()
        .strip_prefix('#')?
        .trim_start()
        .strip_prefix("include")?
        .trim_start();
    let name = rest.get(1..)?.split(['"', '>']).next()?;
    let headers = || HEADER_LAYERS.iter().flat_map(|layer| layer.iter());
    let folder = Path::new(&source.path).parent()?;
    let beside = normal(&folder.join(name));
    let beside = beside.strip_prefix(HEADERS).ok();
    let beside = beside.and_then(|path| headers().find(|header| path == Path::new(header)));
    let bare = || headers().find(|header| header.rsplit('/').next() == Some(name));
    Some(match beside.or_else(bare) {
        Some(header) => format!("warpverbs/{header}"),
        None => name.to_owned(),
    })
}

/// Without `a/../`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut out, part| {
        if part == Component::ParentDir && out.file_name().is_some() {
            out.pop();
        } else {
            out.push(part);
        }
        out
    })
}

/// Dependencies among the packages of the workspace, section by section.
fn check_manifest(package: &str, manifest: &str, allowed: &[&[&str]; 3]) -> Vec<String> {
    let is_ours = |name: &str| {
        let mut folders = PACKAGES.iter().map(|(folder, _)| *folder);
        // The package of crates/cli is warpverbs-cli.
        let short = name.strip_prefix("warpverbs-").unwrap_or(name);
        let is_of = |folder: &str| [name, short].contains(&folder.trim_start_matches("crates/"));
        name == "warpverbs" || folders.any(is_of)
    };
    let mut section = "";
    let mut violations = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            continue;
        }
        let name = line.split(['=', '.', ' ']).next().unwrap_or("");
        let Some(kind) = DEPENDENCY_SECTIONS.iter().position(|s| *s == section) else {
            continue;
        };
        if is_ours(name) && !allowed[kind].contains(&name) {
            violations.push(format!(
                "{package}/Cargo.toml: [{section}] may not name {name}"
            ));
        }
        let is_of_others = !COMMAND_LINE.contains(&package);
        if OF_THE_COMMAND_LINE.contains(&name) && kind == 0 && is_of_others {
            violations.push(format!(
                "{package}/Cargo.toml: [{section}] names {name}, which only the command line may"
            ));
        }
    }
    violations
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All sources of the repository, by path below its root.
fn read_tree() -> Vec<Source> {
    let mut sources = Vec::new();
    let mut folders: Vec<_> = ["src", "crates", "kernels", "tests"]
        .map(|f| root().join(f))
        .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(root())
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            let extension = path.extension().and_then(|e| e.to_str());
            if path.is_dir() {
                folders.extend((path.file_name() != Some("target".as_ref())).then_some(path));
            } else if matches!(extension, Some("rs" | "cu" | "cuh" | "h" | "sh")) {
                sources.push(Source::new(&name, &std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    for name in ["x", "build.rs"] {
        sources.extend(
            std::fs::read_to_string(root().join(name)).map(|text| Source::new(name, &text)),
        );
    }
    sources
}
