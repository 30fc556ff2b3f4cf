//! Text of strangers on its way to terminals and logs.

/// Most characters that are passed on.
const MOST: usize = 1000;

/// What another program has said, as one line that changes no terminal and forges no line of a log: control characters are escaped, and
/// a long text is cut.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut line = String::new();
    for (nth, letter) in text.chars().enumerate() {
        if nth == MOST {
            line.push_str("..");
            break;
        }
        match is_plain(letter) {
            true => line.push(letter),
            false => line.extend(letter.escape_default()),
        }
    }
    line
}

/// Why the other end has ended a connection, in its words.
pub(super) fn refusal(reason: &str) -> String {
    format!("it refuses: {}", printable(reason))
}

/// Whether `letter` is no control character: none of C0, DEL and C1, and none that ends a line or turns the direction of the text.
pub(super) fn is_plain(letter: char) -> bool {
    let turns = matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let ends_line = matches!(letter, '\u{2028}' | '\u{2029}');
    !letter.is_control() && !turns && !ends_line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_of_plain_characters() {
        for (text, line) in [
            ("an engine", "an engine"),
            ("größer 引擎", "größer 引擎"),
            ("a\nERROR forged", "a\\nERROR forged"),
            ("\u{1b}[2J\u{7}\u{9b}1m", "\\u{1b}[2J\\u{7}\\u{9b}1m"),
            ("a\u{202e}b\u{2028}", "a\\u{202e}b\\u{2028}"),
            ("\0\r\t\u{7f}", "\\u{0}\\r\\t\\u{7f}"),
        ] {
            assert_eq!(printable(text), line);
            assert!(printable(text).chars().all(is_plain));
        }
        let long = printable(&"x".repeat(MOST + 1));
        assert_eq!(long.len(), MOST + 2);
        assert_eq!(printable(&"x".repeat(MOST)).len(), MOST);
    }
}
