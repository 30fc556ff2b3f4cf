//! Renders the C++ headers of [`abi_struct!`](crate::abi_struct), [`abi_enum!`](crate::abi_enum) and
//! [`abi_const!`](crate::abi_const), of this crate and of others. [`file()`] makes the text, and a test of the crate calls
//! [`check`].
//!
//! ```
//! use warpverbs::abi::header;
//!
//! warpverbs::abi_struct! {
//!     /// What `squares` takes.
//!     pub struct SquaresParams {
//!         /// How many.
//!         pub count: u64,
//!     }
//! }
//!
//! let items = vec![header::struct_item::<SquaresParams>()];
//! let text = header::file("Rendered from src/abi.rs.", "mine", &["<warpverbs/abi.h>"], items);
//! assert!(text.contains("static_assert(offsetof(SquaresParams, count) == 0);"));
//! ```

use std::fmt::Write;
use std::path::Path;
use std::{env, fs, io};

use super::{AbiEnum, AbiStruct};

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
    /// The number that the header gives it.
    pub value: u64,
}

/// Returns the definition of `T` with the asserts that pin its layout.
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

/// Returns the definition of `T` as an `enum class` over `uint32_t`.
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

/// Returns the definitions of `constants`.
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

/// Returns a header: `items` in the C++ namespace `namespace`, after `includes` with their brackets or quotes. Structs need `<cstddef>`
/// and `<cstdint>`, which `<warpverbs/abi.h>` includes. The first line says `origin`: where the definitions are.
#[must_use]
pub fn file(origin: &str, namespace: &str, includes: &[&str], items: Vec<Item>) -> String {
    let mut out = format!("// {origin}\n#pragma once\n\n");
    for name in includes {
        let _ = writeln!(out, "#include {name}");
    }
    let _ = writeln!(out, "\nnamespace {namespace} {{");
    for Item(text) in items {
        out.push('\n');
        out += &text;
    }
    let _ = writeln!(out, "\n}}  // namespace {namespace}");
    out
}

/// Compares the checked-in header at `path` with `rendered`, or rewrites it where the environment variable `UPDATE` is set. For
/// a test.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidData`] if they differ, and what reading or writing refuses.
pub fn check(path: &Path, rendered: &str) -> io::Result<()> {
    if env::var_os("UPDATE").is_some() {
        return fs::write(path, rendered);
    }
    if fs::read_to_string(path)? == rendered {
        return Ok(());
    }
    let stale = format!(
        "{} is not what the definitions render to; a run of this test with UPDATE=1 rewrites it",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, stale))
}

fn doc(lines: &[&str], indent: &str) -> String {
    lines
        .iter()
        .map(|line| format!("{indent}///{line}\n"))
        .collect()
}
