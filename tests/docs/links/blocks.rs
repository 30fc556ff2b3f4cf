//! Every block of code in the documents says what it is, and is run or checked: programs by a test that is named here, commands of a
//! shell by their words. A block of a language that stands in no table fails.

use std::fmt::Write as _;
use std::fs;

use super::{documents, root};

/// One fenced block.
#[derive(Debug)]
struct Block {
    /// From the root of the tree.
    document: String,
    line: usize,
    language: String,
    text: String,
    /// Whether `./x figures` writes it.
    is_figure: bool,
}

/// A program in a document, and the test that runs it.
struct Program {
    document: &'static str,
    language: &'static str,
    /// The first line.
    begin: &'static str,
    file: &'static str,
    test: &'static str,
}

const fn program(
    document: &'static str,
    [language, begin]: [&'static str; 2],
    [file, test]: [&'static str; 2],
) -> Program {
    Program {
        document,
        language,
        begin,
        file,
        test,
    }
}

const README_TESTS: &str = "tests/docs/readme/main.rs";
const PACKAGE: &str = "python/tests/test_package.py";
const SNIPPETS: &str = "python/tests/test_snippets.py";
const SOFTHCA: &str = "tests/docs/softhca_readme/main.rs";
const HELLO: &str =
    "// One thread puts 8 bytes into the window of the next rank, and waits until they are there.";
const RUNS_HELLO: [&str; 2] = [
    README_TESTS,
    "the_kernel_of_the_readme_puts_8_bytes_to_the_next_rank",
];
const IN_CI: &str = "the_container_file_and_the_workflow_work_with_the_tar_file";

const PROGRAMS: [Program; 14] = [
    program(
        "README.md",
        [
            "rust",
            "use std::{error::Error, sync::Arc, thread, time::Duration};",
        ],
        [README_TESTS, "two_ranks_dispatch_and_combine"],
    ),
    program(
        "README.md",
        ["python", "def rank(number: int, store: str) -> None:"],
        [PACKAGE, "test_the_example_of_the_document_runs"],
    ),
    program("README.md", ["cuda", HELLO], RUNS_HELLO),
    program("kernels/README.md", ["cuda", HELLO], RUNS_HELLO),
    program(
        "docs/kernel.md",
        [
            "cuda",
            "// Two ranks exchange 1 KiB: one warp each, launched at the same time.",
        ],
        [README_TESTS, "a_kernel_of_a_user_exchanges_a_kibibyte"],
    ),
    program(
        "python/README.md",
        ["python", "import tempfile"],
        [PACKAGE, "test_the_example_of_the_document_runs"],
    ),
    program(
        "python/README.md",
        [
            "python",
            "again = int(os.environ[\"TORCHELASTIC_RESTART_COUNT\"]) > 0",
        ],
        [
            SNIPPETS,
            "test_the_lines_of_the_loop_are_those_of_its_example",
        ],
    ),
    program(
        "python/README.md",
        ["python", "from warpverbs import deep_ep"],
        [SNIPPETS, "test_the_calls_of_a_buffer_give_the_tokens_back"],
    ),
    program(
        "python/README.md",
        ["python", "from warpverbs import mooncake_ep"],
        [SNIPPETS, "test_the_calls_of_a_buffer_give_the_tokens_back"],
    ),
    program(
        "docs/serving.md",
        ["python", "from warpverbs import mooncake_ep"],
        [SNIPPETS, "test_the_block_for_engines_runs"],
    ),
    program(
        "docs/engine.md",
        ["python", "from warpverbs import Engine, State"],
        [SNIPPETS, "test_the_tour_of_host_engines_runs"],
    ),
    program(
        "crates/softhca/README.md",
        ["dockerfile", "FROM debian:12"],
        [SOFTHCA, IN_CI],
    ),
    program(
        "crates/softhca/README.md",
        ["yaml", "jobs:"],
        [SOFTHCA, IN_CI],
    ),
    program(
        "crates/softhca/README.md",
        ["rust", "use softhca::Hca;"],
        [
            "tests/docs/softhca_readme/example.rs",
            "my_code_leaves_nothing_on_the_device",
        ],
    ),
];

/// What a command of a shell is checked by.
enum Command {
    /// Words after it, by the test of this file.
    Words(&'static str),
    /// It is not ours: why it stands there.
    Foreign(&'static str),
}

/// Programs that blocks of a shell start.
const COMMANDS: [(&str, Command); 20] = [
    ("wv", Command::Words("crates/wv/tests/documents.rs")),
    (
        "target/debug/wv",
        Command::Words("crates/wv/tests/documents.rs"),
    ),
    ("./x", Command::Words("tests/docs/links/commands.rs")),
    ("cargo", Command::Words("tests/docs/links/commands.rs")),
    ("python", Command::Words("tests/docs/links/blocks.rs")),
    ("python3", Command::Words("tests/docs/links/blocks.rs")),
    ("mpirun", Command::Foreign("a launcher")),
    ("srun", Command::Foreign("a launcher")),
    ("torchrun", Command::Foreign("a launcher")),
    ("vllm", Command::Foreign("an engine that runs on GPUs")),
    ("pip", Command::Foreign("of Python")),
    ("apt-get", Command::Foreign("of Debian")),
    ("ibv_devinfo", Command::Foreign("of libibverbs")),
    ("cat", Command::Foreign("of the system")),
    ("chmod", Command::Foreign("of the system")),
    ("head", Command::Foreign("of the system")),
    ("mkdir", Command::Foreign("of the system")),
    ("export", Command::Foreign("of the shell")),
    ("sh", Command::Foreign("of the system")),
    ("wait", Command::Foreign("of the shell")),
];

/// The fenced blocks of `text`; an error names a fence that is not closed.
fn blocks(document: &str, text: &str) -> Result<Vec<Block>, String> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    let mut is_figure = false;
    for (number, line) in (1..).zip(text.lines()) {
        is_figure |= line.starts_with("<!-- figures");
        is_figure &= !line.starts_with("<!-- end of figures");
        match (line.trim_start().strip_prefix("```"), open.as_mut()) {
            (Some(language), None) => {
                open = Some(Block {
                    document: document.to_owned(),
                    line: number,
                    language: language.to_owned(),
                    text: String::new(),
                    is_figure,
                });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some(block)) => writeln!(block.text, "{line}").expect("a string takes all"),
            (None, None) => {}
        }
    }
    match open {
        None => Ok(found),
        Some(block) => Err(format!("{document}:{}: no end of this block", block.line)),
    }
}

/// The commands of a block of a shell, each as its words: what stands after assignments, loops, and programs that start others.
fn commands(text: &str) -> Vec<Vec<&str>> {
    let mut found = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let is_rest = std::mem::replace(&mut goes_on, line.ends_with('\\'));
        let line = line.split_once(" # ").map_or(line, |(line, _)| line);
        let words: Vec<&str> = line
            .split_whitespace()
            .map(|word| word.trim_matches(['\'', ';', '&']))
            .collect();
        let ends = |word: &&str| word.is_empty() || ["--", "do", "..", "|"].contains(word);
        let of_line = words.split(ends);
        for command in of_line.skip(usize::from(is_rest)) {
            let is_assignment = |word: &&&str| word.contains('=') && !word.starts_with('-');
            let command = command.iter().skip_while(is_assignment);
            let command: Vec<&str> = command.copied().collect();
            if !command.is_empty() && !["for", "done"].contains(&command[0]) {
                found.push(command);
            }
        }
    }
    found
}

/// Returns what is wrong with a command.
fn fault(command: &[&str]) -> Option<String> {
    let exists = |path: &str| root().join(path).exists();
    let is_missing = |path: &str, what: &str| (!exists(path)).then(|| format!("no {what} {path}"));
    match command {
        ["python" | "python3", "-m", "warpverbs", ..] => None,
        ["python" | "python3", "-m", module, ..] => match module.strip_prefix("warpverbs.") {
            Some(module) => is_missing(&format!("python/warpverbs/{module}.py"), "module"),
            None => (!["sglang.launch_server", "pip"].contains(module))
                .then(|| format!("unknown module {module}")),
        },
        // Files that stand for the reader's own.
        ["python" | "python3", "my_program.py" | "two_ranks.py"] => None,
        ["python" | "python3", file, ..] => is_missing(file, "program"),
        ["cargo", "build", rest @ ..] => {
            let packages = rest.chunks_exact(2).filter(|pair| pair[0] == "-p");
            let mut missing = packages
                .map(|pair| pair[1])
                .filter(|name| !has_package(name));
            missing.next().map(|name| format!("no package {name}"))
        }
        [program, ..] if program.starts_with("target/debug/example-") => {
            let name = program.trim_start_matches("target/debug/");
            (!has_package(name)).then(|| format!("no package {name}"))
        }
        // nvcc of the wheels that the lines before install.
        [program, ..] if program.starts_with(".tools/") => None,
        [program, ..]
            if program.contains('/')
                && !program.starts_with("target/debug/wv")
                && *program != "./x" =>
        {
            is_missing(program, "program")
        }
        [program, ..] => {
            let known = COMMANDS.iter().find(|(name, _)| name == program);
            match known {
                None => Some(format!("{program} stands in no table of this test")),
                Some((_, Command::Words(file))) => is_missing(file, "test"),
                Some((_, Command::Foreign(why))) => {
                    assert!(!why.is_empty(), "{program} has no reason");
                    None
                }
            }
        }
        [] => None,
    }
}

/// Returns whether the workspace has a package of this name.
fn has_package(name: &str) -> bool {
    let folder = match name.strip_prefix("example-") {
        Some(example) => format!("docs/examples/{example}"),
        None => format!("crates/{}", name.trim_start_matches("warpverbs-")),
    };
    let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap_or_default();
    manifest.contains(&format!("name = \"{name}\""))
}

/// Returns what is wrong with a block.
fn faults(block: &Block) -> Vec<String> {
    let Block { language, text, .. } = block;
    let of = |commands: Vec<Vec<&str>>| -> Vec<String> {
        commands.iter().filter_map(|words| fault(words)).collect()
    };
    match language.as_str() {
        "" if block.is_figure => Vec::new(),
        "" => vec!["it has no language: sh, console, text or that of a program".to_owned()],
        "text" => Vec::new(),
        "sh" => of(commands(text)),
        "console" => {
            let typed = text.lines().filter_map(|line| line.strip_prefix("$ "));
            let typed: Vec<&str> = typed.collect();
            if typed.is_empty() {
                vec!["it shows no command".to_owned()]
            } else {
                of(typed.into_iter().flat_map(commands).collect())
            }
        }
        _ => {
            let begin = text.lines().next().unwrap_or_default();
            let is_of = |program: &&Program| {
                (program.document, program.language, program.begin)
                    == (block.document.as_str(), language.as_str(), begin)
            };
            match PROGRAMS.iter().find(is_of) {
                Some(_) => Vec::new(),
                None => vec![format!("no test runs this block of {language}: {begin}")],
            }
        }
    }
}

#[test]
fn every_block_of_code_is_run_or_checked() {
    let mut all = Vec::new();
    for path in documents() {
        let document = path.strip_prefix(root()).unwrap().to_str().unwrap();
        all.extend(blocks(document, &fs::read_to_string(&path).unwrap()).unwrap());
    }
    let place = |block: &Block| format!("{}:{}", block.document, block.line);
    let found: Vec<String> = all
        .iter()
        .flat_map(|block| {
            faults(block)
                .into_iter()
                .map(|fault| format!("{}: {fault}", place(block)))
        })
        .collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    assert!(all.len() >= 50, "only {} blocks found", all.len());
    for Program {
        document,
        begin,
        file,
        test,
        ..
    } in &PROGRAMS
    {
        let stands = |block: &&Block| block.document == *document && block.text.starts_with(begin);
        assert_eq!(all.iter().filter(stands).count(), 1, "{document}: {begin}");
        let text = fs::read_to_string(root().join(file)).unwrap();
        let is_test = ["fn ", "def "].map(|word| text.contains(&format!("{word}{test}(")));
        assert!(is_test.contains(&true), "{file} has no test {test}");
    }
}

#[test]
fn planted_blocks_without_a_runner_are_found() {
    let of = |text: &str| -> Vec<String> {
        let found = blocks("a.md", text).unwrap();
        found.iter().flat_map(faults).collect()
    };
    for good in [
        "```sh\nwv demo\nA=1 ./x test # nothing\ncargo build -p wv -p example-own-kernel\n```",
        "```console\n$ wv sim -- python -m warpverbs.doctor\nanything\n```",
        "```sh\nfor rank in 0 1; do\n    RANK=$rank torchrun own.py &\ndone\n```",
        "<!-- figures: demo -->\n```\nnumbers\n```\n<!-- end of figures -->",
    ] {
        assert_eq!(of(good), [""; 0], "{good}");
    }
    for (planted, fault) in [
        ("```\nwv demo\n```", "it has no language"),
        (
            "```go\nfunc main() {}\n```",
            "no test runs this block of go",
        ),
        (
            "```python\nimport os\n```",
            "no test runs this block of python",
        ),
        ("```sh\nnpm start\n```", "npm stands in no table"),
        ("```sh\nA=1 npm start\n```", "npm stands in no table"),
        ("```sh\nwv sim -- npm start\n```", "npm stands in no table"),
        (
            "```sh\nfor a in b; do\n    npm start\ndone\n```",
            "npm stands in no table",
        ),
        ("```sh\nmkdir a && npm start\n```", "npm stands in no table"),
        ("```sh\ncargo build -p none\n```", "no package none"),
        (
            "```sh\npython -m warpverbs.none\n```",
            "no module python/warpverbs/none.py",
        ),
        (
            "```sh\npython python/examples/none.py\n```",
            "no program python/examples/none.py",
        ),
        ("```console\nwv demo\n```", "it shows no command"),
    ] {
        let found = of(planted);
        assert!(
            matches!(&found[..], [one] if one.contains(fault)),
            "{planted}: {found:?}"
        );
    }
    let open = blocks("a.md", "```sh\nwv demo\n").unwrap_err();
    assert_eq!(open, "a.md:1: no end of this block");
}
