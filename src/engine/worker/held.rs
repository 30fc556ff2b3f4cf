//! A lane, as its worker has it.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::route::crossing::Crossing;
use crate::engine::route::link::Link;
use crate::engine::route::share::{self, Tempo};
use crate::engine::transfers::Lost;
use crate::provider::{Cause, Completion, Lane};

/// One life of a lane.
#[derive(Debug)]
pub(in crate::engine) struct Held<L> {
    link: Arc<Link>,
    /// The number of the lane in its link.
    number: usize,
    crossing: Crossing,
    life: u32,
    lane: L,
    /// True if the lane takes no more slices.
    has_failed: bool,
    /// True if the lane has failed by a WQE that was itself wrong.
    is_refused: bool,
    tempo: Tempo,
    /// True if other lanes of the link are to take slices first.
    is_ahead: bool,
}

impl<L: Lane> Held<L> {
    /// Takes the completion of a receive WQE, and counts the WRITE that consumed it.
    ///
    /// A flushed receive WQE shows that the QP is in error, but not why. This end learns the cause from its sends, or from the other end. A
    /// peer whose request was refused must hear that first.
    pub(super) fn receive(&mut self, completion: &Completion, immediate: Option<u32>) {
        self.lane.receive(completion);
        if let (None, Some(immediate)) = (completion.cause, immediate) {
            self.link.count(immediate, 1);
        }
    }

    /// Notes that slices were posted.
    pub(super) fn posted(&mut self, now: Instant) {
        self.tempo.post(now);
        if let Some(flow) = self.link.flows().of(self.number) {
            flow.post(self.lane.in_flight(), now);
        }
    }

    /// Notes that `slices` slices have completed.
    pub(super) fn completed(&mut self, slices: u32, now: Instant) {
        let in_flight = self.lane.in_flight();
        self.tempo.complete(slices, in_flight, now);
        if let Some(flow) = self.link.flows().of(self.number) {
            flow.complete(in_flight, self.tempo.each(), now);
        }
    }

    /// Returns how many more slices the lane may take that other lanes of its link could take too. It posts chains of `chain` slices.
    pub(super) fn share(&self, chain: u32, now: Instant) -> u32 {
        let in_flight = self.lane.in_flight();
        if in_flight <= chain {
            return share::LEAST * chain - in_flight;
        }
        let (flows, lanes) = (self.link.flows(), self.link.lanes());
        let window = flows.window(lanes, self.number, chain, self.tempo.each(), now);
        window.saturating_sub(in_flight)
    }

    /// Returns whether the lane takes a slice of `ranges` local ranges now.
    pub(super) fn has_room(&self, ranges: u32) -> bool {
        !self.has_failed && !self.is_ahead && self.lane.room(ranges) > 0
    }

    /// Takes no more slices by the lane if its link is not open, or if the lane has failed at the other end. Fails the WQEs that a failed
    /// lane still has.
    pub(super) fn follow_link(&mut self, is_open: bool) {
        self.has_failed |= !is_open || !self.link.lanes().is_open(self.number);
        if self.has_failed {
            self.lane.flush(None);
        }
    }

    /// Ends the slices of a transfer slot that the lane holds. If only the HCA can end them, the QP is reset.
    pub(super) fn end_slices_of(&mut self, slot: u32) {
        if self.lane.holds(slot) && !self.lane.flush(Some(slot)) {
            self.end();
        }
    }

    /// Takes no more slices by the lane, of which a completion says that a WQE has failed.
    pub(super) fn failed_by(&mut self, cause: Cause) {
        self.is_refused |= !self.has_failed && cause.is_of_the_request();
        if cause.is_of_the_request() || cause.is_flush() {
            // The peer has answered, or this QP was put into the error state: the pair can be used again.
            self.end();
        } else if cause.may_be_a_refusal() {
            self.doubt();
        } else {
            self.fail();
        }
        if cause.errno() == Some(libc::ESRCH) {
            self.link.break_off();
        }
    }

    /// Returns how the slices of this lane are named that a completion of QP `qp` fails.
    pub(super) fn lost(&self, qp: u32) -> Lost {
        let sends = !self.lane.copies();
        Lost {
            lane: sends.then_some(self.number),
            life: self.life,
            qp: sends.then_some(qp),
            is_refused: self.is_refused,
        }
    }

    /// Returns whether the lane has failed, and has nothing under way.
    pub(super) fn is_over(&self) -> bool {
        self.has_failed && self.is_dry()
    }

    /// Returns whether the HCA has no WQE of the lane, and all WRITEs of the peer that have come are counted.
    pub(super) fn is_dry(&self) -> bool {
        self.lane.in_flight() == 0 && self.lane.receives() == 0
    }
}

impl<L> Held<L> {
    pub(in crate::engine) fn new(link: &Arc<Link>, number: usize, life: u32, lane: L) -> Self {
        Self {
            link: Arc::clone(link),
            number,
            crossing: link.lanes().crossing(number),
            life,
            lane,
            has_failed: false,
            is_refused: false,
            tempo: Tempo::default(),
            is_ahead: false,
        }
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(super) fn lane(&self) -> &L {
        &self.lane
    }

    pub(super) fn lane_mut(&mut self) -> &mut L {
        &mut self.lane
    }

    pub(super) fn crossing(&self) -> Crossing {
        self.crossing
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Lets other lanes of the link take slices first, or no longer.
    pub(super) fn set_ahead(&mut self, is_ahead: bool) {
        self.is_ahead = is_ahead;
    }

    /// Takes no more slices by the lane, since the HCA has failed its QP or its copies have failed.
    pub(in crate::engine) fn fail(&mut self) {
        if !self.has_failed {
            self.has_failed = true;
            self.link.fail_lane(self.number);
        }
    }

    /// Takes no more slices by the lane, whose QP has failed though the peer may be well.
    fn doubt(&mut self) {
        if !self.has_failed {
            self.has_failed = true;
            self.link.doubt_lane(self.number);
        }
    }

    /// Takes no more slices by the lane, whose QP is to be reset.
    pub(in crate::engine) fn end(&mut self) {
        if !self.has_failed {
            self.has_failed = true;
            self.link.end_lane(self.number);
        }
    }

    /// Drops the lane in its present state.
    pub(in crate::engine) fn leave(self) {
        if let Some(flow) = self.link.flows().of(self.number) {
            flow.end();
        }
        drop(self.lane);
        self.link.lane_is_gone(self.number);
    }
}
