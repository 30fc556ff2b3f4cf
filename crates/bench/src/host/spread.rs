//! How the values of several rounds spread.

/// Returns the median, the lowest and the highest value; zeros if there are no values.
pub(super) fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place).copied().unwrap_or(0.0);
    [
        at(values.len() / 2),
        at(0),
        at(values.len().saturating_sub(1)),
    ]
}
