//! Checks of a routing table on the host. Kernels check again, since a table may exist only on the device.

use crate::moe::MoeError;

/// Checks `[tokens, top_k]` expert ids: each is -1 (no choice) or an expert, and no token chooses an expert twice.
///
/// # Errors
/// The first id that is wrong, by token and value. A table that is not a whole number of rows.
pub fn check_routing(ids: &[i32], top_k: u32, experts: u32) -> Result<(), MoeError> {
    let width = top_k as usize;
    if width == 0 || !ids.len().is_multiple_of(width) {
        return Err(MoeError::Length {
            what: "the routing",
            got: ids.len(),
            want: ids.len().next_multiple_of(width.max(1)),
        });
    }
    for (token, row) in ids.chunks_exact(width).enumerate() {
        for (k, &expert) in row.iter().enumerate() {
            if expert == -1 {
                continue;
            }
            if u32::try_from(expert).map_or(true, |id| id >= experts) {
                return Err(MoeError::ExpertRange {
                    token,
                    expert,
                    last: experts.saturating_sub(1),
                });
            }
            if row[..k].contains(&expert) {
                return Err(MoeError::ExpertTwice { token, expert });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_out_of_range_or_made_twice_is_named_by_token_and_value() {
        assert!(check_routing(&[0, 3, -1, -1], 2, 4).is_ok());
        let message = |ids: &[i32]| check_routing(ids, 2, 4).unwrap_err().to_string();
        assert_eq!(
            message(&[0, 1, 4, 0]),
            "token 1 chooses expert 4; expert ids are 0 to 3, or -1 for none"
        );
        assert_eq!(
            message(&[-2, 1]),
            "token 0 chooses expert -2; expert ids are 0 to 3, or -1 for none"
        );
        assert_eq!(message(&[0, 1, 2, 2]), "token 1 chooses expert 2 twice");
        assert_eq!(
            message(&[0, 1, 2]),
            "the routing has 3 elements; its shape needs 4"
        );
    }
}
