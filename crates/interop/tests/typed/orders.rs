//! Every order in which things may go.

/// All orders of so many things, by number.
pub(crate) fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else {
        return vec![Vec::new()];
    };
    let with_last = |order: Vec<usize>| {
        (0..count).map(move |at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    };
    orders(last).into_iter().flat_map(with_last).collect()
}

/// Something that is kept until it is dropped.
pub(crate) trait Kept {}

impl<T> Kept for T {}

/// Drops parts in this order.
pub(crate) fn drop_in<const N: usize>(parts: [Box<dyn Kept + '_>; N], order: &[usize]) {
    let mut parts = parts.map(Some);
    for at in order {
        parts[*at] = None;
    }
    assert!(parts.iter().all(Option::is_none));
}
