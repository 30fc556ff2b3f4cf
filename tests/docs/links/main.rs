//! Links, files, commands and pictures that the documents name exist; blocks of code run; pictures can be read.

use std::path::{Path, PathBuf};

mod blocks;
mod commands;
mod documents;
mod links;
mod pictures;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn documents() -> Vec<PathBuf> {
    documents::below(root())
}
