//! Lists of requests, as libibverbs takes them. The memory of a list is used again for the next one.

// UNSAFETY: a list whose elements point to each other moves between threads.
#![expect(unsafe_code, reason = "pointers within the list")]

use crate::sys::bindings::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
    IBV_WR_RDMA_WRITE_WITH_IMM, ibv_send_wr, ibv_sge,
};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlainVerb {
    /// Writes to the peer.
    Write,
    /// Writes to the peer, and consumes one of the peer's receive requests, which takes this word as the immediate.
    WriteImmediate(u32),
    /// Reads from the peer.
    Read,
}

/// A request of a send queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainRequest {
    /// The name by which its completion names it.
    pub(crate) id: u64,
    pub(crate) verb: PlainVerb,
    /// Address of the first byte at the peer.
    pub(crate) remote: u64,
    /// The peer's key.
    pub(crate) rkey: u32,
    /// True if the request completes also if it does not fail.
    pub(crate) is_signalled: bool,
}

/// A range of registered memory of this side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainPiece {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) lkey: u32,
}

/// Requests in order.
#[derive(Default)]
pub(crate) struct RequestList {
    /// The requests. Their pointers are set when they are posted.
    requests: Vec<ibv_send_wr>,
    /// The ranges of all requests, in order. A request that carries its bytes has one, whose address is their place in `carried`.
    pieces: Vec<ibv_sge>,
    carried: Vec<u8>,
}

// SAFETY: the pointers in the requests are read only in the call before which `linked` has set them.
unsafe impl Send for RequestList {}

impl RequestList {
    /// Removes all requests.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.pieces.clear();
        self.carried.clear();
    }

    /// Adds a request over these ranges.
    pub(crate) fn push(
        &mut self,
        request: &PlainRequest,
        pieces: impl Iterator<Item = PlainPiece>,
    ) {
        let first = self.pieces.len();
        self.pieces.extend(pieces.map(|piece| ibv_sge {
            addr: piece.address,
            length: piece.bytes,
            lkey: piece.lkey,
        }));
        let count = self.pieces.len() - first;
        self.requests.push(work_request(request, count, 0));
    }

    /// Adds a request that carries so many bytes, and lets `fill` write them.
    pub(crate) fn push_carrying(
        &mut self,
        request: &PlainRequest,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let first = self.carried.len();
        self.carried.resize(first + bytes, 0);
        fill(&mut self.carried[first..]);
        self.pieces.push(ibv_sge {
            addr: first as u64,
            length: u32::try_from(bytes).unwrap_or(u32::MAX),
            lkey: 0,
        });
        self.requests
            .push(work_request(request, 1, IBV_SEND_INLINE));
    }

    /// Sets all pointers. Returns the first request. It is valid until the list is changed or dropped.
    pub(super) fn linked(&mut self) -> *mut ibv_send_wr {
        let carried = self.carried.as_ptr().expose_provenance() as u64;
        let mut pieces = &mut self.pieces[..];
        for request in &mut self.requests {
            let count = usize::try_from(request.num_sge).unwrap_or(0);
            let (own, others) = pieces.split_at_mut(count);
            pieces = others;
            if request.send_flags & IBV_SEND_INLINE != 0 {
                // The address is still the place in `carried`: a list is posted once.
                own.iter_mut().for_each(|piece| piece.addr += carried);
            }
            request.sg_list = own.as_mut_ptr();
        }
        let mut next = std::ptr::null_mut();
        for request in self.requests.iter_mut().rev() {
            request.next = next;
            next = std::ptr::from_mut(request);
        }
        next
    }

    /// Returns the number of the request at this address. Returns None for another address.
    pub(super) fn place_of(&self, request: *const ibv_send_wr) -> Option<usize> {
        let mut all = self.requests.iter();
        all.position(|it| std::ptr::eq(it, request))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// Returns a request over so many ranges, without pointers.
fn work_request(request: &PlainRequest, pieces: usize, flags: u32) -> ibv_send_wr {
    // SAFETY: all fields are integers, pointers, or unions of both, for which zero is a value.
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    wr.wr_id = request.id;
    wr.num_sge = i32::try_from(pieces).unwrap_or(i32::MAX);
    wr.send_flags = flags;
    if request.is_signalled {
        wr.send_flags |= IBV_SEND_SIGNALED;
    }
    wr.opcode = match request.verb {
        PlainVerb::Write => IBV_WR_RDMA_WRITE,
        PlainVerb::Read => IBV_WR_RDMA_READ,
        PlainVerb::WriteImmediate(immediate) => {
            wr.__bindgen_anon_1.imm_data = immediate.to_be();
            IBV_WR_RDMA_WRITE_WITH_IMM
        }
    };
    wr.wr.rdma.remote_addr = request.remote;
    wr.wr.rdma.rkey = request.rkey;
    wr
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: u64) -> PlainRequest {
        PlainRequest {
            id,
            verb: PlainVerb::Write,
            remote: 0x1000,
            rkey: 7,
            is_signalled: id == 2,
        }
    }

    #[test]
    fn a_list_leads_from_each_request_to_the_next_and_to_its_ranges() {
        let mut list = RequestList::default();
        let piece = |address| PlainPiece {
            address,
            bytes: 8,
            lkey: 9,
        };
        for _ in 0..2 {
            list.clear();
            list.push(&request(0), [piece(1), piece(2)].into_iter());
            list.push_carrying(&request(1), 3, |to| to.copy_from_slice(b"abc"));
            list.push(&request(2), [piece(3)].into_iter());
            let mut at = list.linked();
            let mut seen = Vec::new();
            while !at.is_null() {
                let place = list.place_of(at).unwrap();
                let it = &list.requests[place];
                seen.push((it.wr_id, it.num_sge, it.send_flags));
                at = it.next;
            }
            let flags = [0, IBV_SEND_INLINE, IBV_SEND_SIGNALED];
            assert_eq!(seen, [(0, 2, flags[0]), (1, 1, flags[1]), (2, 1, flags[2])]);
            let starts = [0, 2, 3].map(|nth: usize| std::ptr::from_ref(&list.pieces[nth]));
            let of = list.requests.iter().map(|it| it.sg_list.cast_const());
            assert!(of.eq(starts));
            assert_eq!(list.pieces[2].addr, list.carried.as_ptr().addr() as u64);
            assert_eq!(list.carried, b"abc");
        }
    }
}
