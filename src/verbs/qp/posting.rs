//! Posts of this process itself: WQEs of a QP that is made for that ([`Qp::create_on`]), and the probe, before kernels post.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use mlx5_prm::doorbell::qp_record;

use crate::sys;
use crate::verbs::qp::image::null_receives;
use crate::verbs::qp::probe::Probe;
use crate::verbs::qp::states::{Qp, Reset, Rts, State};
use crate::verbs::uar::DoorbellRegister;

const _: () = assert!(qp_record::RCV == 0 && qp_record::SND == 4);

/// The number of posted WQEs, modulo 2^16: in WQEBBs for the send queue, in WQEs for the receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PostedCounts {
    pub(crate) sent: u16,
    pub(crate) received: u16,
}

impl PostedCounts {
    /// Returns the doorbell record as the HCA reads it.
    fn record(self) -> u64 {
        let ([a, b], [c, d]) = (self.received.to_be_bytes(), self.sent.to_be_bytes());
        u64::from_le_bytes([0, 0, a, b, 0, 0, c, d])
    }
}

impl Qp<Reset> {
    /// Sets the doorbell record and the receive queue to their values before the QP leaves Reset: nothing was posted, and the receive WQEs
    /// take no bytes.
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
    /// Returns the send queue, 8 words for each WQEBB. Only one thread writes them.
    pub(crate) fn send_queue(&self) -> &[AtomicU64] {
        self.blocks().queues().1
    }

    /// Returns the number of WQEs of the receive queue.
    pub(crate) fn recv_depth(&self) -> u32 {
        self.blocks().recv_depth()
    }

    /// Release: orders the WQEs before the record.
    fn store(&self, posted: PostedCounts) {
        if let Some(record) = self.blocks().record() {
            record.store(posted.record(), Ordering::Release);
        }
    }
}

impl Qp<Rts> {
    /// Rings, so that the HCA runs what was posted.
    pub(crate) fn ring(&self, posted: PostedCounts) {
        let blocks = self.blocks();
        self.store(posted);
        // This orders the record before the register.
        fence(Ordering::SeqCst);
        ring(&blocks.register, self.qpn(), posted.sent);
    }

    /// Makes the posted receive WQEs known to the HCA, which looks at the record when a message needs one.
    pub(crate) fn post_receives(&self, posted: PostedCounts) {
        self.store(posted);
    }

    /// Posts the probe of the life that begins at `base`, in which nothing was posted yet, and rings for it. `device` copies bytes to
    /// device memory. After that [`QpContext::doorbells`](crate::abi::QpContext) is `doorbells`. After an error nothing was rung, and the
    /// caller may call again.
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

    /// Returns what has become of the probe, after one look. `device` copies bytes out of device memory.
    pub(crate) fn probe<E>(
        &self,
        mut device: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Probe, E> {
        let blocks = self.blocks();
        self.layout()
            .look_at_probe(|addr, out| blocks.read(addr, out, &mut device))
    }

    /// Counts the probe, which is done, as completed, so that kernels may post after it.
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
