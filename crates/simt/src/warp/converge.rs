//! Lanes of a warp that wait for each other after divergent code, as nvcc makes them.
//!
//! The compiler nvcc puts BSSY before a divergent branch or loop, and BSYNC where the ways join again. BSSY notes which lanes run it
//! together. BSYNC holds each of these lanes until all of them that have not exited have come. Some code is right only if a lane may pass a
//! BSYNC while other lanes of its warp still spin before it. Such code hangs on a GPU.
//!
//! Kernels mark divergent parts: `simt_diverge` before the part, `simt_reconverge` after it (`wv::platform::Divergence`). Without
//! `LaunchConfig::reconverge` both do nothing. With it:
//!
//! - A lane at the front of a part waits for every lane of its warp that may still come. The wait for such a lane ends when it
//!   comes or does something else: it is in another part, polls, waits in a barrier or meeting, or has exited. Lanes at the same
//!   place in the code then enter together. The hardware needs no such wait, since lanes that have not diverged run in step there.
//! - A lane at the end waits for those with which it entered. No lane waits for one that exits, as on the hardware.
//! - Parts nest. Only marked parts wait: the compiler may add places that no kernel has marked, and leave out some. For the
//!   posting protocol `./x sass` compares the marks with the compiler's places.

use super::op::lanes_of;

/// The lanes that have entered a part together.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    /// The lanes that have not left the part. 0: this place of the table is free.
    lanes: u32,
    /// The lanes at the end of the part.
    arrived: u32,
}

/// The parts that the lanes of one warp are in. Masks have a bit for each lane. `alive` are the lanes that have not exited, `blocked` those
/// that wait in a barrier or a meeting.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    table: Vec<Part>,
    /// The parts that each lane is in, by lane: places in the table, the innermost last.
    within: [Vec<usize>; 32],
    /// The place in the code at which each lane of `entering` waits to enter, by lane.
    sites: [usize; 32],
    entering: u32,
    /// The lanes that have polled since they last came to the front or the end of a part.
    polled: u32,
}

impl Parts {
    /// Returns the lanes that wait in front of a part.
    pub(crate) fn entering(&self) -> u32 {
        self.entering
    }

