//! Tables of rooms, arrows against them, and folders without one.

use super::super::limits::without_rooms;
use super::super::rooms;
use super::found;
use std::collections::BTreeMap;

/// A folder of three floors, with a table.
pub(super) const ROOMS: [(&str, &str); 6] = [
    (
        "m/mod.rs",
        "//! The module.\n//!\n//! # Rooms\n//!\n//! From the top down.\n//!\n//! ```text\n\
         //! face.rs         what users call\n//! wire/ plan.rs   frames, and\n//!                 what is planned\n\
         //! error.rs        all errors\n//! ```\n//!\n//! More.\n\
         mod error;\nmod face;\nmod plan;\nmod wire;\n#[cfg(test)]\nmod tests;\n\
         pub use face::Face;\npub use wire::Frame;\npub(crate) use plan::Plan;\n",
    ),
    (
        "m/face.rs",
        "use super::{plan::Plan, wire::Frame, error::Error}; pub struct Face;",
    ),
    ("m/wire/mod.rs", "mod frame;\npub use frame::Frame;"),
    (
        "m/wire/frame.rs",
        "use crate::m::error::Error; pub struct Frame;",
    ),
    ("m/plan.rs", "pub struct Plan;"),
    ("m/error.rs", "pub struct Error;"),
];

/// Returns what the rooms of ROOMS say if the file at `path` has `code` too.
fn said(path: &str, code: &str) -> Vec<String> {
    let mut files = ROOMS.map(|(path, text)| (path, text.to_owned()));
    let file = files.iter_mut().find(|(at, _)| *at == path);
    file.unwrap().1.push_str(code);
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    found(&files, |of| rooms::check(of, &of.arrows()))
}

#[test]
fn an_arrow_up_between_rooms_is_caught_and_one_down_is_not() {
    assert_eq!(said("m/plan.rs", ""), [""; 0]);
    assert_eq!(said("m/plan.rs", "use super::error::Error;"), [""; 0]);
    assert_eq!(said("m/wire/frame.rs", "use super::Frame;"), [""; 0]);
    assert_eq!(
        said("m/error.rs", "\nfn f(_: super::plan::Plan) {}"),
        [
            "`error.rs` uses `plan.rs` of a floor above: src/m/error.rs:2 -> src/m/plan.rs (super::plan::Plan)"
        ]
    );
    assert_eq!(
        said("m/wire/frame.rs", "use super::super::face::Face;"),
        [
            "`wire/` uses `face.rs` of a floor above: src/m/wire/frame.rs:1 -> src/m/face.rs (super::super::face::Face)"
        ]
    );
    assert_eq!(
        said("m/plan.rs", "use super::wire::Frame;"),
        [
            "`plan.rs` uses `wire/` of its own floor: src/m/plan.rs:1 -> src/m/wire/frame.rs (super::wire::Frame)"
        ]
    );
    let tests = "#[cfg(test)]\nmod tests { use crate::m::face::Face; }";
    assert_eq!(said("m/plan.rs", tests), [""; 0]);
}

#[test]
fn an_arrow_up_that_goes_through_a_face_is_caught() {
    let through = [
        ("m/error.rs", "use super::Face;"),
        ("m/error.rs", "use crate::m::Face as Hidden;"),
        ("m/error.rs", "use super::Frame;"),
        ("m/error.rs", "fn f(_: planted::m::wire::Frame) {}"),
        ("m/wire/frame.rs", "use super::super::Plan;"),
        ("m/wire/mod.rs", "pub use super::Face;"),
    ];
    for (path, code) in through {
        let said = said(path, code);
        assert_eq!(said.len(), 1, "{path}: {code}: {said:?}");
        assert!(!said[0].contains("-> src/m/mod.rs"), "{said:?}");
    }
    // The names that a glob brings are not followed: to ask the face for all is enough.
    assert_eq!(
        said("m/error.rs", "use super::*;"),
        ["`error.rs` uses the face above it: src/m/error.rs:1 -> src/m/mod.rs (super)"]
    );
}

#[test]
fn a_table_of_rooms_names_what_is_in_the_folder_and_nothing_else() {
    let mut files = ROOMS.to_vec();
    files.push(("m/tests.rs", "use super::*;"));
    files.push(("m/link.rs", ""));
    let face = ROOMS[0].1.replace("mod face;", "mod face;\nmod link;");
    files[0].1 = &face;
    let check = |files: &[_]| found(files, |of| rooms::check(of, &of.arrows()));
    assert_eq!(
        check(&files),
        ["src/m/mod.rs: the table of rooms lacks `link.rs`"]
    );
    let face = ROOMS[0].1.replace("error.rs  ", "error/ face.rs  ");
    files[0].1 = &face;
    assert_eq!(
        check(&files),
        [
            "src/m/mod.rs: the table of rooms has `error/`, which is not in the folder",
            "src/m/mod.rs: the table of rooms has `face.rs` twice",
            "src/m/mod.rs: the table of rooms lacks `error.rs`",
        ]
    );
}

