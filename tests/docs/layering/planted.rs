//! Violations planted in single files: the checks of `main.rs` must find each, and nothing else.

use super::*;

#[track_caller]
fn refused(path: &str, text: &str, words: &str) {
    let found = check_source(&Source::new(path, text));
    assert!(
        found.len() == 1 && found[0].contains(words),
        "{found:?} should be one violation with {words:?}"
    );
}

#[track_caller]
fn accepted(path: &str, text: &str) {
    assert_eq!(check_source(&Source::new(path, text)), Vec::<String>::new());
}

#[test]
fn an_upward_import_is_found_however_it_is_written() {
    refused(
        "src/verbs/qp.rs",
        "use crate::team::Team;",
        "src/verbs/qp.rs:1: `verbs` may not use `team`",
    );
    refused(
        "src/verbs/qp.rs",
        "use crate::{abi, sys::{self, moe}, team};",
        "`team`",
    );
    refused(
        "src/verbs/qp.rs",
        "fn f(t: &super::super::team::Team) {}",
        "`team`",
    );
    refused(
        "src/verbs/mod.rs",
        "\nuse super::{abi, gpu};",
        "src/verbs/mod.rs:2: `verbs` may not use `gpu`",
    );
    refused(
        "src/abi/moe.rs",
        "#[cfg(test)]\nmod tests { use super::super::super::team; }",
        "`team`",
    );
    refused("src/gpu/mod.rs", "use crate::*;", "`*`");
    refused("src/gpu/mod.rs", "use crate::Team;", "`Team`");
}

#[test]
fn downward_imports_comments_strings_and_own_submodules_are_not() {
    accepted(
        "src/team/mod.rs",
        "use crate::{abi::PeerEntry, verbs}; // crate::moe would be refused",
    );
    accepted(
        "src/verbs/qp.rs",
        "/// [`crate::team`]\nconst S: &str = \"crate::team\"; /* /* */ crate::moe */",
    );
    accepted(
        "src/verbs/qp.rs",
        "const S: &str = r#\"say \"crate::team\"\"#; fn f<'a>(c: &'a u8) { crate::verbs::g() }",
    );
    accepted(
        "src/verbs/mod.rs",
        "mod tests { use super::team; } fn f() { self::team::g(); super::sys::h(); }",
    );
    accepted("src/abi/mod.rs", "crate::abi_struct! { }");
}

#[test]
fn a_module_without_a_row_is_refused() {
    refused("src/util.rs", "", "module `util` has no row");
    refused(
        "kernels/include/warpverbs/util.cuh",
        "",
        "no row in HEADER_LAYERS",
    );
}

#[test]
fn a_test_that_passes_without_its_variable_is_refused() {
    let body = "fn worker() {\n    let Some(role) = std::env::var_os(ROLE) else {\n        return;\n    };\n}";
    refused("tests/a.rs", &format!("#[test]\n{body}"), "tests/a.rs:1: ");
    refused(
        "tests/a.rs",
        "#[test]\nfn worker() {\n    let Ok(role) = env::var(ROLE) else { return };\n}",
        "returns without its variable",
    );
    accepted(
        "tests/a.rs",
        &format!("#[test]\n#[ignore = \"is started by the tests below\"]\n{body}"),
    );
    accepted("tests/a.rs", body);
    accepted(
        "tests/a.rs",
        "#[test]\nfn a() {\n    let Some(etcd) = Etcd::start(1) else {\n        return;\n    };\n}",
    );
}

#[test]
fn an_ignored_test_has_one_of_the_known_reasons() {
    let of = |attribute: &str| format!("#[test]\n{attribute}\nfn watched() {{}}");
    for strange in ["#[ignore]", "#[ignore = \"the test above runs it\"]"] {
        refused("tests/engine/idle.rs", &of(strange), "says why");
    }
    accepted("tests/device/gpu.rs", &of("#[ignore = \"needs a GPU\"]"));
}

#[test]
fn crates_are_named_by_their_users_only() {
    refused(
        "src/moe/mod.rs",
        "use mlx5_prm::cqe::Cqe64;",
        "`moe` may not use crate `mlx5_prm`",
    );
    refused(
        "src/team/mod.rs",
        "fn f() { softhca::Hca::new(); }",
        "softhca",
    );
    refused("src/verbs/mod.rs", "use simt as engine;", "`simt`");
    accepted("src/gpu/simt.rs", "use simt::launch;");
    accepted(
        "src/verbs/mod.rs",
        "#[cfg(test)]\nmod tests { use softhca as _; }",
    );
}

#[test]
fn dependencies_between_packages_go_one_way() {
    let check = |manifest: &str| check_manifest("p", manifest, &[&["mlx5-prm"], &["softhca"], &[]]);
    assert_eq!(
        check("[dependencies]\nmlx5-prm.workspace = true\n[dev-dependencies]\nsofthca = 1"),
        [""; 0]
    );
    assert_eq!(check("[dependencies]\nsofthca = { path = '..' }").len(), 1);
    assert_eq!(
        check("[build-dependencies]\nmlx5-prm = { path = '..' }").len(),
        1
    );
    for of_wv in ["warpverbs-demo", "wv"] {
        let manifest = format!("[dependencies]\n{of_wv} = {{ path = '..' }}");
        assert_eq!(check(&manifest).len(), 1, "{of_wv}");
    }
    assert_eq!(check("[dependencies]\nclap = \"4.5\"").len(), 1);
    assert_eq!(check("[dev-dependencies]\nclap = \"4.5\""), [""; 0]);
}

