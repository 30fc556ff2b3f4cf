//! P6: decides with which of several generations of one slot that ask a rank connects, and which of them ends.
//!
//! A launcher may start two processes for the place of one dead rank. Each draws a generation, and both ask. The QPs of a rank to a slot
//! are for one generation. When a later generation has been connected with these QPs, an earlier one never gets them back. So every rank
//! keeps to the generation with which it is connected, and all others take the earliest. A generation that finds a rank connected with a
//! later one cannot come in any more, and ends.

/// What a rank knows of the generations of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfSlot {
    /// The generation that the open proposal takes in.
    pub proposed: Option<u32>,
    /// The generation with which this rank says that it is connected.
    pub connected: Option<u32>,
    /// The newest generation with which this rank's QPs were ever connected, or 0. Earlier generations are over for this rank.
    pub newest: u32,
}

/// Returns the generation with which a rank connects. `asks`: the generations that ask, ascending. All of them hold their leases, and none
/// was seen to end. The other generations wait.
#[must_use]
pub fn successor(asks: &[u32], of: OfSlot) -> Option<u32> {
    let asking = |generation: &u32| asks.contains(generation);
    // A view may take in a proposed generation at any moment, so no rank takes its QPs from that generation.
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
        // The generation that was connected has lost its lease.
        assert_eq!(successor(&[3], of(None, Some(2), 2)), Some(3));
        assert_eq!(successor(&[2], of(None, Some(3), 3)), None);
        // A proposal keeps the QPs for its generation until the proposal is over.
        assert_eq!(successor(&[2, 3], of(Some(3), Some(2), 2)), Some(3));
        assert_eq!(successor(&[3], of(Some(2), Some(2), 2)), None);
        assert!(is_overtaken(2, Some(3)));
        assert!(!is_overtaken(2, Some(2)) && !is_overtaken(2, Some(1)));
        assert!(!is_overtaken(2, None));
    }
}
