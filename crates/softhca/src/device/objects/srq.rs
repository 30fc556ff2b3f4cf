//! A shared receive queue. The QPs attached to it, or those of its XRC domain, take its WQEs in the order of a linked list or of a ring.
//!
//! Each WQE begins with a header, which in a list names the next WQE. Software links the WQEs that it has got back after the last one, in
//! whatever order they were completed. It counts in the doorbell record how many WQEs of the list it has posted, and the device follows the
//! links. In a ring the WQEs have the header, too, and the device does not read it: WQE `i` lies at entry `i` modulo the length. Source:
//! PRM "Shared Receive Queue", "Receive Memory Pool"; `mlx5_post_srq_recv`, `mlx5_free_srq_wqe` in rdma-core;
//! `uct_rc_mlx5_iface_srq_post_recv`, `uct_rc_mlx5_iface_release_srq_seg` in UCX.

use crate::device::memory::Region;
use crate::device::objects::qp::segments;
use crate::device::objects::work::Segment;
use mlx5_prm::doorbell::qp_record;
use mlx5_prm::wqe::SrqNextSeg;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) context: u32,
    /// Protection domain of the keys in its WQEs.
    pub(crate) pdn: u32,
    pub(crate) kind: SrqKind,
    pub(crate) order: SrqOrder,
    /// Ids of the UMEMs of the WQEs and of the doorbell record.
    pub(crate) umems: [u32; 2],
    pub(crate) ring: Region,
    /// Length of a WQE in bytes.
    pub(crate) stride: u64,
    pub(crate) record: Region,
    /// Index of the next WQE to take, in a list.
    pub(crate) next: u16,
    /// Number of WQEs taken, modulo 2^16.
    pub(crate) taken: u16,
    /// Number of WQEs below which an event is due, once; 0 means no event.
    pub(crate) limit: u16,
    /// True if a link or the counter was wrong, so that no WQE can be taken any more.
    pub(crate) broken: bool,
}

/// The kind of an SRQ: it decides who takes the WQEs, and where completions go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SrqKind {
    /// The QPs that were made with the SRQ take WQEs. Completions go to the receive CQs of these QPs.
    Basic,
    /// The target QPs of an XRC domain take WQEs of the SRQ that a packet names. Completions go to the CQ of the SRQ.
    Xrc {
        xrcd: u32,
        cqn: u32,
        user_index: u32,
    },
}

/// The order of WQEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SrqOrder {
    /// The next WQE is the one that a WQE names. Completions name a WQE by its place.
    List,
    /// The next WQE is the one at the next place. Completions name a WQE by its number, modulo 2^16, as in a QP's own receive queue.
    Ring,
}

/// The reason why no WQE can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeError {
    /// No WQE is posted.
    Empty,
    /// The counter of the doorbell record is further ahead than the queue is long.
    BeyondQueue { ahead: u16 },
    /// The WQE before this one names a WQE that does not exist.
    Link { index: u16 },
    /// The counter or a link was found wrong before.
    Broken,
}

impl Srq {
    pub(crate) fn entries(&self) -> u64 {
        self.ring.bytes() / self.stride
    }

    /// Returns the XRC domain of the SRQ, if it belongs to one.
    pub(crate) fn xrcd(&self) -> Option<u32> {
        match self.kind {
            SrqKind::Basic => None,
            SrqKind::Xrc { xrcd, .. } => Some(xrcd),
        }
    }

    /// Returns the CQ of the SRQ, if it has one of its own.
    pub(crate) fn cqn(&self) -> Option<u32> {
        match self.kind {
            SrqKind::Basic => None,
            SrqKind::Xrc { cqn, .. } => Some(cqn),
        }
    }

    /// Returns the number of WQEs that are posted and not taken.
    pub(crate) fn available(&self) -> u16 {
        // The word of the record holds a 16-bit counter.
        let posted = (self.record.load_be32(qp_record::RCV) & 0xffff) as u16;
        posted.wrapping_sub(self.taken)
    }

    /// Takes the next WQE. Returns the index by which completions name it, and its segments.
    pub(crate) fn take(&mut self) -> Result<(u16, Vec<Segment>), TakeError> {
        if self.broken {
            return Err(TakeError::Broken);
        }
        let ahead = self.available();
        if ahead == 0 {
            return Err(TakeError::Empty);
        }
        let (index, place) = match self.order {
            SrqOrder::List => (self.next, u64::from(self.next)),
            // The number of entries is a power of two.
            SrqOrder::Ring => (self.taken, u64::from(self.taken) & (self.entries() - 1)),
        };
        let start = place * self.stride;
        let slot = match self.ring.part(start, self.stride) {
            Some(slot) if u64::from(ahead) <= self.entries() => slot,
            Some(_) => {
                self.broken = true;
                return Err(TakeError::BeyondQueue { ahead });
            }
            None => {
                self.broken = true;
                return Err(TakeError::Link { index });
            }
        };
        let mut wqe = vec![0; slot.length()];
        slot.read(0, &mut wqe);
        let (header, rest) = wqe.split_at(size_of::<SrqNextSeg>());
        let header: SrqNextSeg = bytemuck::pod_read_unaligned(header);
        // The link is checked when it is followed: the link of the last WQE posted need not lead anywhere.
        self.next = header.next_wqe_index.get();
        self.taken = self.taken.wrapping_add(1);
        Ok((index, segments(rest)))
    }

