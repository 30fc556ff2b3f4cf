//! Trees, programs and outcomes that unit tests of several modules make up.

use crate::outcomes::{Outcome, Verdict};
use crate::programs::{Build, Program, Test, Tree};

pub(crate) fn test(name: &str) -> Test {
    Test {
        name: name.to_owned(),
        ignored: None,
    }
}

pub(crate) fn ignored(name: &str, reason: &str) -> Test {
    Test {
        ignored: Some(reason.to_owned()),
        ..test(name)
    }
}

pub(crate) fn program(id: &str, tests: Vec<Test>) -> Program {
    Program {
        id: id.to_owned(),
        executable: "/bin/true".into(),
        directory: "/".into(),
        source: format!("/{id}.rs").into(),
        tests,
    }
}

/// Returns a tree of programs with the names of their tests.
pub(crate) fn tree(listed: &[(&str, &[&str])]) -> Tree {
    let made = |(id, tests): &(&str, &[&str])| program(id, tests.iter().map(|t| test(t)).collect());
    Tree {
        build: Build::default(),
        programs: listed.iter().map(made).collect(),
    }
}

/// Returns the tests and their verdicts, sorted by name.
pub(crate) fn results(found: &[Outcome]) -> Vec<(&str, Verdict)> {
    let mut results: Vec<_> = found.iter().map(|o| (o.test.as_str(), o.verdict)).collect();
    results.sort();
    results
}
