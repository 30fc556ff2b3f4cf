//! The structs of the tables. softhca and kernels lay them out alike.

/// Hands each struct of the tables to the macro that is named: documentation, `align(16)` of the entries, then `pub struct`. The fields are
/// numbers and arrays of numbers, without padding.
#[macro_export]
macro_rules! entries {
    ($($define:tt)+) => {
        $($define)+! {
            /// A QP as the kernel sees it. The kernel reads the head first, and the rest only while the head is not 0.
            align(16)
            pub struct HcaQp {
                /// `life << 8 | state`, the state as in the PRM (2 Rtr, 3 Rts, 4 SQerr, 5 SQD, 6 Err). 0: the entry holds no QP.
                pub head: u64,
                /// Address of the send ring.
                pub ring: u64,
                /// Address of the doorbell record. 0: the QP has none. With QP_NO_RECORD the record is for receives alone.
                pub record: u64,
                /// Address of the twin of the UAR page.
                pub page: u64,
                /// Address of the receive ring.
                pub receive_ring: u64,
                /// How long a peer may be silent, ns; all ones: for ever.
                pub patience_ns: u64,
                /// How long to wait for a receive WQE before each retry, ns.
                pub rnr_delay_ns: u64,
                /// WQEBBs of the send ring.
                pub depth: u32,
                /// Number of this QP.
                pub qpn: u32,
                /// Number of the peer's QP.
                pub remote_qpn: u32,
                /// Entry of the peer; all ones: none.
                pub peer: u32,
                /// Number of the HCA of this QP.
                pub hca: u32,
                /// Number of the HCA of the peer.
                pub remote_hca: u32,
                /// Protection domain.
                pub pdn: u32,
                /// Rights of peers, the kind of doorbell, and what holds the QP up: QP_*.
                pub flags: u32,
                /// Payload bytes of a packet, by which sequence numbers count.
                pub mtu: u32,
                /// First sequence number that this QP sends.
                pub send_psn: u32,
                /// First sequence number that this QP expects.
                pub receive_psn: u32,
                /// Entry of the CQ of sends.
                pub send_cq: u32,
                /// Entry of the CQ of receives.
                pub receive_cq: u32,
                /// `user_index` of CQEs.
                pub user_index: u32,
                /// Number of the first key of its HCA, without the low byte.
                pub first_key: u32,
                /// Entry of that key.
                pub keys: u32,
                /// WQEs of the receive ring; 0: the QP has none.
                pub receive_entries: u32,
                /// Bytes of a receive WQE.
                pub receive_stride: u32,
                /// How often to wait for a receive WQE of the peer; 7: without limit.
                pub rnr_retry: u32,
                /// Reserved, zero.
                pub reserved: u32,
                /// Reserved, zero.
                pub reserved2: [u64; 15],
            }
        }

        $($define)+! {
            /// A CQ as the kernel sees it.
            align(16)
            pub struct HcaCq {
                /// Life of the CQ. 0: the entry holds no CQ.
                pub head: u64,
                /// Address of the ring.
                pub ring: u64,
                /// Address of the doorbell record, which has the consumer index.
                pub record: u64,
                /// CQEs that the ring holds.
                pub entries: u32,
                /// Bytes of an entry.
                pub stride: u32,
                /// Flags: CQ_*.
                pub flags: u32,
                /// Number of this CQ.
                pub cqn: u32,
                /// Reserved, zero.
                pub reserved: [u64; 3],
            }
        }

        $($define)+! {
            /// A memory key as the kernel sees it.
            align(16)
            pub struct HcaKey {
                /// `1 << 32 | key`, the low byte of the key included. 0: the entry holds no key.
                pub head: u64,
                /// Address by which segments name the first byte of the memory.
                pub iova: u64,
                /// Length of the memory in bytes.
                pub bytes: u64,
                /// Address of the first byte of the memory.
                pub address: u64,
                /// Rights, as verbs have them.
                pub access: u32,
                /// Protection domain.
                pub pdn: u32,
                /// The only QP that may use it; 0: any.
                pub qpn: u32,
                /// Reserved, zero.
                pub reserved: [u32; 5],
            }
        }

        $($define)+! {
            /// The state of a QP that the kernel keeps. A life of the QP begins with zeros.
            align(16)
            pub struct HcaQpProgress {
                /// The life to which the other fields belong. It is written last when a life begins.
                pub life: u64,
                /// Why the QP is in error: its own syndrome, or FAILED_RESPONDER with the one that its peer got. 0: it is not in error.
                pub failed: u32,
                /// Packets sent, modulo 2^24.
                pub sent: u32,
                /// Packets received, modulo 2^24. The block of the peer writes it.
                pub received: u32,
                /// WQEBBs that doorbells allow, modulo 2^16.
                pub posted: u32,
                /// WQEBBs that were fetched, modulo 2^16.
                pub fetched: u32,
                /// WQEBBs whose WQEs are over, modulo 2^16.
                pub retired: u32,
                /// Receive WQEs taken, modulo 2^16.
                pub received_wqes: u32,
                /// Held by the block that takes a receive WQE or writes to the receive CQ.
                pub receive_lock: u32,
                /// How often the QP has waited for a receive WQE of the peer.
                pub rnr_count: u32,
                /// The last index that a doorbell has named, for a QP without doorbell record.
                pub rung: u32,
                /// Since when the peer has been silent, ns. 0: it is not silent.
                pub silent_since_ns: u64,
                /// The QP does nothing before this time, ns.
                pub not_before_ns: u64,
                /// Send WQEs begun in this life. This counter and the following ones are as in `softhca::device::Counters`.
                pub wqes: u64,
                /// Doorbells taken.
                pub doorbells: u64,
                /// CQEs written.
                pub cqes: u64,
                /// CQEs with an error that were written.
                pub error_cqes: u64,
                /// Payload bytes sent by its own WQEs.
                pub bytes_written: u64,
                /// Payload bytes that its own READs have read.
                pub bytes_read: u64,
                /// RDMA WRITEs.
                pub writes: u64,
                /// Inline RDMA WRITEs.
                pub inline_writes: u64,
                /// RDMA READs.
                pub reads: u64,
                /// Atomics that the kernel has carried out for this QP.
                pub atomics: u64,
                /// Mistakes in its doorbells and WQEs: ODD_*.
                pub odd: u64,
                /// Reserved, zero.
                pub reserved: [u64; 13],
            }
        }

        $($define)+! {
            /// The state of a CQ that the kernel keeps.
            align(16)
            pub struct HcaCqProgress {
                /// The life to which the other fields belong.
                pub life: u64,
                /// Entries written.
                pub producer: u32,
                /// Not 0 once an entry found no room: the CQ is dead.
                pub overrun: u32,
            }
        }

        $($define)+! {
            /// Words that softhca writes while the kernel runs, in the kernel's memory.
            pub struct HcaControl {
                /// Raised when entries have ended.
                pub generation: u64,
                /// Bound of the entries of the table of QPs that are in use.
                pub qps: u64,
            }
        }
    };
}
