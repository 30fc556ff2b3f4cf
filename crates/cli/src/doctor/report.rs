//! What the doctor has found, as text and as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use super::ask::Line;
use super::check::{Group, Look, State, Text};
use super::matrix::Matrix;
use super::store::{self, Found};
use super::texts::texts;

/// The number of columns of a line of ok checks.
const WIDTH: usize = 120;
/// The version of the JSON, which a program that reads it checks first.
const VERSION: u32 = 1;

/// All results of a doctor.
#[derive(Default)]
pub(super) struct Report {
    pub(super) groups: Vec<(Group, Vec<Line>)>,
    pub(super) store: Option<Found>,
    /// The results of the ranks of a job; None without a job.
    pub(super) ranks: Option<Matrix>,
}

impl Report {
    /// Returns whether nothing that is needed is missing. Of several NICs, GPUs or pairs one that works is enough.
    pub(super) fn is_usable(&self) -> bool {
        let is_whole = self.ranks.as_ref().is_none_or(Matrix::is_whole);
        is_whole && self.lines().iter().all(|(_, lines)| is_usable(lines))
    }

    /// Returns the results of all groups, with the store as a group.
    fn lines(&self) -> Vec<(Group, Vec<Line>)> {
        let mut all = self.groups.clone();
        let store = self.store.as_ref().map(|found| Line {
            subject: String::new(),
            id: store::TEXT.id.to_owned(),
            is_quiet: false,
            look: found.look(),
        });
        all.extend(store.map(|line| (Group::Store, vec![line])));
        all
    }

    pub(super) fn json(&self) -> Value {
        let groups = self.lines().into_iter().map(|(group, lines)| {
            let checks: Vec<Value> = lines.iter().map(check_json).collect();
            json!({ "group": group.word(), "usable": is_usable(&lines), "checks": checks })
        });
        let mut all = json!({
            "version": VERSION,
            "usable": self.is_usable(),
            "groups": groups.collect::<Vec<_>>(),
        });
        if let Some(found) = &self.store {
            all["store"] = found.json();
        }
        if let Some(ranks) = &self.ranks {
            all["ranks"] = ranks.json();
        }
        all
    }

    /// Returns the report as text. The ok checks of a subject are one paragraph, and each other check has its reason and remedy.
    /// `with_all`: pairs that nothing takes are included.
    pub(super) fn text(&self, with_all: bool) -> String {
        let mut text = String::new();
        for (group, lines) in self.lines() {
            let _ = writeln!(text, "{}", group.word());
            let mut rest = lines.as_slice();
            let mut hidden = 0;
            while let Some(first) = rest.first() {
                let same = |line: &&Line| line.subject == first.subject;
                let (own, others) = rest.split_at(rest.iter().take_while(same).count());
                rest = others;
                if first.is_quiet && !with_all {
                    hidden += 1;
                } else {
                    subject(&mut text, own)
                }
            }
            if hidden > 0 {
                let _ = writeln!(
                    text,
                    "  {hidden} pairs that auto does not take: --all shows them"
                );
            }
        }
        if let Some(ranks) = &self.ranks {
            text.push_str(&ranks.text());
        }
        let _ = if self.is_usable() {
            writeln!(text, "\nThis machine can be used.")
        } else {
            writeln!(
                text,
                "\nSomething that is needed is missing. Without hardware all runs on software HCAs: wv sim -- wv doctor, wv demo --device sim"
            )
        };
        text
    }
}

/// Returns whether at least one subject has nothing missing, and nothing is missing that belongs to no subject.
fn is_usable(lines: &[Line]) -> bool {
    let mut subjects: Vec<(&str, bool)> = Vec::new();
    for line in lines {
        let is_there = line.look.state != State::Missing;
        match subjects.iter_mut().find(|(name, _)| *name == line.subject) {
            Some((_, all)) => *all &= is_there,
            None => subjects.push((&line.subject, is_there)),
        }
    }
    let own = subjects
        .iter()
        .all(|(name, good)| !name.is_empty() || *good);
    let mut named = subjects
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .peekable();
    own && (named.peek().is_none() || named.any(|(_, good)| *good))
}

fn check_json(line: &Line) -> Value {
    let texts = texts();
    let text = texts
        .iter()
        .map(|(_, text)| text)
        .find(|text| text.id == line.id);
    let said = |of: fn(&Text) -> &'static str| text.map_or("", of);
    json!({
        "id": line.id,
        "subject": line.subject,
        "what": said(|text| text.what),
        "state": line.look.state.word(),
        "found": line.look.found,
        "why": said(|text| text.why),
        "mend": said(|text| text.mend),
    })
}

/// Adds the lines of one subject.
fn subject(text: &mut String, lines: &[Line]) {
    let name = lines[0].subject.as_str();
    let is_ok = |line: &&Line| line.look.state == State::Ok;
    let good: Vec<String> = lines
        .iter()
        .filter(is_ok)
        .map(|line| in_words(&line.id, &line.look))
        .collect();
    if !name.is_empty() {
        let _ = writeln!(text, "  {name}");
    }
    if !good.is_empty() {
        wrapped(text, "  ok             ", &good.join("; "));
    }
    let texts = texts();
    for line in lines.iter().filter(|line| !is_ok(line)) {
        let head = format!("  {:<15}", line.look.state.word());
        wrapped(text, &head, &in_words(&line.id, &line.look));
        let said = texts
            .iter()
            .map(|(_, text)| text)
            .find(|text| text.id == line.id);
        if let Some(said) = said.filter(|_| line.look.state != State::NotLookedAt) {
            wrapped(text, "                   why: ", said.why);
            wrapped(text, "                   do:  ", said.mend);
        }
    }
}

fn in_words(id: &str, look: &Look) -> String {
    format!("{id}: {}", look.found)
}

/// Adds `words` after `head`. Lines that follow are indented to the end of `head`.
fn wrapped(text: &mut String, head: &str, words: &str) {
    let mut line = head.to_owned();
    let begin = head.len();
    for word in words.split_whitespace() {
        if line.len() > begin && line.len() + 1 + word.len() > WIDTH {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(begin);
        }
        if line.len() > begin {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(subject: &str, look: Look) -> Line {
        Line {
            subject: subject.to_owned(),
            id: "nic-port".to_owned(),
            is_quiet: false,
            look,
        }
    }

    #[test]
    fn one_nic_that_lacks_nothing_is_enough() {
        let (good, bad) = (Look::ok("x"), Look::missing("x"));
        let usable = |lines: &[(&str, &Look)]| {
            let lines: Vec<Line> = lines
                .iter()
                .map(|(name, look)| line(name, (*look).clone()))
                .collect();
            is_usable(&lines)
        };
        assert!(usable(&[("a", &bad), ("b", &good), ("a", &good)]));
        assert!(!usable(&[("a", &bad), ("a", &good)]));
        assert!(!usable(&[("", &bad), ("a", &good)]), "of none of them");
        assert!(usable(&[
            ("", &Look::degraded("x")),
            ("", &Look::not_looked("x"))
        ]));
        assert!(usable(&[]));
    }

    #[test]
    fn lines_are_wrapped_below_their_begin() {
        let mut text = String::new();
        wrapped(&mut text, "  ok  ", &"word ".repeat(40));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() == 2 && lines[0].len() <= WIDTH, "{text}");
        assert!(lines[1].starts_with("      word"), "{text}");
        let mut text = String::new();
        wrapped(&mut text, "  ok  ", &"x".repeat(200));
        assert_eq!(text.lines().count(), 1, "a word is never parted");
    }
}
