//! Commands and options of `wv` that the documents name are those of its help pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

#[path = "../../../tests/docs/links/documents.rs"]
mod documents;

/// What ends a command in a line of a shell, or of a text.
const ENDS: [&str; 9] = ["|", "&&", "||", ";", "&", "--", ">", "<", "#"];

/// Commands of `wv` by their words, each with its options; the empty one is `wv` itself.
type Pages = BTreeMap<Vec<String>, BTreeSet<String>>;

fn pages() -> Pages {
    let mut found = Pages::new();
    let mut left = vec![Vec::new()];
    while let Some(words) = left.pop() {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wv"));
        let output = command.args(&words).arg("--help").output().unwrap();
        let page = String::from_utf8(output.stdout).unwrap();
        for name in section(&page, "Commands:") {
            let name = name.split_whitespace().next().unwrap_or_default();
            if name != "help" {
                left.push([words.clone(), vec![name.to_owned()]].concat());
            }
        }
        // An option's words come before its help, which two spaces divide from them.
        let options = section(&page, "Options:")
            .into_iter()
            .filter_map(|line| line.split("  ").next())
            .flat_map(|names| names.split([' ', ',']))
            .filter(|word| word.starts_with('-'))
            .map(str::to_owned);
        found.insert(words, options.collect());
    }
    found
}

/// Returns the entries below a heading of a help page, without those lines that go on with one.
fn section<'a>(page: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = page.lines().skip_while(|line| *line != heading).skip(1);
    let lines = lines.take_while(|line| !line.ends_with(':') || line.starts_with(' '));
    let entries = lines.filter(|line| {
        let indent = line.len() - line.trim_start().len();
        indent == 2 || line.trim_start().starts_with('-')
    });
    entries.map(str::trim).collect()
}

/// Returns the code of a text: lines of blocks, and what stands between backticks.
fn code(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, part) in text.split("```").enumerate() {
        if at % 2 == 1 {
            found.extend(part.replace("\\\n", " ").lines().map(str::to_owned));
        } else {
            let spans = part.split('`').skip(1).step_by(2);
            found.extend(spans.map(|span| span.replace('\n', " ")));
        }
    }
    found
}

/// Returns the commands of `wv` in a line of code, each as the words after `wv`. `./x demo` hands its words to `wv demo`.
fn commands(line: &str) -> Vec<Vec<&str>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut found = Vec::new();
    for at in 0..words.len() {
        let is_package = at > 0 && words[at - 1] == "-p";
        let is_wv = !is_package && (words[at] == "wv" || words[at].ends_with("/wv"));
        let is_x = words[at] == "./x" && words.get(at + 1) == Some(&"demo");
        if is_wv || is_x {
            let behind = words[at + 1..].iter().copied();
            found.push(behind.take_while(|word| !ENDS.contains(word)).collect());
        }
    }
    found
}

/// Returns what `wv` does not know of a command.
fn unknown(pages: &Pages, command: &[&str]) -> Option<String> {
    let mut words = Vec::new();
    let mut rest = command.iter().copied().peekable();
    while let Some(word) = rest.peek() {
        let longer = [words.clone(), vec![(*word).to_owned()]].concat();
        if !pages.contains_key(&longer) {
            break;
        }
        words = longer;
        rest.next();
    }
    let has_commands = pages
        .keys()
        .any(|one| one.len() > words.len() && one.starts_with(&words));
    // Capitals stand for any command.
    let is_name = |word: &&str| word.chars().next().is_some_and(|c| c.is_ascii_lowercase());
    if let Some(word) = rest
        .peek()
        .copied()
        .filter(is_name)
        .filter(|_| has_commands)
    {
        return Some(format!(
            "no command {word:?} behind `wv {}`",
            words.join(" ")
        ));
    }
    // `wv p2p --json` stands for each command of `wv p2p` that has the option.
    let below = pages
        .iter()
        .filter(|(one, _)| one.starts_with(&words) && (!words.is_empty() || one.is_empty()));
    let options: BTreeSet<&str> = below
        .flat_map(|(_, options)| options.iter().map(String::as_str))
        .collect();
    let named = rest.filter_map(|word| word.trim_start_matches('[').split(['=', ']']).next());
    let mut named = named.filter(|word| word.starts_with("--"));
    let missing = named.find(|word| !options.contains(word.trim_end_matches(['.', ','])))?;
    Some(format!("`wv {}` has no option {missing}", words.join(" ")))
}

#[test]
fn commands_and_options_that_documents_name_are_in_the_help() {
    let pages = pages();
    assert!(pages.len() >= 15, "only {} help pages", pages.len());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut count = 0;
    let mut found = Vec::new();
    for document in documents::below(&root) {
        let text = fs::read_to_string(&document).unwrap();
        for line in code(&text) {
            for command in commands(&line) {
                count += 1;
                let fault = unknown(&pages, &command);
                found.extend(fault.map(|fault| format!("{}: {fault}: {line}", document.display())));
            }
        }
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    assert!(count >= 100, "only {count} commands found");
}

#[test]
fn commands_and_options_that_do_not_exist_are_found() {
    let pages = pages();
    let of = |line: &str| -> Vec<String> {
        let commands = commands(line);
        let faults = commands.iter().map(|command| unknown(&pages, command));
        faults.flatten().collect()
    };
    for good in [
        "wv",
        "wv p2p --statistics",
        "cargo test -p wv --test none",
        "wv bench COMMAND --help",
        "wv sim --ip 127.9.1.1 -- wv p2p serve /tmp --statistics # --none",
        "./x demo --kill 2@100 | grep --none",
        "target/debug/wv doctor --only=store",
    ] {
        assert_eq!(of(good), [""; 0], "{good}");
    }
    for (planted, fault) in [
        ("wv dmeo", "no command \"dmeo\" behind `wv `"),
        ("wv p2p fetch a", "no command \"fetch\" behind `wv p2p`"),
        ("wv demo --kil 2@100", "`wv demo` has no option --kil"),
        (
            "./x demo --statistics",
            "`wv demo` has no option --statistics",
        ),
        (
            "wv p2p get --json, --file=a",
            "`wv p2p get` has no option --file",
        ),
        ("wv --ranks 2", "`wv ` has no option --ranks"),
    ] {
        assert_eq!(of(planted), [fault], "{planted}");
    }
    let text = "a `wv\ndemo` wv none\n```\nwv p2p \\\nget\n```\n";
    assert_eq!(code(text), ["wv demo", "", "wv p2p  get"]);
}
