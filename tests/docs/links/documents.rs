//! Which files are documents.

use std::fs;
use std::path::{Path, PathBuf};

/// All documents of the root of the tree, and those below its folders.
pub(crate) fn below(root: &Path) -> Vec<PathBuf> {
    let of_root = fs::read_dir(root).unwrap();
    let of_root = of_root.map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = of_root.filter(|path| is_document(path)).collect();
    let mut folders: Vec<PathBuf> = ["docs", "kernels", "crates", "python"]
        .map(|name| root.join(name))
        .into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if is_document(&path) => found.push(path),
                false => {}
            }
        }
    }
    found
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "md")
}
