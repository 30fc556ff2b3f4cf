//! The table of tokens that undisturbed ranks lost of undisturbed ranks, by kind of deed and by cause.

use std::fmt::Write;

use super::tokens::{Row, Tokens};

/// Returns the table, with the text that stands before and after it.
pub(super) fn of(tokens: &Tokens) -> String {
    let mut out = format!(
        "\ntokens that undisturbed ranks lost of undisturbed ranks\n{:<24} {:>6} {:>8} {:>10} {:>8} {:>8} {:>8}  causes\n",
        "last deed", "deeds", "calls", "tokens", "at once", "later", "for ms"
    );
    for (name, row) in &tokens.deeds {
        let _ = writeln!(
            out,
            "{name:<24} {:>6} {:>8} {:>10} {:>8} {:>8} {:>8}  {}",
            row.deeds,
            row.calls,
            row.tokens,
            row.lost_at_once,
            row.lost_later,
            row.longest_ms,
            causes(row)
        );
    }
    let _ = writeln!(
        out,
        "at once: in the call in which a deed happened, or the next one; {} of {} calls do not count, since the machine gave a rank no \
         time, and {} tokens lost in them",
        tokens.starved_calls, tokens.calls, tokens.starved_tokens
    );
    out
}

/// Returns the causes of a row, each with its number of tokens.
fn causes(row: &Row) -> String {
    let causes = row.causes.iter();
    let causes: Vec<String> = causes
        .map(|(cause, tokens)| format!("{cause} {tokens}"))
        .collect();
    if causes.is_empty() {
        "-".to_owned()
    } else {
        causes.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_a_line_with_what_was_lost_and_why() {
        let row = Row {
            deeds: 2,
            calls: 900,
            tokens: 14_400,
            lost_at_once: 16,
            lost_later: 32,
            longest_ms: 1500,
            causes: [("timeout".to_owned(), 40), ("epoch".to_owned(), 8)].into(),
        };
        let tokens = Tokens {
            deeds: [("late", row), ("kill", Row::default())].into(),
            calls: 1000,
            starved_calls: 100,
            starved_tokens: 7,
            wrong: Vec::new(),
        };
        let text = of(&tokens);
        let lines: Vec<&str> = text.lines().skip(3).collect();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[0]), "kill 0 0 0 0 0 0 -");
        assert_eq!(
            words(lines[1]),
            "late 2 900 14400 16 32 1500 epoch 8, timeout 40"
        );
        assert!(
            lines[2].contains("100 of 1000 calls do not count"),
            "{text}"
        );
        assert!(lines[2].ends_with("and 7 tokens lost in them"), "{text}");
    }
}
