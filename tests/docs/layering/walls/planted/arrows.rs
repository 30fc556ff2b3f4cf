//! What is an arrow between two files, and what a circle.

use super::super::compare::Count;
use super::super::limits::largest_circles;
use super::{Source, found, read};

fn circle_of(place: &str, files: &[(&str, &str)]) -> Count {
    found(files, largest_circles).remove(place).unwrap()
}

const FACE: &str = "mod a;\nmod b;\npub use self::a::A;\npub use b::B;";

/// The module `m` of two files, of which `a` uses `b`; `b` has `code` too.
fn two(code: &str) -> usize {
    let b = format!("pub struct B;\n{code}");
    let files = [
        ("m/mod.rs", FACE),
        ("m/a.rs", "use super::b::B;\npub struct A(B);"),
        ("m/b.rs", &b),
    ];
    circle_of("src/m", &files).number
}

#[test]
fn every_way_to_name_an_item_of_another_file_is_an_arrow() {
    for way in [
        "use super::a::A;",
        "pub use super::a::{A as Renamed, self as a};",
        "use super::a::{self};\nfn f(_: &a::A) {}",
        "use crate::m::A;",
        "use planted::m::A;",
        "fn f(_: &super::a::A) {}",
        "use super::a;\nfn f(_: &a::A) {}",
        "fn f() { use super::A; }",
        "fn f() { let a = [super::a::A::default()]; }",
        "fn f() { log!(\"{}\", super::a::A::LIMIT); }",
        "fn f() -> B { B { ..super::a::A::NONE } }",
        "mod inner { use super::super::a::A; }",
        "mod inner { pub use super::super::a::A; }\nuse inner::A;",
        "use super::a::*;",
    ] {
        assert_eq!(two(way), 2, "{way}");
    }
    // A glob of the face is an arrow to the face, which imports both.
    assert_eq!(two("use super::*;"), 3);
}

#[test]
fn what_is_no_code_of_the_crate_is_no_arrow() {
    for code in [
        "",
        "/// [`super::a::A`]\n// use super::a::A;\n/* /* */ use super::a::A; */",
        "const S: &str = \"super::a::A\"; const R: &str = r#\"\"crate::m::A\"#;",
        "fn f<'a>(b: &'a B) { b.a.f(); }",
        "use other::m::A;",
        "pub(in super::a) fn f() {}",
        "use super::a;",
        "macro_rules! of { () => { super::a::A } }",
    ] {
        assert_eq!(two(code), 0, "{code}");
    }
}

#[test]
fn a_name_leads_to_an_item_of_its_module_alone() {
    let through = |a: &str, c: &str| {
        let files = [
            ("m.rs", "mod a; mod b; mod c;"),
            ("m/a.rs", a),
            ("m/b.rs", "use super::c::A; pub struct B;"),
            ("m/c.rs", c),
        ];
        circle_of("src/m", &files).number
    };
    let a = "use super::b::B; pub struct A(B);";
    for c in [
        "pub use super::a::A;",
        "pub use super::a::A; fn f() { struct A; }",
        "pub use super::a::A; impl C { fn A() {} }",
        "pub use super::a::A; fn f(_: *const A) {}",
        "pub use super::a::*; struct C<const A: usize>;",
    ] {
        assert_eq!(through(a, c), 2, "{c}");
    }
    let made = "use super::b::B; made! { pub struct A(B); }";
    assert_eq!(through(made, "pub use super::a::A;"), 2);
    assert_eq!(through(a, "pub struct A;"), 0);
}

