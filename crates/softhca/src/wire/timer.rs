//! Decides when a requester sends again, and when it gives up.
//!
//! **There are two clocks, on purpose.** A NIC sends again each time its ack timeout (`4.096 us * 2^ack_timeout`) passes and gives up after
//! `retry_count` such rounds. Its peer is hardware that always answers within microseconds. Here the peer is a thread that may wait long
//! for a core, and its socket buffer drops packets when it is full. So:
//!
//! - *Sending again* follows the measured round trip: `smoothed + 4 * deviation`. The interval is at least 20 ms, a time slice of several
//!   runnable threads per core, and doubles at each timeout up to 640 ms. After a timeout one packet is sent, not the window. The answer to
//!   it says how far the peer really got. So a peer that merely sleeps finds one more packet in its buffer instead of sixteen. Losses that
//!   the peer notices are repaired at once by NAK, without this timer.
//! - *Giving up* follows the QP's attributes: after `(retry_count + 1) * max(4.096 us * 2^ack_timeout, 500 ms)` without progress.
//!   A process starved on an oversubscribed machine may need the floor of 500 ms. So the smallest bound is 0.5 s, the usual
//!   (timeout 14, retry 7) is 4 s, and (20, 7) is 34 s. `ack_timeout` 0 means, as the standard has it, that the QP never gives
//!   up.
//!
//! Time counts only when this side was awake to use it. Each timeout adds the interval for which it was set, not the time that has passed.
//! So a process that was stopped for a minute does not take all its peers for dead.

/// Shortest time after which a packet is sent again for want of an answer.
pub const MIN_RTO_NS: u64 = 20_000_000;
/// Longest time after which a packet is sent again for want of an answer.
pub const MAX_RTO_NS: u64 = 640_000_000;
/// Least time that one of `retry_count + 1` rounds stands for.
pub const ROUND_FLOOR_NS: u64 = 500_000_000;

/// Returns how long the silence of a peer is tolerated, in nanoseconds; `None` is without limit. `ack_timeout` is the 5-bit code.
pub const fn patience_ns(ack_timeout: u8, retry_count: u8) -> Option<u64> {
    match ack_timeout & 0x1f {
        0 => None,
        code => {
            let round = 4096_u64 << code;
            let round = if round < ROUND_FLOOR_NS {
                ROUND_FLOOR_NS
            } else {
                round
            };
            Some((retry_count as u64 + 1) * round)
        }
    }
}

/// The retransmission timer of one QP. All times are nanoseconds of the caller's clock.
#[derive(Clone, Debug)]
pub(crate) struct RetransmissionTimer {
    patience_ns: Option<u64>,
    deadline_ns: Option<u64>,
    /// The interval for which the timer is set next.
    rto_ns: u64,
    /// Sum of the intervals that have passed since the last progress.
    waited_ns: u64,
    round_trip: RoundTrip,
}

/// The requester's duty after a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Send the oldest packet again.
    Retry,
    /// Give up: the peer counts as dead.
    GiveUp,
}

impl RetransmissionTimer {
    pub(crate) fn new(ack_timeout: u8, retry_count: u8) -> Self {
        Self {
            patience_ns: patience_ns(ack_timeout, retry_count),
            deadline_ns: None,
            rto_ns: MIN_RTO_NS,
            waited_ns: 0,
            round_trip: RoundTrip::default(),
        }
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.deadline_ns
    }

    /// Notes that a packet was sent: the timer starts if it does not run.
    pub(crate) fn sent(&mut self, now_ns: u64) {
        if self.deadline_ns.is_none() {
            self.deadline_ns = Some(now_ns.saturating_add(self.rto_ns));
        }
    }

    /// Notes that the peer acknowledged something. `outstanding`: more is in flight.
    pub(crate) fn progressed(&mut self, now_ns: u64, outstanding: bool) {
        self.waited_ns = 0;
        self.rto_ns = self.round_trip.timeout_ns();
        self.deadline_ns = outstanding.then(|| now_ns.saturating_add(self.rto_ns));
    }

    /// Stops the timer: nothing is in flight for now.
    pub(crate) fn stop(&mut self) {
        self.deadline_ns = None;
    }

    /// Takes one measured round trip into account.
    pub(crate) fn measured(&mut self, round_trip_ns: u64) {
        self.round_trip.add(round_trip_ns);
    }

