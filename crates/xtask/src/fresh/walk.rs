//! `./x fresh walk`: does what a stranger does in the first hour, by the pages alone. It runs the demo of the README, then the example with
//! a kernel of its own (docs/examples/own-kernel). It changes that kernel so that its test fails, stops gdb in the kernel, makes the test
//! fit, and adds one more test.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::Inside;
use crate::failure::{At, Failure, Result};
use crate::process::{Answer, answer, run, succeeded};

const KERNEL: &str = "docs/examples/own-kernel/kernels/squares.cu";
const TEST: &str = "docs/examples/own-kernel/tests/runs.rs";

/// The change of the kernel, and the change of its test that fits it.
const SQUARE: [&str; 2] = ["= number * number;", "= number * number * number;"];
const EXPECTED: [&str; 2] = [
    "(first + lane) * (first + lane)",
    "(first + lane) * (first + lane) * (first + lane)",
];

/// The change that adds a test. The test of the example takes two and three ranks, and the new test takes five.
const MORE_RANKS: [&str; 2] = [
    "#[test]\nfn each_rank_gets_the_squares_of_the_previous_one() {\n    for ranks in [2, 3] {",
    "#[test]\nfn five_ranks_do_so_too() {\n    check(&[5]);\n}\n\n#[test]\nfn each_rank_gets_the_squares_of_the_previous_one() {\n    check(&[2, 3]);\n}\n\n\
     fn check(all: &[u32]) {\n    for &ranks in all {",
];

const RUN_TESTS: &str = "cargo test --locked -p example-own-kernel";

impl Inside {
    pub(super) fn try_walk(&mut self) -> Result {
        self.measured("./x demo", |inside| inside.run_x(&["demo"]))?;
        self.measured("a changed kernel", |inside| {
            inside.change(KERNEL, SQUARE)?;
            inside.fails_by_its_assertion()
        })?;
        self.measured("apt-get install gdb", |inside| inside.install(&["gdb"]))?;
        self.measured("the kernel in gdb", Self::stops_at_the_change)?;
        self.measured("the test that fits", |inside| {
            inside.change(TEST, EXPECTED)?;
            run(&mut inside.shell(RUN_TESTS))
        })?;
        self.measured("one more test", |inside| {
            inside.change(TEST, MORE_RANKS)?;
            let ran = inside.asked(&format!("{RUN_TESTS} five_ranks"))?;
            print!("{}", ran.text);
            succeeded(ran.status)?;
            holds(&ran, "1 passed")
        })?;
        self.print_report();
        Ok(())
    }

    /// Checks that the test of the changed kernel fails by its assertion, and not otherwise.
    fn fails_by_its_assertion(&self) -> Result {
        let ran = self.asked(RUN_TESTS)?;
        print!("{}", ran.text);
        if ran.status.success() {
            return Err(Failure::new(
                1,
                format!("{RUN_TESTS} passed with a changed kernel"),
            ));
        }
        // Rank 0 of two gets the square of 63.
        holds(&ran, "1 failed")?;
        holds(&ran, "3969")
    }

    /// Checks that gdb stops where the kernel was changed, and shows the variable of the line.
    fn stops_at_the_change(&self) -> Result {
        let file = self.project(KERNEL);
        let text = fs::read_to_string(&file).at(&file)?;
        let line = text.lines().position(|line| line.contains(SQUARE[1]));
        let line = line.map_or(0, |before| before + 1);
        let said = self.asked(&format!(
            "printf 'print number\\nkill\\nquit\\n' | ./x debug {KERNEL}:{line} example-own-kernel/runs"
        ))?;
        print!("{}", said.text);
        holds(&said, "hit Breakpoint 1")?;
        holds(&said, "$1 = ")
    }

    fn project(&self, file: &str) -> PathBuf {
        self.root.join("warpverbs").join(file)
    }

    /// Replaces `from` by `to` in a file, which must contain `from` once.
    fn change(&self, file: &str, [from, to]: [&str; 2]) -> Result {
        let path = self.project(file);
        let text = fs::read_to_string(&path).at(&path)?;
        match text.matches(from).count() {
            1 => fs::write(&path, text.replacen(from, to, 1)).at(&path),
            count => {
                let told = format!("{file} has {count} times {from:?}; it must be once");
                Err(Failure::new(1, told))
            }
        }
    }

    /// Returns what a command in the project prints on both of its outputs.
    fn asked(&self, line: &str) -> Result<Answer> {
        answer(&mut self.shell(&format!("{{ {line}; }} 2>&1")), None)
    }

    fn shell(&self, line: &str) -> Command {
        println!("{line}");
        let mut shell = self.inside();
        shell.args(["sh", "-c", &format!("cd /warpverbs && {line}")]);
        shell
    }
}

fn holds(said: &Answer, words: &str) -> Result {
    if said.text.contains(words) {
        Ok(())
    } else {
        Err(Failure::new(
            1,
            format!("the output above has no {words:?}"),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_files_of_the_example_have_what_the_walk_changes() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (file, [from, to]) in [(KERNEL, SQUARE), (TEST, EXPECTED), (TEST, MORE_RANKS)] {
            let text = fs::read_to_string(root.join(file)).unwrap();
            assert_eq!(text.matches(from).count(), 1, "{file}: {from:?}");
            assert!(!text.contains(to), "{file}: {to:?}");
        }
    }
}
