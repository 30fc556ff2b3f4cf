//! Text of strangers is shown by `printable`, or is a `Foreign`, which shows itself so. Two places bring such text: fields of errors,
//! and texts in what is deserialized. Those that stand here are a program's own words, or are checked where they are read.

use super::Source;

/// Where text of other programs comes in.
const PLACES: [&str; 6] = [
    "src/engine/",
    "src/team/",
    "src/membership/",
    "src/moe/",
    "crates/rendezvous/src/",
    "crates/demo/src/record.rs",
];
const OF_TESTS: [&str; 4] = ["/tests", "/scenarios/", "/sim/", "tests.rs"];

/// Fields of errors that are shown as they are, and why they may be.
const OWN: &[(&str, &str)] = &[
    ("found", "a number"),
    (
        "key",
        "a store refuses keys that are not letters, digits, '.', '_' and '-'",
    ),
    ("limit", "words of this library"),
    ("member", "of a URL that this program was given"),
    ("name", "this program was given it"),
    ("own", "settings of this rank"),
    (
        "peer",
        "the place that this program was given, or a name that the handshake has checked",
    ),
    ("problem", "words of this library"),
    (
        "reason",
        "words of this library, in which those of a peer are a `Foreign`",
    ),
    ("run", "this program was given it"),
    ("store", "a URL that this program was given"),
    ("topic", "a key of this library"),
    ("url", "this program was given it"),
    ("value", "this program was given it"),
    ("wanted", "words of this rank"),
];
/// The same of one file.
const OWN_OF_FILE: &[(&str, &str, &str)] = &[
    (
        "crates/rendezvous/src/error.rs",
        "cause",
        "a signal of this process",
    ),
    (
        "crates/rendezvous/src/error.rs",
        "message",
        "of a library in this process",
    ),
    ("src/engine/error.rs", "device", "a device of this machine"),
    (
        "src/team/error.rs",
        "process",
        "a number of a process of this machine",
    ),
    (
        "crates/rendezvous/src/thread.rs",
        "message",
        "of a thread of this process",
    ),
    (
        "crates/rendezvous/src/thread.rs",
        "thread",
        "of a thread of this process",
    ),
    (
        "src/engine/connection/recovery.rs",
        "expected",
        "words of this library",
    ),
    ("src/moe/error.rs", "device", "a device of this process"),
    (
        "src/moe/error.rs",
        "format",
        "the format of a call or layer of this rank",
    ),
    (
        "src/moe/error.rs",
        "sharing",
        "how QPs of this rank are shared",
    ),
];

const SHOWN: &str = "what shows it does so by `printable`";
const CHECKED: &str = "it is read as something else, such as a set or a key, or what has a control character is refused";
const COMPARED: &str = "it is compared or goes back to where it came from, and is not shown";
/// Texts that are deserialized as `String`: file, field, and what keeps them from terminals.
const READ: &[(&str, &str, &str)] = &[
    (
        "crates/rendezvous/src/etcd/messages.rs",
        "cancel_reason",
        SHOWN,
    ),
    ("crates/rendezvous/src/etcd/messages.rs", "kind", COMPARED),
    ("crates/rendezvous/src/etcd/messages.rs", "message", SHOWN),
    ("crates/rendezvous/src/etcd/messages.rs", "token", COMPARED),
    ("crates/rendezvous/src/file/leases.rs", "key", CHECKED),
    ("crates/rendezvous/src/process.rs", "seen_from", COMPARED),
    ("src/engine/wire/messages.rs", "name", CHECKED),
    ("src/engine/wire/messages.rs", "wire", SHOWN),
    ("src/membership/stored/words.rs", "record", CHECKED),
    ("src/membership/stored/words.rs", "waits", SHOWN),
    ("src/membership/stored/record.rs", "members", CHECKED),
    ("src/membership/stored/record.rs", "gone", CHECKED),
    ("src/membership/stored/record.rs", "left", CHECKED),
    ("src/membership/stored/record.rs", "parted", CHECKED),
    ("src/membership/stored/record.rs", "keep", CHECKED),
    ("src/membership/stored/record.rs", "takes", CHECKED),
    ("src/membership/stored/record.rs", "leaves", CHECKED),
    ("src/membership/stored/record.rs", "changes", CHECKED),
    ("src/membership/stored/row.rs", "unheard", CHECKED),
    ("src/membership/stored/row.rs", "broken", CHECKED),
    ("src/membership/stored/row.rs", "overdue", CHECKED),
    ("src/membership/stored/row.rs", "meets", CHECKED),
    ("src/membership/stored/row.rs", "ended", CHECKED),
    ("src/membership/stored/row.rs", "connected", CHECKED),
    ("src/membership/stored/row.rs", "held", CHECKED),
    ("src/membership/stored/row.rs", "unproven", CHECKED),
    ("src/team/meeting/program.rs", "argument", SHOWN),
    ("src/team/meeting/program.rs", "arguments", SHOWN),
    ("src/team/meeting/program.rs", "first", SHOWN),
    ("src/team/meeting/program.rs", "second", SHOWN),
    ("src/team/meeting/program.rs", "calls", COMPARED),
    ("src/team/meeting/program.rs", "layer", COMPARED),
    ("src/team/meeting/program.rs", "format", SHOWN),
    ("src/team/meeting/settings.rs", "agreed", SHOWN),
    ("src/team/meeting/failed.rs", "message", SHOWN),
    ("src/team/hello.rs", "agreed", SHOWN),
    ("src/team/hello.rs", "costs", COMPARED),
    ("src/team/windows/shown.rs", "purpose", SHOWN),
    ("src/team/together.rs", "agreed", SHOWN),
];

