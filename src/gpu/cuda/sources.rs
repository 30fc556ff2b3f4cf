//! The embedded texts of a set of kernels, and how a `.cu` file becomes one text without includes of its own.
//!
//! NVRTC reads no files. So this module replaces the quoted and `<warpverbs/..>` includes by their texts, each file once (every header says
//! `#pragma once`). It adds `#line` so that messages name the real file. The few system headers stay as they are: NVRTC gets them from
//! [`SYSTEM_HEADERS`].

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::gpu::kernel_set::LIBRARY;
use crate::gpu::{GpuError, KernelSet};

/// The parts of the standard library and of the toolkit that the kernels use, for NVRTC, which has neither.
pub(super) const SYSTEM_HEADERS: &[(&str, &str)] = &[
    ("cstddef", include_str!("headers/cstddef")),
    ("cstdint", include_str!("headers/cstdint")),
    ("cstring", include_str!("headers/cstring")),
    ("type_traits", include_str!("headers/type_traits")),
    (
        "cooperative_groups.h",
        include_str!("headers/cooperative_groups.h"),
    ),
];

/// The folder in which `<warpverbs/put.cuh>` lies.
const INCLUDE: &str = "kernels/include/";

/// A text of CUDA C++, with the name by which `#include "NAME"` and messages call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaSource<'a> {
    /// The name, for example `hello.cu` or `hello.cuh`.
    pub name: &'a str,
    /// The text that NVRTC gets.
    pub text: &'a str,
}

/// Returns the `.cu` files of a set.
pub(super) fn kernel_files(set: &KernelSet) -> impl Iterator<Item = CudaSource<'static>> + use<> {
    embedded(set).filter(|source| source.name.ends_with(".cu"))
}

/// Returns all texts of a set.
pub(super) fn embedded(set: &KernelSet) -> impl Iterator<Item = CudaSource<'static>> + use<> {
    let source = |&(name, text): &(&'static str, &'static str)| CudaSource { name, text };
    set.sources().iter().map(source)
}

/// Returns `main` with its includes in place. An include is found beside its file, in `extra` by name, or in the device library.
///
/// # Errors
///
/// [`GpuError::Compile`] for a quoted include that is in none of these places.
pub(super) fn flatten(main: CudaSource<'_>, extra: &[CudaSource<'_>]) -> Result<String, GpuError> {
    let mut flat = Flat {
        extra,
        seen: BTreeSet::new(),
        out: String::new(),
    };
    flat.append(main)?;
    Ok(flat.out)
}

struct Flat<'a> {
    extra: &'a [CudaSource<'a>],
    seen: BTreeSet<String>,
    out: String,
}

impl<'a> Flat<'a> {
    fn append(&mut self, source: CudaSource<'_>) -> Result<(), GpuError> {
        if !self.seen.insert(source.name.to_owned()) {
            return Ok(());
        }
        let _ = writeln!(self.out, "#line 1 {:?}", source.name);
        for (nth, line) in source.text.lines().enumerate() {
            if let Some(constant) = offset_constant(line) {
                let _ = writeln!(self.out, "{constant}");
            } else if line.trim() == "#pragma once" {
                self.out.push('\n');
            } else if let Some((include, quoted)) = include(line) {
                match self.find(source.name, include) {
                    Some(found) => {
                        self.append(found)?;
                        let _ = writeln!(self.out, "#line {} {:?}", nth + 2, source.name);
                    }
                    None if quoted => {
                        return Err(GpuError::Compile {
                            file: source.name.to_owned(),
                            log: format!("line {}: there is no {include:?} here", nth + 1),
                        });
                    }
                    None => {
                        let _ = writeln!(self.out, "{line}");
                    }
                }
            } else {
                let _ = writeln!(self.out, "{line}");
            }
        }
        Ok(())
    }

    /// Returns the text that `#include "include"` in file `from` means. None for a header of the system.
    fn find(&self, from: &str, include: &str) -> Option<CudaSource<'a>> {
        let beside = from
            .rsplit_once('/')
            .map_or(String::new(), |(folder, _)| format!("{folder}/"));
        let wanted = [
            normal(&format!("{beside}{include}")),
            normal(&format!("{INCLUDE}{include}")),
            include.to_owned(),
        ];
        let own = |source: CudaSource<'static>| -> CudaSource<'a> { source };
        let known = || {
            self.extra
                .iter()
                .copied()
                .chain(embedded(&LIBRARY).map(own))
        };
        wanted
            .iter()
            .find_map(|path| known().find(|source| source.name == path))
    }
}

/// Returns a constant for a line `static_assert(offsetof(S, f) == 8);` of a rendered header, which the compiler of the CPU build has
/// checked. NVRTC has no constant `offsetof`, so the `offsetof` of our `<cstddef>` finds that constant.
fn offset_constant(line: &str) -> Option<String> {
    let rest = line.strip_prefix("static_assert(offsetof(")?;
    let (name, rest) = rest.split_once(", ")?;
    let (field, rest) = rest.split_once(") == ")?;
    let offset = rest.strip_suffix(");")?;
    let is_word = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let plain = is_word(name) && is_word(field) && offset.parse::<usize>().is_ok();
    plain.then(|| format!("constexpr unsigned long wv_offset_{name}_{field} = {offset};"))
}

