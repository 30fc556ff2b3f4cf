//! Chooses the UAR pages to look at in a turn: each time the pages that were used lately, and the other pages by turns.
//!
//! A store to a register raises no signal; only a look finds it. With a thousand pages a look at all of them takes longer than a small WQE.
//! So a turn looks at the last [`HOT`] pages in which it found a store, and at the next [`SLICE`] of the other pages. Before the engine
//! sleeps it looks at all pages.

use crate::device::objects::uar::Uar;
use crate::device::table::Table;

/// Number of pages that each turn looks at because a doorbell was found in them lately.
const HOT: usize = 16;
/// Number of other pages that a turn looks at.
const SLICE: usize = 32;

/// The pages that a turn looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The pages used lately and a few other pages.
    Brief,
    /// All pages.
    Everywhere,
}

/// The state of the choice of pages.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Pages used lately, the latest first.
    hot: Vec<u32>,
    /// The page at which the next slice of other pages begins.
    next: usize,
    /// The pages of this turn.
    due: Vec<u32>,
}

impl Watch {
    /// Begins a turn: chooses its pages.
    pub(crate) fn choose(&mut self, uars: &Table<Uar>, look: Look) {
        self.due.clear();
        match look {
            Look::Everywhere => self.due.extend(uars.iter().map(|(page_id, _)| page_id)),
            Look::Brief => {
                self.due.extend(&self.hot);
                self.next = uars.slice(self.next, SLICE, |page_id| self.due.push(page_id));
            }
        }
    }

    /// Returns the pages of this turn. A page may be among them twice.
    pub(crate) fn due(&self) -> &[u32] {
        &self.due
    }

    /// Notes that a doorbell or an arming was found in a page.
    pub(crate) fn found(&mut self, page_id: u32) {
        if self.hot.first() == Some(&page_id) {
            return;
        }
        match self.hot.iter().position(|other| *other == page_id) {
            Some(place) => self.hot[..=place].rotate_right(1),
            None => {
                self.hot.truncate(HOT - 1);
                self.hot.insert(0, page_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_pages_are_kept_in_order() {
        let mut watch = Watch::default();
        (0..20).for_each(|page_id| watch.found(page_id));
        assert_eq!(watch.hot, (4..20).rev().collect::<Vec<u32>>());
        watch.found(10);
        watch.found(10);
        assert_eq!(watch.hot[..3], [10, 19, 18]);
        assert_eq!(watch.hot.len(), HOT);
    }
}
