//! Renders the C++ headers.

use std::fmt::Write;

use super::{
    AbiEnum, AbiStruct, DeviceConfig, PeerEntry, PeerGuard, QpContext, Status, TeamContext, Window,
    bench, moe, moe_calls, moe_words, qp, team, test_conformance, test_kernels, test_ops,
    test_team,
};

/// One definition of a header.
#[derive(Debug)]
pub struct Item(String);

/// One constant of a header.
#[derive(Debug)]
pub struct Constant {
    /// Doc comment, line by line.
    pub doc: &'static [&'static str],
    /// C++ declaration without the value.
    pub declaration: String,
    /// Value.
    pub value: u64,
}

/// `kernels/include/warpverbs/abi.h`.
#[must_use]
pub fn render() -> String {
    let mut items = vec![enum_item::<Status>()];
    items.extend(constant_items(qp::constants()));
    items.extend(constant_items(team::constants()));
    items.extend([
        struct_item::<QpContext>(),
        struct_item::<PeerEntry>(),
        struct_item::<PeerGuard>(),
        struct_item::<Window>(),
        struct_item::<DeviceConfig>(),
        struct_item::<TeamContext>(),
    ]);
    items.extend(moe_words::items());
    items.extend(moe::items());
    items.extend(moe_calls::items());
    file("#include <cstddef>\n#include <cstdint>\n", items)
}

/// `kernels/test/abi.h`: parameters of the test kernels.
#[must_use]
pub fn render_tests() -> String {
    let mut items = test_kernels::items();
    items.extend(test_ops::items());
    items.extend(test_team::items());
    items.extend(test_conformance::items());
    file("#include <warpverbs/abi.h>\n", items)
}

/// `kernels/bench/abi.h`: parameters of the measuring kernels.
#[must_use]
pub fn render_bench() -> String {
    file("#include <warpverbs/abi.h>\n", bench::items())
}

/// The definition of `T` with the asserts that pin its layout.
#[must_use]
pub fn struct_item<T: AbiStruct>() -> Item {
    let name = T::NAME;
    let mut out = doc(T::DOC, "");
    let natural = align_of::<T>() <= 8;
    if natural {
        let _ = writeln!(out, "struct {name} {{");
    } else {
        let _ = writeln!(out, "struct alignas({}) {name} {{", align_of::<T>());
    }
    for field in T::fields() {
        out += &doc(field.doc, "  ");
        let _ = writeln!(out, "  {};", field.declaration);
    }
    let _ = writeln!(
        out,
        "}};\nstatic_assert(sizeof({name}) == {} && alignof({name}) == {});",
        size_of::<T>(),
        align_of::<T>()
    );
    for field in T::fields() {
        let _ = writeln!(
            out,
            "static_assert(offsetof({name}, {}) == {});",
            field.name, field.offset
        );
    }
    Item(out)
}

/// The definition of `T` as an `enum class` over `uint32_t`.
#[must_use]
pub fn enum_item<T: AbiEnum>() -> Item {
    let mut out = doc(T::DOC, "");
    let _ = writeln!(out, "enum class {} : uint32_t {{", T::NAME);
    for (docs, name, value) in T::VALUES {
        out += &doc(docs, "  ");
        let _ = writeln!(out, "  {name} = {value},");
    }
    out += "};\n";
    Item(out)
}

/// The definitions of `constants`.
#[must_use]
pub fn constant_items(constants: Vec<Constant>) -> Vec<Item> {
    let render = |constant: Constant| {
        let mut out = doc(constant.doc, "");
        let _ = writeln!(
            out,
            "inline constexpr {} = {:#x};",
            constant.declaration, constant.value
        );
        Item(out)
    };
    constants.into_iter().map(render).collect()
}

fn file(includes: &str, items: Vec<Item>) -> String {
    let mut out = format!(
        "// Rendered from src/abi by tests/docs/abi_header.rs; do not edit. Rewrite: UPDATE=1 cargo test --test abi_header.\n\
         #pragma once\n\n{includes}\nnamespace wv {{\n"
    );
    for Item(text) in items {
        out.push('\n');
        out += &text;
    }
    out += "\n}  // namespace wv\n";
    out
}

fn doc(lines: &[&str], indent: &str) -> String {
    lines
        .iter()
        .map(|line| format!("{indent}///{line}\n"))
        .collect()
}
