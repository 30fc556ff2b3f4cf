//! What is allowed today. Each number is an upper bound that may only fall: who makes the tree better lowers it here.

use super::super::{GENERATED, Source, read_tree};
use super::compare::{Count, Limits, compared};
use super::modules::Crate;
use super::{circles, faces, functions, rooms, slices};
use std::collections::BTreeMap;

/// The largest circle of files of a crate, and of each of its modules.
const CIRCLES: Limits = &[];

/// Types whose own `impl` stands in more than two files, with the number of the files.
const SLICED_TYPES: Limits = &[];

/// Files of src that have more than 600 lines without tests: their lines, rounded up to 50.
const LONG_FILES: Limits = &[];

/// Functions with a tuple as a parameter (`functions` says what counts).
const TUPLES: Limits = &[];

/// Functions over 60 lines.
const LONG_FUNCTIONS: Limits = &[("src/membership", 4)];

/// Functions with more than six arguments.
const MANY_ARGUMENTS: Limits = &[];

/// Items of a `mod.rs` beside `mod name;` and `pub use`.
const FACES: Limits = &[];

/// Folders of more than 12 files whose module has no table of rooms.
const WITHOUT_ROOMS: &[&str] = &[];

/// A file of src has at most so many lines without its tests.
const MOST_LINES: usize = 600;
/// A limit of LONG_FILES is a multiple of it, so that not every line that goes lowers one.
const STEP: usize = 50;
/// A reader gets at most so many arrows of a circle.
const MOST_ARROWS: usize = 40;

/// The crates with walls.
fn crates(sources: &[Source]) -> [Crate<'_>; 8] {
    [
        Crate::read("warpverbs", "src", sources),
        Crate::read("models", "crates/models/src", sources),
        Crate::read("simt", "crates/simt/src", sources),
        Crate::read("softhca", "crates/softhca/src", sources),
        Crate::read("rendezvous", "crates/rendezvous/src", sources),
        Crate::read("warpverbs_cli", "crates/cli/src", sources),
        Crate::read("warpverbs_demo", "crates/demo/src", sources),
        Crate::read("warpverbs_bench", "crates/bench/src", sources),
    ]
}

/// The largest circle of the crate, by its folder, and of each of its modules.
pub(super) fn largest_circles(of: &Crate) -> BTreeMap<String, Count> {
    let arrows = of.arrows();
    let mut parts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for file in 0..of.files.len() {
        let module = format!("{}/{}", of.folder, of.module_of(file));
        parts.entry(module).or_default().push(file);
    }
    parts.insert(of.folder.to_owned(), (0..of.files.len()).collect());
    let counts = parts.into_iter().map(|(place, files)| {
        let circle = circles::largest(&files, &arrows);
        let mut detail: Vec<String> = circle
            .iter()
            .map(|&file| of.files[file].path.to_owned())
            .collect();
        let inside = arrows
            .iter()
            .filter(|arrow| circle.contains(&arrow.from) && circle.contains(&arrow.to));
        let inside: Vec<String> = inside.map(|arrow| of.spelled(arrow)).collect();
        detail.extend(inside.iter().take(MOST_ARROWS).cloned());
        if inside.len() > MOST_ARROWS {
            detail.push(format!("and {} more arrows", inside.len() - MOST_ARROWS));
        }
        (
            place,
            Count {
                number: circle.len(),
                detail,
            },
        )
    });
    counts.collect()
}

/// Files with more than `MOST_LINES` without tests, by their lines rounded up.
pub(super) fn long_files(of: &Crate) -> BTreeMap<String, Count> {
    let written = of
        .files
        .iter()
        .filter(|file| !GENERATED.contains(&file.path));
    let lines = written.map(|file| (file.path, file.text.lines().count() - file.code.test_lines));
    let long = lines.filter(|(_, lines)| *lines > MOST_LINES);
    let counts = long.map(|(path, lines)| {
        let count = Count {
            number: lines.next_multiple_of(STEP),
            detail: vec![format!("it has {lines} lines without its tests")],
        };
        (path.to_owned(), count)
    });
    counts.collect()
}

/// Folders that are crowded and not on the list, and rows of the list that are no longer so.
pub(super) fn without_rooms(allowed: &[&str], crowded: &BTreeMap<String, usize>) -> Vec<String> {
    let most = rooms::MOST_FILES;
    let new = crowded
        .iter()
        .filter(|(folder, _)| !allowed.contains(&folder.as_str()));
    let new = new.map(|(folder, files)| {
        format!("{folder}: {files} files and no table of rooms; without one at most {most} (docs/adding.md)")
    });
    let idle = allowed
        .iter()
        .filter(|folder| !crowded.contains_key(**folder));
    let idle =
        idle.map(|folder| format!("{folder}: take its row out of WITHOUT_ROOMS, it needs none"));
    new.chain(idle).collect()
}

#[track_caller]
fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

fn all(
    crates: &[Crate],
    count: impl Fn(&Crate) -> BTreeMap<String, Count>,
) -> BTreeMap<String, Count> {
    crates.iter().flat_map(count).collect()
}

#[test]
fn circles_of_files_do_not_grow() {
    let sources = read_tree();
    let circles = all(&crates(&sources), largest_circles);
    assert_none(&compared(
        "CIRCLES",
        "files that import each other in a circle",
        CIRCLES,
        &circles,
    ));
}

#[test]
fn no_arrow_goes_up_between_the_rooms_of_a_folder() {
    let sources = read_tree();
    let crates = crates(&sources);
    let mut violations: Vec<String> = crates
        .iter()
        .flat_map(|of| rooms::check(of, &of.arrows()))
        .collect();
    let crowded = crates.iter().flat_map(rooms::crowded).collect();
    violations.extend(without_rooms(WITHOUT_ROOMS, &crowded));
    assert_none(&violations);
}

#[test]
fn a_mod_rs_documents_its_folder_and_offers_names_of_it_only() {
    let sources = read_tree();
    let faces = all(&crates(&sources), faces::counted);
    assert_none(&compared(
        "FACES",
        "items of `mod.rs` that belong into files of their own",
        FACES,
        &faces,
    ));
}

#[test]
fn objects_are_cut_into_no_more_slices_and_files_do_not_grow() {
    let sources = read_tree();
    let crates = crates(&sources);
    let sliced = all(&crates, slices::counted);
    let long = long_files(&crates[0]);
    let mut violations = compared(
        "SLICED_TYPES",
        "files with an `impl` of its own",
        SLICED_TYPES,
        &sliced,
    );
    violations.extend(compared(
        "LONG_FILES",
        "lines (rounded up to 50)",
        LONG_FILES,
        &long,
    ));
    assert_none(&violations);
}

#[test]
fn functions_that_are_hard_to_call_or_to_read_become_no_more() {
    let sources = read_tree();
    let library = &crates(&sources)[0];
    let tables = [
        (
            "TUPLES",
            "functions that take a tuple",
            TUPLES,
            functions::with_tuples(library),
        ),
        (
            "LONG_FUNCTIONS",
            "functions over 60 lines",
            LONG_FUNCTIONS,
            functions::long(library),
        ),
        (
            "MANY_ARGUMENTS",
            "functions with more than six arguments",
            MANY_ARGUMENTS,
            functions::with_many_arguments(library),
        ),
    ];
    let violations =
        tables.map(|(table, what, limits, counts)| compared(table, what, limits, &counts));
    assert_none(&violations.concat());
}