#[test]
fn a_file_and_the_folder_of_its_name_are_one_room() {
    let mut files = ROOMS.to_vec();
    files.push((
        "m/plan/deep.rs",
        "use super::Plan; use crate::m::Face; pub struct Deep;",
    ));
    files[4].1 = "mod deep; use deep::Deep; pub struct Plan;";
    assert_eq!(
        found(&files, |of| rooms::check(of, &of.arrows())),
        [
            "`plan.rs` uses `face.rs` of a floor above: src/m/plan/deep.rs:1 -> src/m/face.rs (crate::m::Face)"
        ]
    );
}

#[test]
fn a_table_of_rooms_that_cannot_be_read_is_said() {
    for (doc, words) in [
        ("//! # Rooms\n//! words", "has no block of text"),
        ("//! # Rooms\n//! ```text\n//! ```", "is empty"),
        (
            "//! # Rooms\n//! ```text\n//! a.rs what it is\n//! ```",
            "no two blanks",
        ),
        (
            "//! # Rooms\n//! # Next\n//! ```text\n//! a.rs  it\n//! ```",
            "has no block of text",
        ),
    ] {
        let said = found(&[("m/mod.rs", doc)], |of| rooms::check(of, &of.arrows()));
        assert_eq!(said.len(), 1, "{doc}: {said:?}");
        assert!(said[0].contains(words), "{doc}: {said:?}");
    }
    assert_eq!(
        rooms::Table::of("//! Rooms\n//! ```text\n//! a  b\n//! ```"),
        None
    );
    let table = rooms::Table::of(
        "//! ## Rooms\n//! ```text\n//! a.rs b/  both\n//!   and more\n//! c.rs  it\n//! ```",
    );
    let floors = table.unwrap().unwrap().floors;
    assert_eq!(floors, [vec!["a.rs", "b/"], vec!["c.rs"]]);
}

#[test]
fn a_face_has_documentation_modules_and_names_only() {
    for item in [
        "pub struct S;",
        "enum E {}",
        "pub(crate) const fn f() {}",
        "impl super::S {}",
        "use std::fmt;",
        "const N: usize = 1;",
        "mod inner { }",
        "thread_local! { static N: u8 = 0; }",
    ] {
        let said = said("m/mod.rs", item);
        assert_eq!(said.len(), 1, "{item}: {said:?}");
        assert!(
            said[0].starts_with("src/m/mod.rs:24: a face has"),
            "{said:?}"
        );
    }
    for item in [
        "#[cfg(test)]\nfn f() {}",
        "#[doc(hidden)]\npub mod other;",
        "pub(in crate::m) use error::{Error, *};",
        "#[expect(unsafe_code)]\nmod other;",
    ] {
        assert_eq!(said("m/mod.rs", item), [""; 0], "{item}");
    }
}

#[test]
fn a_crowded_folder_without_rooms_is_on_the_list() {
    let names: Vec<String> = (0..12).map(|n| format!("f{n}")).collect();
    let face: String = names.iter().map(|name| format!("mod {name};\n")).collect();
    let paths: Vec<String> = names.iter().map(|name| format!("m/{name}.rs")).collect();
    let crowded = |face: &str| {
        let mut files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
        files.push(("m/mod.rs", face));
        found(&files, rooms::crowded)
    };
    let found = crowded(&face);
    assert_eq!(found, BTreeMap::from([("src/m".to_owned(), 13)]));
    assert_eq!(without_rooms(&["src/m"], &found), [""; 0]);
    let said = without_rooms(&["src/n"], &found);
    assert_eq!(said.len(), 2);
    assert!(
        said[0].starts_with("src/m: 13 files and no table of rooms"),
        "{said:?}"
    );
    assert!(said[1].starts_with("src/n: take its row out"), "{said:?}");
    let without = [
        format!("{face}#[cfg(test)]\nmod tests;").replace("mod f0;", "#[cfg(test)]\nmod f0;"),
        format!("//! # Rooms\n//! ```text\n//! f0.rs  all\n//! ```\n{face}"),
    ];
    for face in without {
        assert!(crowded(&face).is_empty(), "{face}");
    }
}
