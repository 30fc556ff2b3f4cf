//! Crates with planted faults, and without: each check of the walls must find the fault, and nothing else.

mod arrows;
mod counts;
mod faces;
mod rooms;
mod tree;

use super::super::Source;
use super::modules::Crate;

/// Of a crate `planted` whose root has a module `m`; the paths are below src/.
fn sources(files: &[(&str, &str)]) -> Vec<Source> {
    let root = Source::new("src/lib.rs", "pub mod m;");
    let files = files
        .iter()
        .map(|(path, text)| Source::new(&format!("src/{path}"), text));
    std::iter::once(root).chain(files).collect()
}

fn read(sources: &[Source]) -> Crate<'_> {
    Crate::read("planted", "src", sources)
}

/// Returns what a check says of one crate.
fn found<T>(files: &[(&str, &str)], check: impl Fn(&Crate) -> T) -> T {
    check(&read(&sources(files)))
}