#[test]
fn code_for_tests_makes_no_circle() {
    for attribute in [
        "cfg(test)",
        "cfg(all(test, feature = \"x\"))",
        "cfg(any(test, feature = \"x\"))",
    ] {
        for item in [
            "mod tests { use super::super::a::A; }",
            "use super::a::A;",
            "fn f<T, U>(_: T, _: U, _: &super::a::A) {}",
            "impl<T, U> Of<T, U> for B { type A = super::a::A; }",
            "struct S { b: [B; 2], a: super::a::A }",
            "const C: S = S { a: super::a::A };",
        ] {
            let code = format!("#[{attribute}]\n#[derive(Clone)]\n{item}\nfn after() {{}}");
            assert_eq!(two(&code), 0, "{code}");
            let live = format!("{code}\nuse super::a::A;");
            assert_eq!(two(&live), 2, "{live}");
        }
        for field in ["a: super::a::A", "pub(super) a: Map<u8, super::a::A>"] {
            let field = format!("struct S {{ #[{attribute}] {field}, b: B }}");
            assert_eq!(two(&field), 0, "{field}");
        }
        let next = format!("struct S {{ #[{attribute}] a: u8, b: super::a::A }}");
        assert_eq!(two(&next), 2, "{next}");
    }
    for live in [
        "cfg(not(test))",
        "cfg(feature = \"x\")",
        "cfg(any(not(test), unix))",
    ] {
        assert_eq!(two(&format!("#[{live}]\nuse super::a::A;")), 2, "{live}");
    }
    let inner = "mod tests { #![cfg(test)] }\nuse super::a::A;";
    assert_eq!(two(inner), 2, "{inner}");
    let all = [
        ("m.rs", "mod a; mod b;"),
        ("m/a.rs", "use super::b::B; pub struct A;"),
        (
            "m/b.rs",
            "#![allow(x)]\n#![cfg(test)]\nuse super::a::A; pub struct B;",
        ),
    ];
    assert_eq!(circle_of("src/m", &all).number, 0);
}

#[test]
fn files_that_only_tests_declare_are_in_no_circle() {
    for (attribute, number) in [("#[cfg(test)]\n", 0), ("", 2)] {
        let face = format!("mod b;\n{attribute}mod tests;");
        let files = [
            ("m/mod.rs", face.as_str()),
            ("m/b.rs", "use super::tests::C; pub struct B;"),
            ("m/tests.rs", "use super::b::B; pub struct C;"),
        ];
        assert_eq!(circle_of("src/m", &files).number, number, "{face}");
    }
}

/// `a` to `d` in a circle, each arrow written in another way; `e` uses them.
const CIRCLE: [(&str, &str); 6] = [
    (
        "m.rs",
        "mod a; mod b; mod c; mod d; mod e; pub use d::D; pub use e::E;",
    ),
    (
        "m/a.rs",
        "use super::b::B; pub struct A(self::Own); struct Own;",
    ),
    ("m/b.rs", "pub struct B(super::c::C);"),
    ("m/c.rs", "\nuse crate::m::D; pub struct C;"),
    ("m/d.rs", "use super::a; pub struct D; fn f(_: a::A) {}"),
    ("m/e.rs", "use super::{a::A, b::B}; pub struct E;"),
];

#[test]
fn a_circle_of_four_files_is_counted_and_its_arrows_are_named() {
    for place in ["src/m", "src"] {
        let circle = circle_of(place, &CIRCLE);
        assert_eq!(circle.number, 4);
        let expected = [
            "src/m/a.rs",
            "src/m/b.rs",
            "src/m/c.rs",
            "src/m/d.rs",
            "src/m/a.rs:1 -> src/m/b.rs (super::b::B)",
            "src/m/b.rs:1 -> src/m/c.rs (super::c::C)",
            "src/m/c.rs:2 -> src/m/d.rs (crate::m::D)",
            "src/m/d.rs:1 -> src/m/a.rs (a::A)",
        ];
        assert_eq!(circle.detail, expected);
    }
    let mut opened = CIRCLE;
    opened[3].1 = "pub struct C;";
    assert_eq!(circle_of("src/m", &opened).number, 0);
}

#[test]
fn the_largest_of_several_circles_counts() {
    let files = [
        ("m.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("m/a.rs", "use super::b::B; pub struct A;"),
        ("m/b.rs", "use super::{a::A, c::C}; pub struct B;"),
        ("m/c.rs", "use super::d::D; pub struct C;"),
        ("m/d.rs", "use super::e::E; pub struct D;"),
        ("m/e.rs", "use super::c::C; pub struct E;"),
    ];
    let circle = circle_of("src/m", &files);
    assert_eq!(circle.number, 3);
    assert_eq!(
        circle.detail[..3],
        ["src/m/c.rs", "src/m/d.rs", "src/m/e.rs"]
    );
}

#[test]
fn a_circle_of_two_modules_is_one_of_the_crate_only() {
    let files = [
        ("lib.rs", "mod m; mod n;"),
        ("m.rs", "use crate::n::N; pub struct M;"),
        ("n.rs", "use super::m::M; pub struct N;"),
    ];
    let sources = files.map(|(path, text)| Source::new(&format!("src/{path}"), text));
    let circles = largest_circles(&read(&sources));
    let numbers = ["src", "src/m", "src/n"].map(|place| circles[place].number);
    assert_eq!(numbers, [2, 0, 0]);
}
