//! Queue counters: what happened to the packets of the queue pairs of a counter set.
//!
//! Source: PRM "Queue Counters"; `struct mlx5_ifc_{alloc,query,dealloc}_q_counter_*_bits` in Linux.

use crate::layout::layout;

pub use crate::cmd::{CmdIn as AllocQCounterIn, CmdOut as DeallocQCounterOut};

layout! {
    /// Output of `ALLOC_Q_COUNTER`.
    pub struct AllocQCounterOut[0x10] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// Number of the new set; never 0, which is the device's own.
        counter_set_id / with_counter_set_id / set_counter_set_id @ 0x58 : 8,
    }
}

layout! {
    /// Input of `DEALLOC_Q_COUNTER`.
    pub struct DeallocQCounterIn[0x10] {
        /// `DEALLOC_Q_COUNTER`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Which set.
        counter_set_id / with_counter_set_id / set_counter_set_id @ 0x58 : 8,
    }
}

layout! {
    /// Input of `QUERY_Q_COUNTER`.
    pub struct QueryQCounterIn[0x20] {
        /// `QUERY_Q_COUNTER`.
        opcode / with_opcode / set_opcode @ 0x00 : 16,
        /// User context.
        uid / with_uid / set_uid @ 0x10 : 16,
        /// Opcode modifier.
        op_mod / with_op_mod / set_op_mod @ 0x30 : 16,
        /// Set the counters to 0 once they are read.
        clear / with_clear / set_clear @ 0xc0 : 1,
        /// Sum over all sets.
        aggregate / with_aggregate / set_aggregate @ 0xc1 : 1,
        /// Which set.
        counter_set_id / with_counter_set_id / set_counter_set_id @ 0xf8 : 8,
    }
}

layout! {
    /// Output of `QUERY_Q_COUNTER`. Counters stop at 2^32 - 1.
    pub struct QueryQCounterOut[0x100] {
        /// Status byte.
        status / with_status / set_status @ 0x00 : 8,
        /// Syndrome.
        syndrome / with_syndrome / set_syndrome @ 0x20 : 32,
        /// Writes received.
        rx_write_requests / with_rx_write_requests / set_rx_write_requests @ 0x80 : 32,
        /// Reads received.
        rx_read_requests / with_rx_read_requests / set_rx_read_requests @ 0xc0 : 32,
        /// Atomics received.
        rx_atomic_requests / with_rx_atomic_requests / set_rx_atomic_requests @ 0x100 : 32,
        /// Messages that found no receive WQE.
        out_of_buffer / with_out_of_buffer / set_out_of_buffer @ 0x180 : 32,
        /// Requests received out of order: packets have been lost on the way here.
        out_of_sequence / with_out_of_sequence / set_out_of_sequence @ 0x1c0 : 32,
        /// Requests received again.
        duplicate_request / with_duplicate_request / set_duplicate_request @ 0x200 : 32,
        /// Receiver-not-ready answers received.
        rnr_nak_retry_err / with_rnr_nak_retry_err / set_rnr_nak_retry_err @ 0x240 : 32,
        /// Sequence-error answers received: packets have been lost on the way to the peer.
        packet_seq_err / with_packet_seq_err / set_packet_seq_err @ 0x280 : 32,
        /// Answers that implied a loss without being a sequence error.
        implied_nak_seq_err / with_implied_nak_seq_err / set_implied_nak_seq_err @ 0x2c0 : 32,
        /// Times that no answer came in time.
        local_ack_timeout_err / with_local_ack_timeout_err / set_local_ack_timeout_err @ 0x300 : 32,
        /// Work given up because the receiver was never ready.
        req_rnr_retries_exceeded / with_req_rnr_retries_exceeded / set_req_rnr_retries_exceeded @ 0x380 : 32,
        /// Work that completed as flushed, of send queues.
        req_cqe_flush_error / with_req_cqe_flush_error / set_req_cqe_flush_error @ 0x600 : 32,
        /// Work that completed as flushed, of receive queues.
        resp_cqe_flush_error / with_resp_cqe_flush_error / set_resp_cqe_flush_error @ 0x5e0 : 32,
        /// Work that completed in error, of send queues.
        req_cqe_error / with_req_cqe_error / set_req_cqe_error @ 0x4a0 : 32,
        /// Work that completed in error, of receive queues.
        resp_cqe_error / with_resp_cqe_error / set_resp_cqe_error @ 0x480 : 32,
        /// Requests refused by the peer for lack of rights.
        req_remote_access_errors / with_req_remote_access_errors / set_req_remote_access_errors @ 0x540 : 32,
        /// Requests of the peer refused for lack of rights.
        resp_remote_access_errors / with_resp_remote_access_errors / set_resp_remote_access_errors @ 0x560 : 32,
        /// Work given up because no answer ever came.
        req_transport_retries_exceeded / with_req_transport_retries_exceeded / set_req_transport_retries_exceeded @ 0x5a0 : 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::Opcode;

    #[test]
    fn the_commands_of_a_counter_set_have_the_literal_bytes_of_the_manual() {
        let query = QueryQCounterIn::default()
            .with_opcode(u32::from(Opcode::QUERY_Q_COUNTER.0))
            .with_clear(1)
            .with_counter_set_id(7);
        let b = query.as_bytes();
        assert_eq!((b.len(), &b[..2]), (32, &[0x07, 0x73][..]));
        assert_eq!((b[0x18], b[0x1f]), (0x80, 7));
        let dealloc = DeallocQCounterIn::default().with_counter_set_id(7);
        assert_eq!(dealloc.as_bytes()[8..12], [0, 0, 0, 7]);
        let made = AllocQCounterOut::default().with_counter_set_id(9);
        assert_eq!(made.as_bytes()[0xb], 9);
    }

    #[test]
    fn counters_lie_where_the_manual_has_them() {
        let mut bytes = [0; QueryQCounterOut::BYTES];
        for (at, n) in [(0x38, 1u8), (0x50, 2), (0x60, 3), (0x48, 4), (0xb4, 5)] {
            bytes[at + 3] = n;
        }
        let out = QueryQCounterOut::from_bytes(&bytes).unwrap();
        assert_eq!(out.out_of_sequence(), 1);
        assert_eq!(out.packet_seq_err(), 2);
        assert_eq!(out.local_ack_timeout_err(), 3);
        assert_eq!(out.rnr_nak_retry_err(), 4);
        assert_eq!(out.req_transport_retries_exceeded(), 5);
    }
}
