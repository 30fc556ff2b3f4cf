//! Limits, slices of types, long files and functions.

use super::super::compare::{Count, compared};
use super::super::limits::long_files;
use super::super::{functions, slices};
use super::found;
use std::collections::BTreeMap;

#[test]
fn a_number_over_its_limit_and_a_limit_that_is_too_high_are_said() {
    let count = |number| Count {
        number,
        detail: vec!["src/m/a.rs".to_owned()],
    };
    let counts = BTreeMap::from([
        ("src/m".to_owned(), count(4)),
        ("src/n".to_owned(), count(0)),
    ]);
    let said = |limits| compared("TABLE", "files that turn", limits, &counts);
    assert_eq!(said(&[("src/m", 4)]), [""; 0]);
    assert_eq!(
        said(&[("src/m", 3)]),
        ["src/m: files that turn: 4, and TABLE allows 3\n    src/m/a.rs"]
    );
    assert_eq!(
        said(&[]),
        ["src/m: files that turn: 4, and TABLE allows 0\n    src/m/a.rs"]
    );
    assert_eq!(
        said(&[("src/m", 5)]),
        ["src/m: files that turn: 4, and TABLE allows 5: lower the limit to 4"]
    );
    let rows = said(&[("src/gone", 2), ("src/m", 4), ("src/n", 1)]);
    assert_eq!(
        rows,
        [
            "src/gone: nothing is left of what TABLE allows (2): lower the limit to 0, so take its row out",
            "src/n: nothing is left of what TABLE allows (1): lower the limit to 0, so take its row out",
        ]
    );
}

#[test]
fn an_impl_in_a_third_file_is_counted_and_one_of_a_trait_is_not() {
    let sliced = |c: &str| {
        let files = [
            ("m/mod.rs", "mod a; mod b; mod c; pub use a::Cut;"),
            (
                "m/a.rs",
                "pub struct Cut<T>(T); impl<T: Into<u8>> Cut<T> { fn f() {} }",
            ),
            (
                "m/b.rs",
                "use crate::m::Cut;\n#[expect(x)]\nimpl Cut<u8> { fn g() { } }\nimpl<T> From<T> for Cut<T> {}",
            ),
            ("m/c.rs", c),
        ];
        let counts = found(&files, slices::counted);
        counts
            .into_iter()
            .map(|(place, count)| (place, count.number))
            .collect::<Vec<_>>()
    };
    let cut = [("src/m::Cut".to_owned(), 3)];
    assert_eq!(sliced("use super::*; impl Cut<u16> {}"), cut);
    assert_eq!(
        sliced("impl<F> super::a::Cut<F> where F: for<'a> Fn(&'a u8) -> u8 {}"),
        cut
    );
    assert_eq!(sliced("impl super::Cut where u8: Copy {}"), cut);
    for other in [
        "use super::Cut; impl Clone for Cut<u8> {}",
        "use super::Cut; impl<T> From<Cut<T>> for u8 where T: Copy {}",
        "use super::Cut; #[cfg(test)] impl Cut<u16> {}",
        "use other::Cut; struct Own; impl Own {} fn f(c: &Cut<u8>) -> impl Fn(Cut<u8>) { g }",
    ] {
        assert_eq!(sliced(other), [], "{other}");
    }
}

#[test]
fn a_trait_that_three_files_implement_is_no_sliced_type() {
    let files = [
        ("m.rs", "mod a; mod b; mod c;"),
        ("m/a.rs", "pub trait Of<T> {} impl Of<u8> for A {}"),
        (
            "m/b.rs",
            "use super::a::Of; impl Of<u8> for B {} fn f() -> impl Of<u8> { B }",
        ),
        (
            "m/c.rs",
            "use super::a::Of; impl<T> Of<T> for C<T> {} fn f() -> impl Of<u8> { C }",
        ),
    ];
    assert!(found(&files, slices::counted).is_empty());
}

#[test]
fn a_file_of_more_than_600_lines_without_tests_is_counted() {
    let lines = |live: usize, tests: usize| {
        let body = "fn f() {}\n".repeat(tests);
        let text = format!(
            "{}#[cfg(test)]\nmod tests {{\n{body}}}\n",
            "// A line.\n".repeat(live)
        );
        let counts = found(&[("m.rs", &text)], long_files);
        counts
            .values()
            .map(|count| count.number)
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(600, 500), []);
    assert_eq!(lines(601, 0), [650]);
    assert_eq!(lines(650, 9), [650]);
    assert_eq!(lines(651, 9), [700]);
}

/// Returns how many functions of `code` have a tuple, over 60 lines, and more than six arguments.
fn functions_of(code: &str) -> [usize; 3] {
    let number =
        |counts: BTreeMap<String, Count>| counts.get("src/m").map_or(0, |count| count.number);
    found(&[("m.rs", code)], |of| {
        [
            functions::with_tuples,
            functions::long,
            functions::with_many_arguments,
        ]
        .map(|count| number(count(of)))
    })
}

#[test]
fn a_function_that_takes_a_tuple_or_seven_arguments_is_counted() {
    for (parameters, tuples) in [
        ("pair: (u8, u8)", 1),
        ("&self, (a, b): &'a mut (u8, Vec<u8>)", 1),
        ("Point { x, y }: Point, pair: (u8, u8), other: (u8, u8)", 1),
        (
            "unit: (), list: &[(u8, u8)], call: impl Fn((u8, u8)) -> (u8, u8)",
            0,
        ),
        ("a: u8, b: HashMap<u8, (u8, u8)>", 0),
    ] {
        for code in [
            format!("fn f<'a, T: Fn(u8) -> u8>({parameters}) {{}}"),
            format!("trait T {{ fn f({parameters}) -> (u8, u8); }}"),
        ] {
            assert_eq!(functions_of(&code), [tuples, 0, 0], "{code}");
        }
    }
    let six = "a: u8, b: Map<u8, u8>, c: [u8; 2], d: u8, e: fn(u8, u8), f: u8,";
    for (parameters, many) in [
        (six.to_owned(), 0),
        (format!("&'a mut self, {six}"), 0),
        (format!("mut self: Arc<Self>, {six}"), 0),
        (format!("{six} g: u8"), 1),
        (format!("&self, {six} g: u8"), 1),
    ] {
        let code = format!("impl S {{ fn f({parameters}) {{}} }}");
        assert_eq!(functions_of(&code), [0, 0, many], "{code}");
    }
    assert_eq!(
        functions_of("#[cfg(test)]\nfn f(pair: (u8, u8)) {}"),
        [0; 3]
    );
}

#[test]
fn a_function_of_more_than_60_lines_is_counted() {
    let of = |lines: usize| {
        format!(
            "pub fn f(a: u8) -> [u8; 2]\nwhere\n    T: Copy,\n{{{}}}",
            "\n".repeat(lines - 4)
        )
    };
    assert_eq!(functions_of(&of(60)), [0, 0, 0]);
    assert_eq!(functions_of(&of(61)), [0, 1, 0]);
    assert_eq!(
        functions_of(&format!("#[cfg(test)]\n{}", of(61))),
        [0, 0, 0]
    );
}