    /// Returns whether the event is due: the SRQ has fewer WQEs than the limit. Then it disarms the limit.
    pub(crate) fn passes_limit(&mut self) -> bool {
        let passed = self.limit != 0 && self.available() < self.limit;
        if passed {
            self.limit = 0;
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::tests_memory;

    const STRIDE: usize = 32;

    /// Returns a queue of 4 WQEs, each linked to the next. Its doorbell record lies before the WQEs.
    fn srq(memory: &mut Vec<u64>) -> Srq {
        memory.resize(1 + 4 * STRIDE / 8, 0);
        let all = tests_memory(memory);
        let srq = Srq {
            context: 0,
            pdn: 0,
            kind: SrqKind::Basic,
            umems: [0; 2],
            ring: all.part(8, 4 * STRIDE as u64).unwrap(),
            stride: STRIDE as u64,
            record: all.part(0, 8).unwrap(),
            next: 0,
            taken: 0,
            order: SrqOrder::List,
            limit: 0,
            broken: false,
        };
        for index in 0..4 {
            link(&srq, index, index + 1);
            srq.ring.write(
                usize::from(index) * STRIDE + 16,
                &(u32::from(index) + 1).to_be_bytes(),
            );
        }
        srq
    }

    fn link(srq: &Srq, index: u16, next: u16) {
        let at = usize::from(index) * STRIDE + 2;
        srq.ring.write(at, &next.to_be_bytes());
    }

    fn post(srq: &Srq, counter: u16) {
        srq.record.write(0, &u32::from(counter).to_be_bytes());
    }

    #[test]
    fn wqes_are_taken_in_the_order_of_their_links() {
        let mut memory = Vec::new();
        let mut srq = srq(&mut memory);
        assert_eq!(srq.take(), Err(TakeError::Empty));
        post(&srq, 2);
        let (index, segments) = srq.take().unwrap();
        assert_eq!((index, segments[0].bytes), (0, 1));
        assert_eq!(srq.take().unwrap().0, 1);
        assert_eq!(srq.take(), Err(TakeError::Empty));
        // WQE 1 comes back before WQE 0, and both after WQE 3.
        link(&srq, 3, 1);
        link(&srq, 1, 0);
        post(&srq, 6);
        let order: Vec<u16> = (0..4).map(|_| srq.take().unwrap().0).collect();
        assert_eq!(order, [2, 3, 1, 0]);
    }

    #[test]
    fn wqes_of_a_ring_follow_each_other_whatever_their_links_say() {
        let mut memory = Vec::new();
        let mut srq = srq(&mut memory);
        srq.order = SrqOrder::Ring;
        for index in 0..4 {
            link(&srq, index, 0xffff);
        }
        // The number wraps at 2^16, and the place at the length of the ring.
        srq.taken = 0xfffd;
        post(&srq, 1);
        let taken: Vec<_> = (0..4)
            .map(|_| {
                srq.take()
                    .map(|(index, segments)| (index, segments[0].bytes))
                    .unwrap()
            })
            .collect();
        assert_eq!(taken, [(0xfffd, 2), (0xfffe, 3), (0xffff, 4), (0, 1)]);
        assert_eq!(srq.take(), Err(TakeError::Empty));
        post(&srq, 6);
        assert_eq!(srq.take(), Err(TakeError::BeyondQueue { ahead: 5 }));
    }

    #[test]
    fn a_link_out_of_the_queue_breaks_it_when_it_is_followed() {
        let mut memory = Vec::new();
        let mut srq = srq(&mut memory);
        post(&srq, 4);
        for _ in 0..4 {
            srq.take().unwrap();
        }
        assert_eq!(srq.take(), Err(TakeError::Empty));
        post(&srq, 5);
        assert_eq!(srq.take(), Err(TakeError::Link { index: 4 }));
        assert_eq!(srq.take(), Err(TakeError::Broken));
    }

    #[test]
    fn a_counter_further_ahead_than_the_queue_is_long_is_no_counter() {
        let mut memory = Vec::new();
        let mut srq = srq(&mut memory);
        post(&srq, 5);
        assert_eq!(srq.take(), Err(TakeError::BeyondQueue { ahead: 5 }));
    }

    #[test]
    fn the_limit_is_passed_once() {
        let mut memory = Vec::new();
        let mut srq = srq(&mut memory);
        post(&srq, 4);
        srq.limit = 3;
        let passed: Vec<bool> = (0..3)
            .map(|_| {
                srq.take().unwrap();
                srq.passes_limit()
            })
            .collect();
        assert_eq!(passed, [false, true, false]);
    }
}
