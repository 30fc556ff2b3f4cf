//! Which sources PTX was compiled of: a text beside it, with the hash of each of them.
//!
//! `crates/xtask` compiles this file, too, so that what writes PTX and what takes it read sources in one way. It uses nothing of this
//! crate.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Name of the stamp, in the folder of PTX. It is written last, so PTX without one is not whole.
pub(crate) const NAME: &str = "SOURCES";

/// A file or folder of sources that cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

/// The stamp of PTX that the compiler `by` (one line) makes of the kernels and headers in `folders`: a line that names the compiler,
/// then one for each file, with its hash and its path below its folder.
pub(crate) fn of(by: &str, folders: &[PathBuf]) -> Result<String, Unreadable> {
    let mut stamp = format!("{by}\n");
    for folder in folders {
        let mut files = Vec::new();
        collect(folder, &mut files)?;
        files.sort();
        for file in files {
            let bytes = read(&file, fs::read)?;
            let name = file.strip_prefix(folder).unwrap_or(&file);
            let _ = writeln!(stamp, "{:016x} {}", hash(&bytes), name.display());
        }
    }
    Ok(stamp)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Unreadable> {
    for entry in read(folder, fs::read_dir)? {
        let path = read(folder, |_| entry)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() {
            collect(&path, files)?;
        } else if matches!(ending, Some("cu" | "cuh" | "h")) {
            files.push(path);
        }
    }
    Ok(())
}

fn read<'a, T>(
    path: &'a Path,
    how: impl FnOnce(&'a Path) -> io::Result<T>,
) -> Result<T, Unreadable> {
    how(path).map_err(|source| Unreadable {
        path: path.to_owned(),
        source,
    })
}

/// FNV-1a of 64 bits: the same for every release of Rust, which the hash of the standard library need not be.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_names_the_compiler_and_has_a_hash_of_each_source() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("own/a.cu", "a");
        write("own/ptx/sm_90/a.ptx", "not a source");
        write("library/detail/b.cuh", "b");
        let folders = ["own", "library"].map(|name| root.path().join(name));
        assert_eq!(
            of("nvcc 13", &folders).unwrap(),
            "nvcc 13\naf63dc4c8601ec8c a.cu\naf63df4c8601f1a5 detail/b.cuh\n"
        );
    }

    #[test]
    fn a_folder_of_sources_that_is_not_there_is_named() {
        let error = of("nvcc", &[PathBuf::from("no/such")]).unwrap_err();
        assert_eq!(error.path, Path::new("no/such"));
        assert_eq!(error.source.kind(), io::ErrorKind::NotFound);
    }
}
