//! The queues of a QP that this process posts to ([`Qp::create_on`]): their words, and how they are rung.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use mlx5_prm::doorbell::qp_record;

use super::image::null_receives;
use super::qp::{Qp, Reset, Rts, State};
use crate::sys;

const _: () = assert!(qp_record::RCV == 0 && qp_record::SND == 4);

/// How many WQEs were posted, modulo 2^16: WQEBBs of the send queue, WQEs of the receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PostedCounts {
    pub(crate) sent: u16,
    pub(crate) received: u16,
}

impl PostedCounts {
    /// As the HCA reads them.
    fn record(self) -> u64 {
        let ([a, b], [c, d]) = (self.received.to_be_bytes(), self.sent.to_be_bytes());
        u64::from_le_bytes([0, 0, a, b, 0, 0, c, d])
    }
}

impl Qp<Reset> {
    /// Sets the doorbell record and the receive queue to the values that they must have before the QP leaves Reset. Nothing was
    /// posted, and the receive WQEs take no bytes.
    pub(crate) fn clear_queues(&self) {
        let (receives, _) = self.blocks().queues();
        let bytes = null_receives(self.recv_depth());
        for (word, bytes) in receives.iter().zip(bytes.chunks_exact(8)) {
            let mut value = [0; 8];
            value.copy_from_slice(bytes);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
        self.store(PostedCounts::default());
    }
}

impl<S: State> Qp<S> {
    /// The send queue, 8 words for each WQEBB. One thread writes them.
    pub(crate) fn send_queue(&self) -> &[AtomicU64] {
        self.blocks().queues().1
    }

    /// WQEs of the receive queue.
    pub(crate) fn recv_depth(&self) -> u32 {
        self.blocks().recv_depth()
    }

    /// Release: behind the WQEs.
    fn store(&self, posted: PostedCounts) {
        if let Some(record) = self.blocks().record() {
            record.store(posted.record(), Ordering::Release);
        }
    }
}

impl Qp<Rts> {
    /// Lets the HCA run what was posted.
    pub(crate) fn ring(&self, posted: PostedCounts) {
        let blocks = self.blocks();
        self.store(posted);
        // The record before the register.
        fence(Ordering::SeqCst);
        blocks.register.ring(self.qpn(), posted.sent);
        if let Some(kick) = sys::softhca_kick() {
            kick();
        }
    }

    /// Lets the HCA use the receive WQEs that were posted. It looks at the record when a message needs one.
    pub(crate) fn post_receives(&self, posted: PostedCounts) {
        self.store(posted);
    }
}
