//! Faults in the tree itself: lines that go against its tables of rooms.

use super::super::super::read_tree;
use super::super::modules::Crate;
use super::super::rooms;
use super::rooms::ROOMS;
use super::{Source, sources};

/// `sources` with a line more in some files.
fn with_lines(sources: &[Source], lines: &[Line]) -> Vec<Source> {
    let more = |source: &Source| {
        let lines = lines.iter().filter(|line| line.path == source.path);
        lines
            .map(|line| format!("\n{}\n", line.code))
            .collect::<String>()
    };
    let sources = sources.iter();
    sources
        .map(|source| Source::new(&source.path, &(source.text.clone() + &more(source))))
        .collect()
}

struct Line {
    path: String,
    code: String,
}

/// `crate::m::wire` for src/m/wire/mod.rs, and `crate` for src/lib.rs.
fn name_of(of: &Crate, file: usize) -> String {
    let inside = &of.files[file].path[of.folder.len() + 1..];
    if inside == "lib.rs" {
        return "crate".to_owned();
    }
    let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    format!("crate::{}", inside.replace('/', "::"))
}

/// Of each table of rooms: a file of its lowest floor asks one of the highest for all, and asks the face for a name that a floor
/// above it defines.
fn lines_against(of: &Crate) -> Vec<Line> {
    let mut lines = Vec::new();
    for folder in rooms::folders(of).map(Result::unwrap) {
        let lowest = folder.table.floors.len() - 1;
        let on = |floor: usize| {
            let mut files = 0..of.files.len();
            files
                .find(|&file| folder.floor_of(file) == Some(floor))
                .unwrap()
        };
        let path = of.files[on(lowest)].path;
        let face = of.files[folder.face].module;
        let mut offers = of.modules[face].body.imports.iter();
        let offer = offers.find(|(_, path)| {
            let floor = of
                .home_of(face, path)
                .and_then(|home| folder.floor_of(home));
            floor.is_some_and(|floor| floor < lowest)
        });
        let direct = (lowest > 0).then(|| format!("use {}::*;", name_of(of, on(0))));
        let through =
            offer.map(|(name, _)| format!("use {}::{name} as _;", name_of(of, folder.face)));
        let codes = direct.into_iter().chain(through);
        lines.extend(codes.map(|code| Line {
            path: path.to_owned(),
            code,
        }));
    }
    lines
}

#[test]
fn an_arrow_up_that_is_planted_into_any_table_of_the_tree_is_caught() {
    let (planted, tree) = (sources(&ROOMS), read_tree());
    let mut caught = 0;
    for (name, folder, sources) in [
        ("planted", "src", &planted),
        ("warpverbs", "src", &tree),
        ("softhca", "crates/softhca/src", &tree),
        ("rendezvous", "crates/rendezvous/src", &tree),
        ("warpverbs_cli", "crates/cli/src", &tree),
        ("warpverbs_demo", "crates/demo/src", &tree),
        ("warpverbs_bench", "crates/bench/src", &tree),
    ] {
        // One at a time: of two files the first arrow alone is named.
        for line in lines_against(&Crate::read(name, folder, sources)) {
            let Line { path, code } = &line;
            let sources = with_lines(sources, std::slice::from_ref(&line));
            let of = Crate::read(name, folder, &sources);
            let said = rooms::check(&of, &of.arrows());
            let is_said = said
                .iter()
                .any(|words| words.contains(&format!(" of a floor above: {path}:")));
            assert!(is_said, "{path}: {code}: {said:?}");
            caught += 1;
        }
    }
    assert!(caught >= 2, "the planted crate has one of each kind");
}
