//! The send queue of a QP that this process posts to ([`Qp::create_on`]): its words, and how it is rung.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use mlx5_prm::doorbell::qp_record;

use super::qp::{Qp, Reset, Rts, State};
use crate::sys;

const _: () = assert!(qp_record::RCV == 0 && qp_record::SND == 4);

impl Qp<Reset> {
    /// Brings the doorbell record to what it must be before the QP leaves Reset: nothing was posted.
    pub(crate) fn clear_record(&self) {
        if let Some(record) = self.blocks().record() {
            record.store(0, Ordering::Release);
        }
    }
}

impl<S: State> Qp<S> {
    /// The send queue, 8 words for each WQEBB. One thread writes them.
    pub(crate) fn send_queue(&self) -> &[AtomicU64] {
        self.blocks().send_queue()
    }
}

impl Qp<Rts> {
    /// Lets the HCA run what was written up to WQEBB `next`.
    pub(crate) fn ring(&self, next: u16) {
        let blocks = self.blocks();
        let [high, low] = next.to_be_bytes();
        if let Some(record) = blocks.record() {
            // Release: behind the WQEs. There is no receive queue, whose counter is the other half.
            record.store(
                u64::from_le_bytes([0, 0, 0, 0, 0, 0, high, low]),
                Ordering::Release,
            );
        }
        // The record before the register.
        fence(Ordering::SeqCst);
        blocks.register.ring(self.qpn(), next);
        if let Some(kick) = sys::softhca_kick() {
            kick();
        }
    }
}
