//! Waits of the host go by `Looks`, which reads the clock before each look and looks once more after the deadline. Code that
//! compares a clock with a bound by itself stands in a list, with the reason why no wait ends there without such a look.

use super::Source;

/// Where waits stand.
const PLACES: [&str; 5] = [
    "src/",
    "crates/rendezvous/src/",
    "crates/capi/src/",
    "crates/python/src/",
    "crates/gpuhca/src/",
];
const OF_TESTS: [&str; 4] = ["/tests", "/scenarios/", "/sim/", "tests.rs"];

const LOCKED: &str =
    "the lock is held from the look to the clock, and what is looked at changes under it";
const RULES: &str = "a clock of the rules, read before the look that it judges; no wait ends by it";
const BUDGET: &str = "how long a thing is done in one turn; the rest is done in the next";
const NEXT: &str = "how long it is until something is due, or for how long to sleep";
const CALL: &str = "the time of one call of a store, whose caller asks once more behind it";

/// File, how many lines of it at most compare a clock, and why they may.
const ALLOWED: &[(&str, usize, &[&str])] = &[
    ("crates/python/src/log.rs", 1, &[LOCKED]),
    ("crates/rendezvous/src/etcd/client.rs", 1, &[CALL]),
    ("crates/rendezvous/src/lease.rs", 1, &[RULES]),
    ("crates/rendezvous/src/measure.rs", 1, &[BUDGET]),
    ("crates/rendezvous/src/memory.rs", 2, &[LOCKED, NEXT]),
    ("crates/rendezvous/src/patient.rs", 1, &[CALL]),
    ("src/engine/host.rs", 1, &[LOCKED]),
    ("src/engine/inner.rs", 1, &[NEXT]),
    ("src/engine/lives/life.rs", 1, &[LOCKED]),
    ("src/engine/wire/messages.rs", 1, &[NEXT]),
    ("src/engine/worker/alarms.rs", 1, &[NEXT]),
    ("src/gpu/simt/health.rs", 1, &[LOCKED]),
    ("src/membership/anew.rs", 2, &[RULES]),
    ("src/membership/connect.rs", 1, &[RULES]),
    ("src/membership/doubt.rs", 1, &[RULES]),
    ("src/membership/driver.rs", 4, &[RULES, LOCKED]),
    ("src/membership/driver/steps.rs", 1, &[BUDGET]),
    ("src/membership/group.rs", 2, &[LOCKED]),
    ("src/membership/own_row.rs", 1, &[RULES]),
    ("src/membership/see.rs", 1, &[RULES]),
    ("src/membership/shared.rs", 1, &[LOCKED]),
    ("src/membership/tidy.rs", 1, &[BUDGET]),
    ("src/membership/turns.rs", 3, &[RULES, NEXT]),
    ("src/team/change/prove.rs", 3, &[RULES, NEXT]),
    ("src/team/change/reunite.rs", 1, &[RULES]),
    ("src/team/meeting/gather.rs", 3, &[NEXT]),
    ("src/team/meeting/glance.rs", 1, &[NEXT]),
    ("src/team/meeting/living.rs", 1, &[NEXT]),
    ("src/team/meeting/tries.rs", 2, &[NEXT]),
];

/// The lines that compare a clock with a bound.
fn comparisons(text: &str) -> Vec<(usize, &str)> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let compares = |line: &str| {
        let by = |clock: &str| {
            [">", "<"]
                .iter()
                .any(|sign| line.contains(&format!("{clock} {sign}")))
        };
        by("Instant::now()")
            || by(".elapsed()")
            || line.contains("_duration_since(Instant::now())")
            || line.contains("saturating_sub(") && line.contains(".elapsed())")
    };
    let lines = code
        .lines()
        .enumerate()
        .map(|(at, line)| (at + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.starts_with("//") && compares(line))
        .collect()
}

pub(crate) fn check(source: &Source) -> Vec<String> {
    let is_there = PLACES.iter().any(|place| source.path.starts_with(place));
    if !is_there || OF_TESTS.iter().any(|part| source.path.contains(part)) {
        return Vec::new();
    }
    let found = comparisons(&source.text);
    let allowed = ALLOWED.iter().find(|(path, ..)| *path == source.path);
    let allowed = allowed.map_or(0, |(_, lines, _)| *lines);
    if found.len() <= allowed {
        return Vec::new();
    }
    let lines: Vec<String> = found
        .iter()
        .map(|(at, line)| format!("{at}: {line}"))
        .collect();
    vec![format!(
        "{}: {} lines compare a clock by themselves, and {allowed} may. Waits go by `Looks` (src/deadline.rs):\n    {}",
        source.path,
        found.len(),
        lines.join("\n    ")
    )]
}

#[test]
fn a_wait_that_compares_the_clock_by_itself_is_found() {
    let wait = "loop {\n    if there() { return true; }\n    if Instant::now() >= end { return false; }\n}\n";
    let check = |path: &str, text: &str| check(&Source::new(path, text));
    for path in ["src/team/new.rs", "crates/rendezvous/src/new.rs"] {
        assert_eq!(check(path, wait).len(), 1, "{path}");
    }
    for clock in [
        "if start.elapsed() > most {}",
        "let left = end.saturating_duration_since(Instant::now());",
        "let left = most.saturating_sub(start.elapsed());",
    ] {
        assert_eq!(check("src/moe/new.rs", clock).len(), 1, "{clock}");
        let tests = format!("#[cfg(test)]\nmod tests {{\n{clock}\n}}\n");
        for (path, text) in [
            ("src/moe/new.rs", &*format!("// {clock}")),
            ("src/moe/new.rs", &*tests),
            ("src/moe/tests.rs", clock),
            ("tests/moe/new.rs", clock),
        ] {
            assert!(check(path, text).is_empty(), "{path}: {text}");
        }
    }
    assert!(check("src/moe/new.rs", "for left in Looks::within(most) {}").is_empty());
}