    /// Returns what to do if the timer has run out. A timeout stops the timer until the next packet is sent.
    pub(crate) fn expire(&mut self, now_ns: u64) -> Option<Expiry> {
        if self.deadline_ns? > now_ns {
            return None;
        }
        self.deadline_ns = None;
        self.waited_ns = self.waited_ns.saturating_add(self.rto_ns);
        if self
            .patience_ns
            .is_some_and(|patience| self.waited_ns >= patience)
        {
            return Some(Expiry::GiveUp);
        }
        self.rto_ns = (self.rto_ns * 2).min(MAX_RTO_NS);
        Some(Expiry::Retry)
    }
}

/// Smoothed round trip and mean deviation, as TCP keeps them (RFC 6298).
#[derive(Clone, Debug, Default)]
struct RoundTrip {
    smoothed_ns: Option<u64>,
    deviation_ns: u64,
}

impl RoundTrip {
    fn add(&mut self, sample_ns: u64) {
        let sample_ns = sample_ns.min(MAX_RTO_NS);
        match self.smoothed_ns {
            None => {
                self.smoothed_ns = Some(sample_ns);
                self.deviation_ns = sample_ns / 2;
            }
            Some(smoothed_ns) => {
                self.deviation_ns = (3 * self.deviation_ns + smoothed_ns.abs_diff(sample_ns)) / 4;
                self.smoothed_ns = Some((7 * smoothed_ns + sample_ns) / 8);
            }
        }
    }

    fn timeout_ns(&self) -> u64 {
        let measured = self
            .smoothed_ns
            .map_or(0, |smoothed_ns| smoothed_ns + 4 * self.deviation_ns);
        measured.clamp(MIN_RTO_NS, MAX_RTO_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Runs the timer against a silent peer to the end. Returns the times of the retries and of giving up.
    fn silence(timer: &mut RetransmissionTimer) -> (Vec<u64>, u64) {
        let mut retries = vec![];
        timer.sent(0);
        for _ in 0..10_000 {
            let now_ns = timer.deadline_ns().expect("the timer runs");
            match timer.expire(now_ns) {
                Some(Expiry::GiveUp) => return (retries, now_ns),
                Some(Expiry::Retry) => retries.push(now_ns),
                None => panic!("expired at its own deadline"),
            }
            timer.sent(now_ns);
        }
        panic!("never gave up");
    }

    #[test]
    fn a_silent_peer_is_given_up_within_its_patience_and_one_interval() {
        for (timeout, retries) in [(1, 0), (14, 7), (18, 3), (20, 7), (24, 7)] {
            let patience = patience_ns(timeout, retries).unwrap();
            let (_, gave_up) = silence(&mut RetransmissionTimer::new(timeout, retries));
            assert!(
                gave_up >= patience && gave_up < patience + MAX_RTO_NS,
                "{timeout} {retries}: {gave_up}"
            );
        }
        assert_eq!(patience_ns(14, 7), Some(4000 * MS));
        assert_eq!(patience_ns(0, 7), None);
    }

    #[test]
    fn intervals_double_from_20_to_640_ms() {
        let (retries, _) = silence(&mut RetransmissionTimer::new(14, 7));
        let intervals: Vec<u64> = retries
            .iter()
            .scan(0, |last, at| Some((at - std::mem::replace(last, *at)) / MS))
            .collect();
        assert_eq!(intervals[..8], [20, 40, 80, 160, 320, 640, 640, 640]);
    }

    #[test]
    fn progress_resets_the_interval_and_the_patience() {
        let mut timer = RetransmissionTimer::new(14, 7);
        timer.sent(0);
        assert_eq!(timer.expire(20 * MS), Some(Expiry::Retry));
        timer.progressed(30 * MS, true);
        assert_eq!(timer.deadline_ns(), Some(50 * MS));
        assert_eq!(timer.waited_ns, 0);
        timer.progressed(31 * MS, false);
        assert_eq!(timer.deadline_ns(), None);
    }

    #[test]
    fn slow_round_trips_lengthen_the_interval() {
        let mut timer = RetransmissionTimer::new(14, 7);
        (0..100).for_each(|_| timer.measured(50 * MS));
        timer.progressed(0, true);
        let deadline = timer.deadline_ns().unwrap();
        assert!((50 * MS..60 * MS).contains(&deadline), "{deadline}");
    }

    #[test]
    fn a_long_sleep_of_our_own_counts_as_one_interval() {
        let mut timer = RetransmissionTimer::new(14, 7);
        timer.sent(0);
        assert_eq!(timer.expire(60_000 * MS), Some(Expiry::Retry));
        assert_eq!(timer.waited_ns, 20 * MS);
    }
}
