//! Syndromes of refused commands. Firmware has its own, undocumented numbers. The numbers here are those of softhca, and each has a text.

macro_rules! syndromes {
    ($($(#[$meta:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        $( #[doc = $text] pub const $name: u32 = $value; )*

        /// Returns what a syndrome means.
        #[must_use]
        pub fn text(value: u32) -> &'static str {
            match value {
                $( $name => $text, )*
                _ => "a syndrome chosen by fail_command",
            }
        }
    };
}

syndromes! {
    UNKNOWN_OPCODE = 0x5c_0001, "the device has no such command";
    UNKNOWN_OP_MOD = 0x5c_0002, "the command has no such opcode modifier";
    INPUT_TOO_SHORT = 0x5c_0003, "the input is shorter than the command needs";
    OUTPUT_TOO_SHORT = 0x5c_0004, "the output is shorter than the command needs";
    NO_SUCH_DEVICE = 0x5c_0005, "the device is gone";
    NO_SUCH_PD = 0x5c_0010, "no such protection domain in this context";
    NO_SUCH_UMEM = 0x5c_0011, "no such UMEM in this context";
    NO_SUCH_UAR = 0x5c_0012, "no such UAR page in this context";
    NO_SUCH_EQ = 0x5c_0013, "no such event queue";
    NO_SUCH_CQ = 0x5c_0014, "no such completion queue in this context";
    NO_SUCH_QP = 0x5c_0015, "no such queue pair in this context";
    NO_SUCH_MKEY = 0x5c_0016, "no such memory key in this context";
    NO_SUCH_GID = 0x5c_0017, "the RoCE address table has no such entry";
    NO_SUCH_SRQ = 0x5c_0018, "no such shared receive queue in this context";
    NO_SUCH_XRCD = 0x5c_0019, "no such XRC domain in this context";
    QUEUE_OUTSIDE_UMEM = 0x5c_0020, "the queue does not fit in its UMEM";
    QUEUE_MISALIGNED = 0x5c_0021, "the queue does not start on a 64-byte boundary";
    DBR_OUTSIDE_UMEM = 0x5c_0022, "the doorbell record does not fit in its UMEM";
    DBR_MISALIGNED = 0x5c_0023, "the doorbell record is not on an 8-byte boundary";
    CQ_TOO_LONG = 0x5c_0030, "log_cq_size is above the limit";
    CQE_SIZE = 0x5c_0031, "cqe_sz is neither 0 (64 bytes) nor 1 (128 bytes)";
    CQ_IN_USE = 0x5c_0032, "a queue pair or shared receive queue uses the completion queue";
    CQ_FIELD = 0x5c_0033, "only oi and moderation of a completion queue can be changed";
    CQ_FULL_FOR_RESIZE = 0x5c_0034, "the entries that wait, and one more, do not fit in the old or the new ring";
    QP_SERVICE = 0x5c_0040, "the transport service is none of RC, UC, UD, XRC";
    SQ_TOO_LONG = 0x5c_0041, "log_sq_size is above the limit";
    RQ_TOO_LONG = 0x5c_0042, "log_rq_size or log_rq_stride is above the limit";
    RQ_TYPE = 0x5c_0043, "rq_type is none of regular, shared, none";
    DBR_MODE = 0x5c_0044, "send_dbr_mode is neither 0 (record) nor 1 (none, rung by software), or the QP has no send queue";
    SHARED_REGISTER = 0x5c_0046, "a send queue without doorbell record needs a UAR page of its own";
    QP_STATE = 0x5c_0045, "the transition is not allowed in this state";
    MTU = 0x5c_0047, "mtu is not 1 to 5";
    REMOTE_GID = 0x5c_0048, "the remote GID is none of a software HCA: neither ::ffff:a.b.c.d, nor fe80::/64 with the EUI-64 of 02:00:a:b:c:d, nor a global address that ends with a.b.c.d";
    GID_INDEX = 0x5c_0049, "src_addr_index is no entry of the GID table: 0 to 3, 4 with an IPv6 subnet, on InfiniBand 0";
    RETRY = 0x5c_004a, "a retry count or timeout is out of range";
    ATOMIC_MODE = 0x5c_004b, "remote atomics are allowed but atomic_mode is none";
    QP_PORT = 0x5c_004c, "the device has no port of this number";
    ECE = 0x5c_0072, "options of enhanced connection establishment are given, and the device has none";
    PKEY_INDEX = 0x5c_0071, "pkey_index is no entry of the P_Key table";
    LAG_PORT = 0x5c_0070, "lag_tx_port_affinity names no port of the link aggregation group";
    LAG_HASH = 0x5c_0073, "lag_tx_port_affinity names a port, which a hash finds in this link aggregation group";
    PATH_BITS = 0x5c_0074, "mlid (the path bits) is not less than 2^LMC of the port";
    SRQ_TOO_LONG = 0x5c_004d, "the number of WQEs or their length is out of range";
    SRQ_TYPE = 0x5c_004e, "the shared receive queue is neither a linked list nor a ring of plain WQEs with their header, or has signatures";
    SRQ_LIMIT = 0x5c_004f, "the limit is not below the number of WQEs";
    MKEY_MODE = 0x5c_0050, "the access mode is neither MTT over a UMEM nor KLM nor KSM";
    MKEY_RANGE = 0x5c_0051, "the key covers more than its UMEM";
    MKEY_LENGTH = 0x5c_0076, "the key covers more bytes than log_max_mrw_sz allows";
    PD_IN_USE = 0x5c_0052, "regions, keys or queues use the protection domain";
    MKEY_SIGNATURE = 0x5c_0053, "keys with signatures or encryption do not exist";
    MKEY_BY_NAME = 0x5c_0054, "a key cannot be asked for by its index";
    MKEY_LIST_TOO_LONG = 0x5c_0055, "translations_octword_size is above the limit";
    MKEY_LIST = 0x5c_0056, "the translation list makes no sense, or is shorter than the key";
    SRQ_STATE = 0x5c_0057, "the state of the shared receive queue is not ready";
    SRQ_IN_USE = 0x5c_0058, "a queue pair uses the shared receive queue";
    XRCD_IN_USE = 0x5c_0059, "queue pairs or shared receive queues use the XRC domain";
    REMOTE_LID = 0x5c_005a, "rlid is not a unicast LID, and the path has no GRH";
    REMOTE_PORT_GID = 0x5c_005b, "rgid_rip is not fe80::/64 with the GUID of a software HCA, or not the port of rlid";
    GID_FAMILIES = 0x5c_005c, "both GIDs must be of one family; take src_addr_index 1 (link-local), 3 (IPv4) or 4 (IPv6 subnet), as the remote GID is";
    EXTERNAL_QP = 0x5c_0061, "with external execution a queue pair is RC, has a send queue, no SRQ, and completion queues of its own";
    EXTERNAL_RESIZE = 0x5c_0062, "with external execution completion queues keep their size";
    EXTERNAL_PEER = 0x5c_0063, "with external execution the peer must be an HCA of this process that has it, too";
    NO_EXECUTOR = 0x5c_0064, "with external execution a queue pair is ready to send only while an executor is attached";
    NO_MORE_OBJECTS = 0x5c_0060, "the device has no object of this kind left";
}
