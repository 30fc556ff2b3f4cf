//! Text of other programs on its way to terminals and logs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A text that another program has written. It is displayed as by [`printable`]. Its bytes can be passed on, and not be used otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Foreign(String);

impl<T: Into<String>> From<T> for Foreign {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

/// The most characters that are shown.
const MOST: usize = 1000;

/// Returns a text of another program as one line that changes no terminal and forges no line of a log. Control characters are escaped, and
/// a long text is cut.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut line = String::new();
    for (nth, letter) in text.chars().enumerate() {
        if nth == MOST {
            line.push_str("..");
            break;
        }
        if is_plain(letter) {
            line.push(letter)
        } else {
            line.extend(letter.escape_default())
        }
    }
    line
}

/// Returns whether `letter` is harmless: it is no control character (C0, DEL, C1), ends no line, and does not turn the direction of the
/// text.
#[must_use]
pub fn is_plain(letter: char) -> bool {
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

    #[test]
    fn a_foreign_text_shows_no_control_character_and_goes_on_unchanged() {
        const TEXT: &str = "a\nb\u{1b}[2J\u{202e}\u{85}";
        let text = Foreign::from(TEXT);
        assert_eq!(text.to_string(), "a\\nb\\u{1b}[2J\\u{202e}\\u{85}");
        assert!(format!("{text:?}").chars().all(is_plain));
        let sent = serde_json::to_string(&text).unwrap();
        assert_eq!(serde_json::from_str::<String>(&sent).unwrap(), TEXT);
        assert_eq!(serde_json::from_str::<Foreign>(&sent).unwrap(), text);
    }
}
