//! Links, files, commands and pictures that the documents name exist; pictures and sentences can be read.

use std::fs;
use std::path::{Path, PathBuf};

mod commands;
mod links;
mod pictures;
mod sentences;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether a file is a document.
fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "md")
}

/// All documents of the root, and below these folders.
fn documents() -> Vec<PathBuf> {
    let of_root = fs::read_dir(root()).unwrap();
    let of_root = of_root.map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = of_root.filter(|path| is_document(path)).collect();
    let mut folders: Vec<PathBuf> = ["docs", "kernels", "crates", "python"]
        .map(|name| root().join(name))
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
