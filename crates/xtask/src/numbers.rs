//! Parser of numbers that follow `./x`.

use crate::failure::{Failure, Result};
use crate::number::{spelling, whole};

/// Returns the number in `word`, which must be above 0. `name` names it in an error.
pub(crate) fn above_0(name: &str, word: &str) -> Result<u32> {
    let number = whole(word).and_then(|number| u32::try_from(number).ok());
    number.filter(|number| *number != 0).ok_or_else(|| {
        let how = spelling(word);
        let told =
            format!("{name} is '{word}'; it must be a number above 0, decimal or with 0x{how}");
        Failure::new(2, told)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_above_0_is_read_or_refused_by_name() {
        assert_eq!(above_0("TIMES", "0x10").unwrap(), 16);
        for wrong in ["0", "04", "+4", "x", "", "4294967296"] {
            let told = above_0("TIMES", wrong).unwrap_err().to_string();
            assert!(told.starts_with(&format!("TIMES is '{wrong}'; ")), "{told}");
        }
    }
}