/// Returns the file that `#include "..."` or `#include <...>` names, and whether the name is in quotes.
fn include(line: &str) -> Option<(&str, bool)> {
    let rest = line.trim().strip_prefix('#')?.trim_start();
    let rest = rest.strip_prefix("include")?.trim_start();
    if let Some(rest) = rest.strip_prefix('"') {
        return Some((rest.split_once('"')?.0, true));
    }
    Some((rest.strip_prefix('<')?.split_once('>')?.0, false))
}

/// Returns the path without `a/../`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the files of the tests' kernels, which use more of the library than the shipped kernels: names as in a set, and texts.
#[cfg(test)]
pub(super) fn test_kernels() -> Vec<(String, String)> {
    kernels_of("test-support", "kernels")
}

/// Returns the files of a folder of kernels of another package: names as in a set, and texts.
#[cfg(test)]
pub(super) fn kernels_of(package: &str, folder: &str) -> Vec<(String, String)> {
    let package = format!("{}/crates/{package}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(format!("{package}/{folder}")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let name = path.strip_prefix(&package).unwrap().to_str().unwrap();
        (name.to_owned(), std::fs::read_to_string(&path).unwrap())
    };
    paths.filter(|path| path.is_file()).map(read).collect()
}

#[cfg(test)]
pub(super) fn as_source((name, text): &(String, String)) -> CudaSource<'_> {
    CudaSource { name, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: CudaSource<'_> = CudaSource {
        name: "mine/main.cu",
        text: "#include <cstdint>\n#include \"../util/a.cuh\"\n#include \"../util/b.cuh\"\nint main;",
    };

    #[test]
    fn includes_are_put_in_place_once_and_lines_keep_their_numbers() {
        let extra = [
            CudaSource {
                name: "util/a.cuh",
                text: "#pragma once\n#  include \"b.cuh\"\nint a;",
            },
            CudaSource {
                name: "util/b.cuh",
                text: "#pragma once\nint b;",
            },
        ];
        let expected = "#line 1 \"mine/main.cu\"\n#include <cstdint>\n\
            #line 1 \"util/a.cuh\"\n\n\
            #line 1 \"util/b.cuh\"\n\nint b;\n\
            #line 3 \"util/a.cuh\"\nint a;\n\
            #line 3 \"mine/main.cu\"\n\
            #line 4 \"mine/main.cu\"\nint main;\n";
        assert_eq!(flatten(MAIN, &extra).unwrap(), expected);
    }

    #[test]
    fn asserted_offsets_become_the_constants_that_offsetof_is() {
        let constant = "constexpr unsigned long wv_offset_QpContext_sq = 0;";
        let assert = "static_assert(offsetof(QpContext, sq) == 0);";
        assert_eq!(offset_constant(assert).as_deref(), Some(constant));
        assert_eq!(
            offset_constant("static_assert(offsetof(A, b) % 8 == 0);"),
            None
        );
        assert_eq!(offset_constant("static_assert(sizeof(A) == 8);"), None);
    }

    #[test]
    fn a_missing_file_is_named_with_the_line_that_wants_it() {
        let error = flatten(MAIN, &[]).unwrap_err().to_string();
        assert!(
            error.contains("mine/main.cu") && error.contains("line 2") && error.contains("a.cuh"),
            "{error}"
        );
    }

    #[test]
    fn every_kernel_flattens_to_the_systems_headers_alone() {
        let texts = test_kernels();
        let of_tests: Vec<_> = texts.iter().map(as_source).collect();
        let mut kernels = of_tests.clone();
        for CudaSource { name, text } in kernel_files(&LIBRARY) {
            kernels.push(CudaSource { name, text });
        }
        kernels.retain(|source| source.name.ends_with(".cu"));
        let mut files = 0;
        for source in kernels {
            // These files include sources of other kernels by paths that leave the package.
            let outside = [
                "kernels/e4m3.cu",
                "kernels/moe_mutants.cu",
                "kernels/gpuhca_mutants.cu",
            ];
            if outside.contains(&source.name) {
                continue;
            }
            let flat = flatten(source, &of_tests).unwrap();
            for (name, _) in flat.lines().filter_map(include) {
                // simt.cuh is in the branch of platform.cuh that a GPU does not see.
                let known = SYSTEM_HEADERS.iter().any(|(header, _)| *header == name);
                assert!(known || name == "simt.cuh", "{}: {name}", source.name);
            }
            files += 1;
        }
        assert!(
            files > 5 && kernel_files(&LIBRARY).count() > 1,
            "{files} files"
        );
    }
}
