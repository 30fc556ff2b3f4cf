//! A file that no module declares is compiled by nobody: it looks like code, and no test can find that it is wrong.

use super::Source;

/// Returns the files of `src` folders that no other file declares as a module.
pub(crate) fn undeclared(sources: &[Source]) -> Vec<String> {
    // All texts are read once: they have a million lines.
    let taken: Vec<&str> = sources.iter().flat_map(|it| paths_of(&it.text)).collect();
    let of_src = sources.iter().filter(|source| is_module(&source.path));
    let undeclared = of_src.filter(|source| {
        let (folder, name) = place(&source.path);
        let declares =
            |parent: &Source| is_parent(&parent.path, folder) && declares(&parent.text, name);
        let is_taken = |path: &&str| path.ends_with(last_two_parts(&source.path));
        !sources.iter().any(declares) && !taken.iter().any(is_taken)
    });
    undeclared
        .map(|source| format!("{}: no file declares this module", source.path))
        .collect()
}

/// Returns whether the file is a module of a crate. Roots are not, and neither are programs.
fn is_module(path: &str) -> bool {
    let Some(at) = path.find("src/") else {
        return false;
    };
    let inside = &path[at + 4..];
    let is_root = matches!(inside, "lib.rs" | "main.rs") || inside.starts_with("bin/");
    let before_src = &path[..at];
    path.ends_with(".rs") && !is_root && (before_src.is_empty() || before_src.ends_with('/'))
}

/// Returns the folder of the modules beside this one, and its name.
fn place(path: &str) -> (&str, &str) {
    let stem = path.trim_end_matches(".rs").trim_end_matches("/mod");
    stem.rsplit_once('/').unwrap_or(("", stem))
}

/// Returns whether the module of this file has its children in `folder`.
fn is_parent(path: &str, folder: &str) -> bool {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let inside = stem.strip_prefix(folder);
    inside.is_some_and(|rest| matches!(rest, "" | "/mod" | "/lib" | "/main"))
}

fn declares(text: &str, name: &str) -> bool {
    let end = format!("mod {name};");
    text.lines().any(|line| {
        let before = line.trim_start().strip_suffix(&end);
        before.is_some_and(|before| before.is_empty() || before.starts_with("pub"))
    })
}

/// Returns the paths of the `#[path]` attributes of this text.
fn paths_of(text: &str) -> impl Iterator<Item = &str> {
    let paths = text
        .lines()
        .map(|line| line.trim().strip_prefix("#[path = \""));
    paths.filter_map(|path| path?.strip_suffix("\"]"))
}

/// Returns the name of the file and of its folder.
fn last_two_parts(path: &str) -> &str {
    let from = path.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    &path[from..]
}

#[test]
fn every_file_of_a_crate_is_a_module_of_it() {
    let undeclared = undeclared(&super::read_tree());
    assert!(undeclared.is_empty(), "\n{}\n", undeclared.join("\n"));
}

#[test]
fn a_planted_file_without_a_module_is_found() {
    let tree = |declaration: &str| {
        [
            Source::new(
                "crates/c/src/lib.rs",
                "mod a;\n#[path = \"../../d/src/x/y.rs\"]\nmod y;\n",
            ),
            Source::new("crates/c/src/a.rs", declaration),
            Source::new("crates/c/src/a/b.rs", ""),
            Source::new("crates/c/src/bin/p.rs", ""),
            Source::new("crates/d/src/x/y.rs", ""),
            Source::new("crates/c/tests/t.rs", ""),
        ]
    };
    for good in ["mod b;", "pub(crate) mod b;", "/// It.\n    mod b;"] {
        assert_eq!(undeclared(&tree(good)), [""; 0], "{good}");
    }
    for bad in ["", "// mod b;", "mod bb;", "use mod_b;"] {
        let found = undeclared(&tree(bad));
        assert_eq!(
            found,
            ["crates/c/src/a/b.rs: no file declares this module"],
            "{bad}"
        );
    }
}
