//! How numbers are written in settings, as in the `WARPVERBS_*` variables of the runtime.

/// Returns the whole number that `text` spells, in decimal or with `0x`. `text` has no sign, and a decimal number has no leading zero,
/// which could stand for base 8.
pub(crate) fn whole<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let is_plain = digits.chars().all(|digit| digit.is_digit(radix));
    let is_padded = radix == 10 && digits.len() > 1 && digits.starts_with('0');
    let number = u64::from_str_radix(digits, radix).ok();
    let number = number.filter(|_| is_plain && !is_padded);
    number.and_then(|number| T::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_no_sign_and_no_zeros_before_it() {
        for (text, number) in [
            ("0", Some(0_u8)),
            ("255", Some(255)),
            ("0xff", Some(255)),
            ("0x0f", Some(15)),
            ("256", None),
            ("+4", None),
            ("-4", None),
            ("04", None),
            ("00", None),
            ("0x", None),
            ("0x+4", None),
            (" 4", None),
            ("", None),
        ] {
            assert_eq!(whole(text), number, "'{text}'");
        }
    }
}