#[test]
fn device_headers_include_downward_only() {
    refused(
        "kernels/include/warpverbs/detail/sq.cuh",
        "#include \"warpverbs/put.cuh\"",
        "of a layer above",
    );
    refused(
        "kernels/include/warpverbs/detail/sq.cuh",
        "# include <put.cuh>",
        "of a layer above",
    );
    refused(
        "kernels/include/warpverbs/put.cuh",
        "#include \"moe/layout.cuh\"",
        "includes moe/layout.cuh",
    );
    for kernel in ["kernels/moe/moe.cu", "crates/bench/kernels/post.cu"] {
        refused(kernel, "#include <simt.cuh>", "only platform.cuh");
    }
    accepted(
        "crates/simt-tests/tests/kernels/warp.cu",
        "#include <simt.cuh>",
    );
    accepted(
        "kernels/moe/moe.cu",
        "#include \"warpverbs/put.cuh\"\n#include \"layout.cuh\"\n#include <stdint.h>",
    );
    refused(
        "kernels/include/warpverbs/detail/sq.cuh",
        "#include \"../put.cuh\"",
        "of a layer above",
    );
    accepted(
        "kernels/include/warpverbs/post.cuh",
        "#include \"coop.cuh\"\n#include \"detail/sq.cuh\"",
    );
    let detail = "#include <warpverbs/detail/direct.cuh>";
    accepted("kernels/moe/order.cuh", detail);
    refused(
        "crates/bench/kernels/post.cu",
        detail,
        "only kernels/moe includes",
    );
    accepted(
        "kernels/include/warpverbs/platform.cuh",
        "#include \"ptx.cuh\"\n#include <simt.cuh>",
    );
}

#[test]
fn cuda_words_stay_in_their_header() {
    refused(
        "kernels/moe/moe.cu",
        "int x = threadIdx.x; // threadIdx",
        "`threadIdx` belongs into coop.cuh only",
    );
    refused(
        "kernels/include/warpverbs/detail/sq.cuh",
        "asm volatile(\"\");",
        "ptx.cuh only",
    );
    refused(
        "kernels/include/warpverbs/detail/sq.cuh",
        "__asm__(\"\");",
        "ptx.cuh only",
    );
    refused(
        "kernels/include/warpverbs/detail/cq.cuh",
        "#ifdef __CUDACC__\n#endif",
        "platform.cuh only",
    );
    accepted(
        "kernels/include/warpverbs/detail/ptx.cuh",
        "asm(\"fence;\"); // for __CUDACC__",
    );
    accepted(
        "kernels/moe/moe.cu",
        "int million = 1'000'000; const char* s = \"threadIdx\";",
    );
}

#[test]
fn unsafe_is_opened_with_a_reason_only() {
    let opened = "#![expect(unsafe_code, reason = \"x\")]";
    refused("src/verbs/mr.rs", opened, "without `// UNSAFETY: why`");
    refused(
        "crates/simt/src/lib.rs",
        &format!("// UNSAFETY:\n{opened}"),
        "without `// UNSAFETY: why`",
    );
    accepted(
        "src/verbs/mr.rs",
        &format!("//! Doc.\n// UNSAFETY: the NIC reads this memory.\n{opened}"),
    );
    accepted("crates/simt/src/lib.rs", "#![deny(unsafe_code)]");
    accepted(
        "src/verbs/mr.rs",
        "#[expect(unsafe_code, reason = \"a promise\")]\npub unsafe fn f() {}",
    );
}

#[test]
fn a_format_crate_with_std_is_refused() {
    refused(
        "crates/mlx5-prm/src/lib.rs",
        "#![no_std]",
        "lacks #![forbid(unsafe_code)]",
    );
    accepted(
        "crates/mlx5-prm/src/lib.rs",
        "#![cfg_attr(not(test), no_std)]\n#![forbid(unsafe_code)]",
    );
}

#[test]
fn a_test_name_of_more_than_70_characters_is_refused() {
    let named = |length: usize| format!("fn {}() {{}}", "a".repeat(length));
    refused(
        "tests/a.rs",
        &format!("\n#[test]\n{}", named(71)),
        "tests/a.rs:3: test name has 71 characters; at most 70 are allowed: aaa",
    );
    let ignored = "#[cfg_attr(\n    feature = \"tsan\",\n    ignore = \"the fn a() { takes long\"\n)]\n// Said here.";
    refused(
        "tests/a.rs",
        &format!("#[test]\n{ignored}\npub(crate) async {}", named(72)),
        "tests/a.rs:7: test name has 72 characters",
    );
    accepted("tests/a.rs", &format!("#[test]\n{}", named(70)));
    accepted("tests/a.rs", &named(80));
    accepted(
        "tests/a.rs",
        &format!("#[test]\n{}\n{}", named(3), named(80)),
    );
}

#[test]
fn documentation_that_only_repeats_a_name_is_found() {
    for (text, name) in [
        ("/// The QP states.\npub enum QpState {", "QpState"),
        (
            "    /// Its window.\n    #[must_use]\n    pub const fn window(&self) {}",
            "window",
        ),
        ("/// Rank.\npub rank: u32,", "rank"),
    ] {
        let words = format!("the documentation of `{name}` only repeats its name");
        refused("src/verbs/qp.rs", text, &words);
    }
    accepted("src/verbs/qp.rs", "/// Of the machine.\npub rank: u32,");
    accepted(
        "src/verbs/qp.rs",
        "/// Rank.\nrank: u32,\npub(crate) rank: u32,",
    );
    accepted(
        "src/verbs/qp.rs",
        "/// Rank.\n\npub fn other() {}\npub rank: u32,",
    );
}
