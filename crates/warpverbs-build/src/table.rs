//! The text that `warpverbs::kernels!` includes.

use std::fmt::Write;
use std::path::Path;

use crate::error::BuildError;
use crate::files::Files;
use crate::ptx::{Ptx, architecture};

/// Returns the call of a macro of `warpverbs`, which makes a set.
pub(crate) fn table(
    package: &str,
    root: &Path,
    cpu: &[String],
    ptx: &Ptx,
    files: &Files,
) -> Result<String, BuildError> {
    let mut out = format!("kernel_set_table! {{\npackage: {package:?},\ncpu: [\n");
    for name in cpu {
        let _ = writeln!(out, "    {name:?} = simt_entry_{name},");
    }
    out += "],\nptx: [\n";
    for file in &ptx.files {
        let (arch, path) = architecture(file, &ptx.folder)?;
        let text = unicode(&root.join(file))?;
        let _ = writeln!(out, "    ({arch}, {path:?}, include_str!({text:?})),");
    }
    let _ = writeln!(out, "],\nno_ptx: {:?},\nsources: [", ptx.lack);
    let mut sources: Vec<_> = files.kernels.iter().chain(&files.headers).collect();
    sources.sort();
    for file in sources {
        let (name, text) = (unicode(file)?, unicode(&root.join(file))?);
        let _ = writeln!(out, "    ({name:?}, include_str!({text:?})),");
    }
    Ok(out + "],\n}\n")
}

fn unicode(path: &Path) -> Result<String, BuildError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| BuildError::NotUnicode {
        path: path.to_owned(),
    })
}
