//! Numbers that may only fall: one over its limit fails, and so does one that has become better than its limit.

use std::collections::BTreeMap;

/// A place and the number that it may have. A place without a row may have none.
pub(crate) type Limits<'a> = &'a [(&'a str, usize)];

/// What was counted at one place.
#[derive(Default)]
pub(crate) struct Count {
    pub(crate) number: usize,
    /// What a reader needs to lower it, one a line.
    pub(crate) detail: Vec<String>,
}

/// One for each place whose number is not its limit. `table` is the name of `limits`, `what` says what the number counts.
pub(crate) fn compared(
    table: &str,
    what: &str,
    limits: Limits,
    counts: &BTreeMap<String, Count>,
) -> Vec<String> {
    let limit_of = |place: &str| limits.iter().find(|(row, _)| *row == place);
    let over = counts.iter().filter_map(|(place, count)| {
        let limit = limit_of(place).map_or(0, |(_, limit)| *limit);
        let detail: String = count
            .detail
            .iter()
            .map(|line| format!("\n    {line}"))
            .collect();
        (count.number > limit).then(|| {
            format!(
                "{place}: {what}: {}, and {table} allows {limit}{detail}",
                count.number
            )
        })
    });
    let better = limits.iter().filter_map(|(place, limit)| {
        let number = counts.get(*place).map_or(0, |count| count.number);
        let words = match number {
            0 => format!("nothing is left of what {table} allows ({limit}): lower the limit to 0, so take its row out"),
            _ => {
                format!("{what}: {number}, and {table} allows {limit}: lower the limit to {number}")
            }
        };
        (number < *limit).then(|| format!("{place}: {words}"))
    });
    over.chain(better).collect()
}
