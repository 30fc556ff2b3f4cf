//! A lane, as its worker has it.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::route::crossing::Crossing;
use crate::engine::route::link::Link;
use crate::engine::route::share::{self, Tempo};
use crate::provider::{Completion, Lane};

/// One life of a lane.
#[derive(Debug)]
pub(in crate::engine) struct Held<L> {
    pub(super) link: Arc<Link>,
    /// The number of the lane in its link.
    pub(super) number: usize,
    pub(super) crossing: Crossing,
    pub(super) life: u32,
    pub(super) lane: L,
    /// True if the lane takes no more slices.
    pub(super) has_failed: bool,
    /// True if the lane has failed by a WQE that was itself wrong.
    pub(super) is_refused: bool,
    tempo: Tempo,
    /// True if other lanes of the link are to take slices first.
    pub(super) is_ahead: bool,
}

impl<L: Lane> Held<L> {
    /// Takes the completion of a receive WQE, and counts the WRITE that consumed it.
    ///
    /// A flushed receive WQE shows that the QP is in error, but not why. This end learns the cause from its sends, or from the other end. A
    /// peer whose request was refused must hear that first.
    pub(super) fn receive(&mut self, completion: &Completion, immediate: Option<u32>) {
        self.lane.receive(completion);
        if let (None, Some(immediate)) = (completion.cause, immediate) {
            self.link.count(immediate);
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

    /// Takes no more slices by the lane, since the HCA has failed its QP or its copies have failed.
    pub(in crate::engine) fn fail(&mut self) {
        if !self.has_failed {
            self.has_failed = true;
            self.link.fail_lane(self.number);
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
