//! The texts of the checks, as the page for operators and as the output of `--explain`.

use std::fmt::Write;

use super::check::{Group, Text};
use super::texts::texts;

/// The number of columns of the page.
const WIDTH: usize = 130;

const HEAD: &str = "\
# wv doctor: what a machine can do

Made from the texts of `wv doctor` (crates/cli/src/doctor); a test compares. Rewrite: `UPDATE=1 cargo test -p wv --test doctor`.

`wv doctor` looks at libraries, kernel, NICs, GPUs, each GPU with each NIC, and the store. `--loopback` moves data by kernels from each
NIC to itself. `--launched` is one rank of a launcher's job: it adds which ranks reach each other. `--json` prints JSON by
`crates/wv/data/doctor.schema.json`, `--explain ID` prints what this page says of one check, `--only GROUP,GROUP` looks at these groups alone.

A check has one of four results. *ok*: as it should be. *degraded*: it works, and something is slower, smaller or less safe than it
could be. *missing*: it does not work. *not-looked-at*: it gave no answer within 2 s (`--loopback` 5 s), or its files cannot be read.
The status is 0 if the machine can be used, degraded or not. It is 1 if a needed part is missing, 2 for a wrong command line. Of
several NICs or GPUs one that lacks nothing is enough. The doctor needs no NIC, GPU, libmlx5 or root, and changes nothing on the
machine. As root it also sees the configuration of bridges.
";

/// Returns the text of `docs/doctor.md`.
#[must_use]
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for group in Group::ALL {
        let _ = write!(page, "\n## {}\n", title(group));
        for (_, text) in texts().iter().filter(|(of, _)| *of == group) {
            let _ = write!(page, "\n### `{}`: {}\n\n", text.id, text.what);
            filled(&mut page, text.why);
            page.push('\n');
            filled(&mut page, &format!("What mends it: {}", text.mend));
        }
    }
    page
}

/// Returns what `--explain` prints.
pub(super) fn explained(text: &Text) -> String {
    let mut said = format!("{}: {}\n\n", text.id, text.what);
    filled(&mut said, text.why);
    said.push('\n');
    filled(&mut said, &format!("What mends it: {}", text.mend));
    said
}

fn title(group: Group) -> &'static str {
    match group {
        Group::Software => "Software",
        Group::Machine => "Machine",
        Group::Nic => "Each NIC",
        Group::Gpu => "Each GPU",
        Group::Pair => "Each GPU with each NIC",
        Group::Store => "Store",
    }
}

/// Adds a paragraph with lines of at most `WIDTH` columns.
fn filled(page: &mut String, words: &str) {
    let mut column = 0;
    for word in words.split_whitespace() {
        if column > 0 && column + 1 + word.len() > WIDTH {
            page.push('\n');
            column = 0;
        }
        if column > 0 {
            page.push(' ');
            column += 1;
        }
        page.push_str(word);
        column += word.len();
    }
    page.push('\n');
}
