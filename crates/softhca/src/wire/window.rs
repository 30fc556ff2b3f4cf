//! Limits how many packets may be under way to one destination HCA, over all QPs.
//!
//! A destination has one socket buffer, and a kernel that drops packets which do not fit. The window starts at its upper bound: a share of
//! such a buffer, on the assumption that the peer's buffer is as large as this HCA's own. The window halves when packets are lost, and
//! grows by one for each window's worth of acknowledges (as TCP's window does). Losses that belong to one event halve the window once.

/// Most packets under way to one destination, if the size of its buffer is not known.
pub(crate) const USUAL_LIMIT: u32 = 64;
/// Upper bound of the limit for large buffers: more does not make it faster, and the bytes under way should fit into the caches.
pub(crate) const LARGEST_LIMIT: u32 = 128;
/// Number of senders that share a buffer, for the calculation of the limit.
const SENDERS: usize = 8;
/// Number of bytes of a socket buffer that a packet of the largest size takes.
const PACKET_BYTES: usize = 5000;
/// The smallest window. Seven senders with it fit into the socket buffer of a stock kernel (about 50 packets).
const MIN_WINDOW: u32 = 4;

/// The congestion window of one destination, in packets.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    limit: u32,
    size: u32,
    in_flight: u32,
    /// Number of acknowledges since the window last grew.
    credit: u32,
    /// Number of acknowledges that must come before a loss counts as new.
    grace: u32,
}

impl Window {
    /// Returns a window of at most `limit` packets.
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit,
            size: limit,
            in_flight: 0,
            credit: 0,
            grace: 0,
        }
    }

    /// Returns the number of packets that may be sent now.
    pub(crate) fn allowance(&self) -> u32 {
        self.size.saturating_sub(self.in_flight)
    }

    /// Notes that a QP's packets in flight changed from `before` to `after`. Returns true if the window has more room now.
    pub(crate) fn account(&mut self, before: u32, after: u32) -> bool {
        self.in_flight = (self.in_flight + after).saturating_sub(before);
        after < before
    }

    /// Notes that `packets` packets were acknowledged.
    pub(crate) fn acked(&mut self, packets: u32) {
        self.grace = self.grace.saturating_sub(packets);
        self.credit += packets;
        if self.credit >= self.size {
            self.credit = 0;
            self.size = (self.size + 1).min(self.limit);
        }
    }

    /// Notes that packets were lost.
    pub(crate) fn lost(&mut self) {
        if self.grace == 0 {
            self.grace = self.size;
            self.credit = 0;
            self.size = (self.size / 2).max(MIN_WINDOW);
        }
    }
}

/// Returns the upper bound of windows if sockets have receive buffers of `bytes`.
pub(crate) fn limit_for(bytes: usize) -> u32 {
    let packets = u32::try_from(bytes / SENDERS / PACKET_BYTES).unwrap_or(LARGEST_LIMIT);
    packets.clamp(USUAL_LIMIT, LARGEST_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_losses_halves_the_window_once() {
        let mut window = Window::new(USUAL_LIMIT);
        (0..10).for_each(|_| window.lost());
        assert_eq!(window.size, 32);
        window.acked(63);
        window.lost();
        assert_eq!(window.size, 33);
        window.acked(1);
        window.lost();
        assert_eq!(window.size, 16);
    }

    #[test]
    fn the_window_stays_between_its_bounds() {
        let mut window = Window::new(USUAL_LIMIT);
        for _ in 0..10 {
            window.lost();
            window.acked(64);
        }
        assert_eq!(window.size, MIN_WINDOW + 1);
        (0..10_000).for_each(|_| window.acked(1));
        assert_eq!(window.size, USUAL_LIMIT);
    }

    #[test]
    fn the_bound_is_a_share_of_the_buffer_between_two_limits() {
        assert_eq!(limit_for(425_984), 64);
        assert_eq!(limit_for(4 << 20), 104);
        assert_eq!(limit_for(16 << 20), 128);
    }

    #[test]
    fn room_is_what_is_not_in_flight() {
        let mut window = Window::new(USUAL_LIMIT);
        assert!(!window.account(0, 60));
        assert_eq!(window.allowance(), 4);
        window.lost();
        assert_eq!(window.allowance(), 0);
        assert!(window.account(60, 30));
        assert_eq!(window.allowance(), 2);
    }
}