    /// Returns, for each part with waiting lanes, the lanes at its end and the lanes for which these wait.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = (u32, u32)> {
        let waited = self.table.iter().filter(|part| part.arrived != 0);
        waited.map(|part| (part.arrived, part.lanes & !part.arrived))
    }

    /// Notes that `lane` has come to the front of the part at `site`. Returns the lanes that enter now.
    pub(crate) fn comes(&mut self, lane: u32, site: usize, alive: u32, blocked: u32) -> u32 {
        self.entering |= 1 << lane;
        self.polled &= !(1 << lane);
        self.sites[lane as usize] = site;
        self.enter(self.inner(lane), alive, blocked)
    }

    /// Notes that `lane` has polled: no lane waits for it to enter. Returns the lanes that enter now.
    pub(crate) fn polls(&mut self, lane: u32, alive: u32, blocked: u32) -> u32 {
        self.polled |= 1 << lane;
        self.enter(self.inner(lane), alive, blocked)
    }

    /// Notes that `lane` is about to wait for others. Returns the lanes that enter now, since they no longer wait for it.
    pub(crate) fn waits(&mut self, lane: u32, alive: u32, blocked: u32) -> u32 {
        self.enter(self.inner(lane), alive, blocked)
    }

    /// Notes that `lane` has come to the end of the innermost part that it is in. Returns the lanes that leave the part now. Returns None
    /// if the lane is in no part.
    pub(crate) fn leaves(&mut self, lane: u32) -> Option<u32> {
        let place = self.inner(lane)?;
        self.polled &= !(1 << lane);
        self.table[place].arrived |= 1 << lane;
        Some(self.close(place))
    }

    /// Notes that `lane` has exited. Returns the lanes that need not wait any longer.
    pub(crate) fn exits(&mut self, lane: u32, alive: u32, blocked: u32) -> u32 {
        let levels = std::mem::take(&mut self.within[lane as usize]);
        let mut released = 0;
        for place in levels.iter().rev().copied() {
            self.table[place].lanes &= !(1 << lane);
            released |= self.close(place);
            released |= self.enter(Some(place), alive, blocked);
        }
        released | self.enter(None, alive, blocked)
    }

    /// Returns the innermost part that a lane is in.
    fn inner(&self, lane: u32) -> Option<usize> {
        self.within[lane as usize].last().copied()
    }

    /// Lets the lanes enter that wait inside `level`, if none is left there that may still come. Returns these lanes.
    fn enter(&mut self, level: Option<usize>, alive: u32, blocked: u32) -> u32 {
        let here = lanes_of(alive).filter(|lane| self.within[*lane].last().copied() == level);
        let here = here.fold(0, |all, lane| all | 1u32 << lane);
        let ready = here & self.entering;
        let leaving = self.leaving().fold(0, |all, (lanes, _)| all | lanes);
        if ready == 0 || here & !(ready | blocked | leaving | self.polled) != 0 {
            return 0;
        }
        self.entering &= !ready;
        let mut rest = ready;
        while rest != 0 {
            let site = self.sites[rest.trailing_zeros() as usize];
            let same = lanes_of(rest).filter(|lane| self.sites[*lane] == site);
            let lanes = same.fold(0, |all, lane| all | 1u32 << lane);
            let place = self.free_place();
            self.table[place] = Part { lanes, arrived: 0 };
            lanes_of(lanes).for_each(|lane| self.within[lane].push(place));
            rest &= !lanes;
        }
        ready
    }

    /// Lets the lanes leave the part at `place` if all have come. Returns these lanes.
    fn close(&mut self, place: usize) -> u32 {
        let Part { lanes, arrived } = self.table[place];
        if lanes & !arrived != 0 {
            return 0;
        }
        self.table[place] = Part::default();
        let left = lanes & arrived;
        lanes_of(left).for_each(|lane| {
            self.within[lane].pop();
        });
        left
    }

    fn free_place(&mut self) -> usize {
        let free = self.table.iter().position(|part| part.lanes == 0);
        free.unwrap_or_else(|| {
            self.table.push(Part::default());
            self.table.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: u32 = 0b1111;

    #[test]
    fn lanes_at_one_place_enter_together_and_leave_together() {
        let mut parts = Parts::default();
        for lane in 0..3 {
            assert_eq!(parts.comes(lane, 7, FOUR, 0), 0, "lane {lane} waits for 3");
        }
        assert_eq!(parts.comes(3, 7, FOUR, 0), FOUR);
        assert_eq!(parts.leaves(2), Some(0));
        assert_eq!(parts.leaves(0), Some(0));
        assert_eq!(parts.leaves(1), Some(0));
        assert_eq!(parts.leaving().collect::<Vec<_>>(), [(0b0111, 0b1000)]);
        assert_eq!(parts.leaves(3), Some(FOUR));
        assert_eq!(parts.leaves(3), None, "it is in no part any more");
    }

    #[test]
    fn lanes_at_two_places_do_not_wait_for_each_other_at_the_end() {
        let mut parts = Parts::default();
        for (lane, site) in [(0, 1), (1, 2), (2, 1)] {
            assert_eq!(parts.comes(lane, site, FOUR, 0), 0);
        }
        assert_eq!(parts.comes(3, 2, FOUR, 0), FOUR);
        assert_eq!(parts.leaves(0), Some(0));
        assert_eq!(parts.leaves(2), Some(0b0101));
        assert_eq!(parts.leaves(1), Some(0));
        assert_eq!(parts.leaves(3), Some(0b1010));
    }

    #[test]
    fn a_lane_that_polls_blocks_or_exits_is_not_waited_for() {
        let mut parts = Parts::default();
        assert_eq!(parts.comes(0, 1, FOUR, 0), 0);
        assert_eq!(parts.polls(1, FOUR, 0), 0);
        assert_eq!(parts.waits(2, FOUR, 0b0100), 0, "lane 3 may still come");
        assert_eq!(parts.exits(3, 0b0111, 0b0100), 0b0001);
        assert_eq!(parts.leaves(0), Some(0b0001));
    }

    #[test]
    fn an_exit_inside_a_part_lets_the_others_leave() {
        let mut parts = Parts::default();
        parts.comes(0, 1, 0b11, 0);
        assert_eq!(parts.comes(1, 1, 0b11, 0), 0b11);
        assert_eq!(parts.leaves(0), Some(0));
        assert_eq!(parts.exits(1, 0b01, 0), 0b01);
    }

    #[test]
    fn parts_nest_and_a_lane_at_the_outer_end_is_not_waited_for_inside() {
        let mut parts = Parts::default();
        parts.comes(0, 1, 0b11, 0);
        assert_eq!(parts.comes(1, 1, 0b11, 0), 0b11);
        assert_eq!(parts.comes(0, 2, 0b11, 0), 0);
        assert_eq!(parts.leaves(1), Some(0));
        assert_eq!(
            parts.waits(1, 0b11, 0),
            0b01,
            "lane 0 enters the inner part"
        );
        assert_eq!(parts.leaves(0), Some(0b01));
        assert_eq!(parts.leaves(0), Some(0b11));
    }
}
