//! How many packets may be under way to one destination HCA, over all QPs.
//!
//! A destination has one socket buffer, and a kernel that drops what does not fit. The window starts at its upper bound,
//! halves when packets are lost, and grows by one for each window's worth of acknowledges (as TCP's does). Losses
//! that belong to one event halve it once.

/// Packets under way to one destination, at most.
const MAX_WINDOW: u32 = 64;
/// The window never falls below this: seven such senders fit into the socket buffer of a stock kernel (about 50 packets).
const MIN_WINDOW: u32 = 4;

/// The congestion window of one destination, in packets.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    size: u32,
    in_flight: u32,
    /// Acknowledges since the window last grew.
    credit: u32,
    /// Acknowledges that must come before a loss counts as new.
    grace: u32,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self {
            size: MAX_WINDOW,
            in_flight: 0,
            credit: 0,
            grace: 0,
        }
    }

    /// Packets that may be sent now.
    pub(crate) fn allowance(&self) -> u32 {
        self.size.saturating_sub(self.in_flight)
    }

    /// A QP's packets in flight changed from `before` to `after`; true if there is more room now.
    pub(crate) fn account(&mut self, before: u32, after: u32) -> bool {
        self.in_flight = (self.in_flight + after).saturating_sub(before);
        after < before
    }

    /// `packets` were acknowledged.
    pub(crate) fn acked(&mut self, packets: u32) {
        self.grace = self.grace.saturating_sub(packets);
        self.credit += packets;
        if self.credit >= self.size {
            self.credit = 0;
            self.size = (self.size + 1).min(MAX_WINDOW);
        }
    }

    /// Packets were lost.
    pub(crate) fn lost(&mut self) {
        if self.grace == 0 {
            self.grace = self.size;
            self.credit = 0;
            self.size = (self.size / 2).max(MIN_WINDOW);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_losses_halves_the_window_once() {
        let mut window = Window::new();
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
        let mut window = Window::new();
        for _ in 0..10 {
            window.lost();
            window.acked(64);
        }
        assert_eq!(window.size, MIN_WINDOW + 1);
        (0..10_000).for_each(|_| window.acked(1));
        assert_eq!(window.size, MAX_WINDOW);
    }

    #[test]
    fn room_is_what_is_not_in_flight() {
        let mut window = Window::new();
        assert!(!window.account(0, 60));
        assert_eq!(window.allowance(), 4);
        window.lost();
        assert_eq!(window.allowance(), 0);
        assert!(window.account(60, 30));
        assert_eq!(window.allowance(), 2);
    }
}
