//! P6: which of the generations of one slot that ask at once a rank connects with, and which of them ends.
//!
//! A launcher may start two processes for the place of one dead rank. Each draws a generation, and both ask. The QPs of a rank to a
//! slot are for one generation, and a generation with which they were connected never gets them back from a later one. So every
//! rank keeps to the generation with which it is connected, and all others take the earliest. A generation that finds a rank
//! connected with a later one cannot come in any more, and ends.

/// What a rank knows of the generations of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfSlot {
    /// The one that the open proposal takes in.
    pub proposed: Option<u32>,
    /// The one with which this rank says that it is connected.
    pub connected: Option<u32>,
    /// The newest one with which this rank's QPs were ever connected; 0: none. Earlier ones are over for this rank.
    pub newest: u32,
}

/// Returns the generation with which a rank connects, of those that ask: `asks` in ascending order, all of which hold their leases and
/// of which none was seen to end. The others wait.
#[must_use]
pub fn successor(asks: &[u32], of: OfSlot) -> Option<u32> {
    let asking = |generation: &u32| asks.contains(generation);
    // No rank takes its QPs from a generation that a view may have at the next moment.
    if of.proposed.is_some() {
        return of.proposed.filter(asking);
    }
    let kept = of.connected.filter(asking);
    kept.or_else(|| asks.iter().copied().find(|asks| *asks >= of.newest))
}

/// Returns whether a newcomer cannot come in any more: a rank that holds its lease says that it is connected with generation `theirs` of
/// the newcomer's slot.
#[must_use]
pub fn is_overtaken(generation: u32, theirs: Option<u32>) -> bool {
    theirs.is_some_and(|theirs| theirs > generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_keeps_the_connected_generation_else_it_takes_the_earliest() {
        let of = |proposed, connected, newest| OfSlot {
            proposed,
            connected,
            newest,
        };
        assert_eq!(successor(&[], of(None, None, 0)), None);
        assert_eq!(successor(&[2, 3], of(None, None, 1)), Some(2));
        assert_eq!(successor(&[2, 3], of(None, Some(2), 2)), Some(2));
        assert_eq!(successor(&[2, 3], of(None, Some(3), 3)), Some(3));
        // The lease of the one that it was connected with is gone.
        assert_eq!(successor(&[3], of(None, Some(2), 2)), Some(3));
        assert_eq!(successor(&[2], of(None, Some(3), 3)), None);
        // A proposal holds the QPs until it is over.
        assert_eq!(successor(&[2, 3], of(Some(3), Some(2), 2)), Some(3));
        assert_eq!(successor(&[3], of(Some(2), Some(2), 2)), None);
        assert!(is_overtaken(2, Some(3)));
        assert!(!is_overtaken(2, Some(2)) && !is_overtaken(2, Some(1)));
        assert!(!is_overtaken(2, None));
    }
}