fn is_there(path: &str) -> bool {
    PLACES.iter().any(|place| path.starts_with(place))
        && !OF_TESTS.iter().any(|part| path.contains(part))
}

fn code(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text)
}

/// The text up to the bracket that closes the one before it.
fn inside(text: &str, open: char, close: char) -> &str {
    let mut depth = 1;
    for (at, letter) in text.char_indices() {
        depth += i32::from(letter == open) - i32::from(letter == close);
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// Names of the fields of this type in a list of fields, a text in a list or a pair included.
fn texts(fields: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in fields.lines().map(str::trim) {
        if line.starts_with('/') || line.starts_with('#') {
            continue;
        }
        let mut name = None;
        // A pair of types has a comma too, and no colon.
        for part in line.split(", ") {
            let (field, of) = part.split_once(": ").unwrap_or(("", part));
            name = field
                .rsplit(' ')
                .next()
                .filter(|it| !it.is_empty())
                .or(name);
            if of.contains("String") {
                found.extend(name);
            }
        }
    }
    found
}

/// Fields that errors show as they are: of each the variant and the name.
fn shown_raw(text: &str) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    for rest in code(text).split("#[error(").skip(1) {
        let format = inside(rest, '(', ')');
        let rest = &rest[format.len()..];
        let Some((head, fields)) = rest.split_once('{') else {
            continue;
        };
        // A variant of a tuple, or none, has no field of this name.
        if head.contains('(') || head.contains(',') {
            continue;
        }
        let variant = head.trim_start_matches(")]").trim();
        for name in texts(inside(fields, '{', '}')) {
            let is_shown = [format!("{{{name}}}"), format!("{{{name}:")];
            if is_shown.iter().any(|shown| format.contains(shown)) {
                found.push((variant.to_owned(), name));
            }
        }
    }
    found
}

/// Texts of types that are deserialized, but for those that are made plain where they are read.
fn read_raw(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for rest in code(text).split("#[derive(").skip(1) {
        let derives = inside(rest, '(', ')');
        if !derives.contains("Deserialize") {
            continue;
        }
        let Some((_, fields)) = rest.split_once('{') else {
            continue;
        };
        let fields = inside(fields, '{', '}');
        let mut before = "";
        for line in fields.lines().map(str::trim) {
            if !before.contains("deserialize_with = \"") {
                found.extend(texts(line));
            }
            before = line;
        }
    }
    found
}

pub(crate) fn check(source: &Source) -> Vec<String> {
    let path = source.path.as_str();
    if !is_there(path) {
        return Vec::new();
    }
    let is_own = |name: &str| {
        OWN.iter().any(|(own, _)| *own == name)
            || OWN_OF_FILE
                .iter()
                .any(|(file, own, _)| (*file, *own) == (path, name))
    };
    let is_read = |name: &str| {
        READ.iter()
            .any(|(file, known, _)| (*file, *known) == (path, name))
    };
    let raw = shown_raw(&source.text).into_iter();
    let raw = raw.filter(|(_, name)| !is_own(name)).map(|(variant, name)| {
        format!("{path}: the error {variant} shows {name} as it is: show it by `printable`, or say in strangers.rs whose words it is")
    });
    let read = read_raw(&source.text).into_iter();
    let read = read.filter(|name| !is_read(name)).map(|name| {
        format!("{path}: the text {name} comes from another program: make it a `Foreign`, or say in strangers.rs what keeps it from terminals")
    });
    raw.chain(read).collect()
}

#[test]
fn a_text_of_a_stranger_that_is_shown_as_it_is_is_found() {
    let check = |path: &str, text: &str| check(&Source::new(path, text));
    let raw = "enum E {\n    #[error(\"it says {words}\")]\n    Said {\n        words: String,\n    },\n}\n";
    let plain = raw.replace("{words}\"", "{}\", printable(words)");
    let pair = "#[derive(Clone, Deserialize)]\nstruct Word {\n    pairs: Vec<(u32, String)>,\n}\n";
    let foreign = pair.replace("String", "Foreign");
    let made = "#[derive(Deserialize)]\nenum Word {\n    Said {\n        #[serde(deserialize_with = \"plain\")]\n        words: String,\n    },\n}\n";
    for path in ["src/engine/new.rs", "crates/rendezvous/src/etcd/new.rs"] {
        assert_eq!(check(path, raw).len(), 1, "{path}");
        assert_eq!(check(path, pair).len(), 1, "{path}");
        for good in [&*plain, &*foreign, made, &raw.replace("words", "url")] {
            assert_eq!(check(path, good), Vec::<String>::new(), "{good}");
        }
        let tests = format!("#[cfg(test)]\nmod tests {{\n{raw}{pair}}}\n");
        assert!(check(path, &tests).is_empty());
    }
    assert!(check("src/verbs/new.rs", raw).is_empty());
}

#[test]
fn what_stands_in_the_list_of_texts_that_are_read_is_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for (file, name, why) in READ {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        assert!(read_raw(&text).contains(name), "{file}: {name} ({why})");
    }
    for (file, name, why) in OWN_OF_FILE {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let is_there = shown_raw(&text).iter().any(|(_, shown)| shown == name);
        assert!(is_there, "{file}: {name} ({why})");
    }
}
