//! Faces that define something.

use super::super::faces;
use super::found;

/// Returns the places with items, and how many, if `m/mod.rs` has `code` beside what a face has.
fn items_of(code: &str) -> Vec<(String, usize)> {
    let face = format!("//! The module.\nmod a;\npub mod b;\npub(crate) use a::{{A, B}};\n{code}");
    let files = [
        ("m/mod.rs", face.as_str()),
        ("m/a.rs", "pub struct A; impl A {} pub fn f() {}"),
        ("m/b/mod.rs", "mod c; pub use c::*;"),
    ];
    let counts = found(&files, faces::counted);
    let numbers = counts
        .into_iter()
        .map(|(place, count)| (place, count.number));
    numbers.filter(|(_, number)| *number > 0).collect()
}

#[test]
fn an_item_of_a_mod_rs_is_counted() {
    for code in [
        "pub(super) struct S<T: Copy>(T);",
        "enum E { A, B }",
        "pub trait T { fn f(&self) {} }",
        "impl a::A { fn g() {} fn h() {} }",
        "impl<T> From<T> for a::A where T: Copy {}",
        "#[must_use]\npub(crate) fn f(a: u8) -> [u8; 2] { [a; 2] }",
        "const C: [u8; 2] = [0; 2];",
        "static S: S = S { a: 1 };",
        "use a::C;",
        "mod inner { pub struct S; }",
        "macro_rules! m { () => {} }",
    ] {
        assert_eq!(items_of(code), [("src/m".to_owned(), 1)], "{code}");
    }
    let two = "struct S;\nimpl S {}";
    assert_eq!(items_of(two), [("src/m".to_owned(), 2)]);
}

#[test]
fn what_a_face_has_is_not_counted_nor_what_tests_alone_have() {
    for code in [
        "",
        "#![expect(unsafe_code, reason = \"calls\")]\n#[expect(x, reason = \"its type\")]\nmod m;",
        "#[doc(hidden)]\npub use b::D as _;",
        "#[cfg(test)]\nmod tests { fn f() {} }",
        "#[cfg(test)]\nfn f() {}",
    ] {
        assert_eq!(items_of(code), [], "{code}");
    }
    // A file beside the folder of its name is no face: it is named after what it defines.
    let files = [("m.rs", "mod a; pub struct M;"), ("m/a.rs", "")];
    assert!(found(&files, faces::counted).is_empty());
}
