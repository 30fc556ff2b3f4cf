//! What this process posts to a QP itself: to its queues, if it is made for that ([`Qp::create_on`]), and the probe, before kernels
//! post.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use mlx5_prm::doorbell::qp_record;

use crate::sys;
use crate::verbs::qp::image::null_receives;
use crate::verbs::qp::probe::Probe;
use crate::verbs::qp::states::{Qp, Reset, Rts, State};
use crate::verbs::uar::DoorbellRegister;

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

    /// Release: after the WQEs.
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
        ring(&blocks.register, self.qpn(), posted.sent);
    }

    /// Lets the HCA use the receive WQEs that were posted. It looks at the record when a message needs one.
    pub(crate) fn post_receives(&self, posted: PostedCounts) {
        self.store(posted);
    }

    /// Posts the probe of the life that begins at `base`, in which nothing was posted yet, and rings for it. `device` copies bytes to
    /// device memory. `doorbells` is what [`QpContext::doorbells`](crate::abi::QpContext) counts then. After an error nothing was rung: call it again.
    pub(crate) fn post_probe<E>(
        &self,
        base: u64,
        doorbells: u64,
        mut device: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let blocks = self.blocks();
        blocks.write(&self.layout().probe(base, doorbells), &mut device)?;
        match blocks.mailbox() {
            Some(mailbox) => mailbox.ring(base + 1),
            None => ring(&blocks.register, self.qpn(), 1),
        }
        Ok(())
    }

    /// Looks once what has become of the probe. `device` copies bytes out of device memory.
    pub(crate) fn probe<E>(
        &self,
        mut device: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Probe, E> {
        let blocks = self.blocks();
        self.layout()
            .look_at_probe(|addr, out| blocks.read(addr, out, &mut device))
    }

    /// Counts the probe, which is done, as completed: kernels may post behind it.
    pub(crate) fn count_probe<E>(
        &self,
        base: u64,
        mut device: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.blocks()
            .write(&self.layout().probe_done(base), &mut device)
    }
}

fn ring(register: &DoorbellRegister, qpn: u32, next_index: u16) {
    register.ring(qpn, next_index);
    if let Some(kick) = sys::softhca_kick() {
        kick();
    }
}
