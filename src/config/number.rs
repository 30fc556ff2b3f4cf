//! How whole numbers are written in variables and options. `./x` includes this file to read its own options.

/// Returns the whole number that `text` is, decimal or with `0x`. It has no sign. A decimal number begins with no zero, which could stand
/// for base 8.
#[must_use]
pub fn whole(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let is_plain = digits.chars().all(|digit| digit.is_digit(radix));
    let is_padded = radix == 10 && digits.len() > 1 && digits.starts_with('0');
    let number = u64::from_str_radix(digits, radix).ok();
    number.filter(|_| is_plain && !is_padded)
}

/// Returns what an error adds about `text` if only a sign, or zeros before it, keep it from being a whole number.
pub(crate) fn spelling(text: &str) -> &'static str {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let bare = unsigned.trim_start_matches('0');
    let is_number = whole(bare).is_some() || (bare.is_empty() && !unsigned.is_empty());
    if is_number && whole(text).is_none() {
        ", without a sign and without zeros before it"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_no_sign_and_no_zeros_before_it() {
        for (text, number) in [
            ("0", Some(0)),
            ("10", Some(10)),
            ("0x0f", Some(15)),
            ("0xF", Some(15)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("+4", None),
            ("-4", None),
            ("04", None),
            ("00", None),
            ("0x", None),
            ("0X4", None),
            ("0x+4", None),
            (" 4", None),
            ("4 ", None),
            ("4_0", None),
            ("", None),
        ] {
            assert_eq!(whole(text), number, "'{text}'");
        }
    }

    #[test]
    fn the_spelling_is_named_where_it_alone_is_wrong() {
        for text in ["+4", "04", "00", "+04", "+0"] {
            assert!(spelling(text).contains("sign"), "{text}");
        }
        for text in [
            "-4",
            "4",
            "0",
            "0x4",
            "",
            "+",
            "x",
            "4.5",
            "18446744073709551616",
        ] {
            assert_eq!(spelling(text), "", "{text}");
        }
    }
}
