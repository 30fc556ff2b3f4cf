//! The boundary between the engine and the wire. The engine knows objects and memory; the wire knows packets.
//!
//! The engine decodes a WQE into an [`Operation`] and hands the operation to the wire, together with its own `Wqe`. The wire gives the
//! `Wqe` back at completion. The wire calls the engine through [`Device`]: it fetches the bytes of the WQE's local segments, reports
//! completions, and carries out what a remote QP asks. A loopback inside the process also uses `Operation` and `Device`: it takes the bytes
//! from one `Device` and gives them to another.
//!
//! No function here blocks. All calls come from the engine thread that owns the device.

use crate::envelope::{Destination, Envelope};
use std::net::Ipv4Addr;

/// The transport service of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection: no answers, no retries. A request that cannot be carried out is dropped.
    Uc,
    /// Unreliable datagram: single packets of at most the MTU, each with its own destination.
    Ud,
    /// The sending half of an extended reliable connection: requests name an SRQ of the peer.
    XrcInitiator,
    /// The receiving half of an extended reliable connection: has no receive queue of its own.
    XrcTarget,
}

impl Service {
    /// Returns whether requests of this service are answered, and sent again until the answer comes.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcInitiator | Self::XrcTarget)
    }

    /// Returns the service of the other end.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::XrcInitiator => Self::XrcTarget,
            Self::XrcTarget => Self::XrcInitiator,
            same => same,
        }
    }
}

/// The request of a send WQE to the remote QP, in the wire's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The QP that carries out the operation.
    pub to: Target,
    /// The kind of the operation, with the remote place.
    pub kind: OperationKind,
    /// The message length in bytes, at most 2^31; 8 or 4 for atomics.
    pub bytes: u32,
    /// The solicited event bit of the WQE.
    pub solicited: bool,
    /// The fence: the operation starts only when all READs and atomics before it on this QP have completed.
    pub fence: bool,
}

/// The target of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The peer of the connection.
    Connected,
    /// The peer of an XRC connection. The receive WQEs come from the SRQ of this number in the peer's XRC domain. The packets carry an
    /// XRCETH.
    Srq(u32),
    /// A target that each WQE names (UD). The packets carry a DETH.
    Datagram(Datagram),
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The GID of the receiving HCA. On `InfiniBand` it is `::ffff:a.b.c.d` for the HCA's IPv4 address.
    pub gid: [u8; 16],
    /// True if the receiver gets the header with the GIDs: always with `RoCE`, and on `InfiniBand` if the sender used a GRH.
    pub has_grh: bool,
    /// The number of the receiving QP in that HCA.
    pub qpn: u32,
    /// The queue key that the DETH carries.
    pub qkey: u32,
    /// The IP time to live.
    pub hop_limit: u8,
    /// The IP type of service.
    pub traffic_class: u8,
    /// The path bits of the LID that the datagram leaves from.
    pub path_bits: u8,
}

/// The kinds of operation. A UC QP has writes and SENDs only, and a UD QP has SENDs only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// An RDMA WRITE to `va`. With `immediate` it consumes a receive WQE of the remote QP.
    Write {
        /// The remote virtual address.
        va: u64,
        /// The remote key.
        rkey: u32,
        /// The immediate data.
        immediate: Option<u32>,
    },
    /// An RDMA READ from `va` into the local segments.
    Read {
        /// The remote virtual address.
        va: u64,
        /// The remote key.
        rkey: u32,
    },
    /// An atomic. The original value goes to the local segment as [`Device::scatter`] describes.
    Atomic(AtomicEth),
    /// A SEND: the bytes go to a receive WQE of the peer.
    Send {
        /// The value that comes with the message.
        with: SendWith,
    },
}

/// The value that a SEND carries besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendWith {
    /// No value: the SEND carries its bytes alone.
    Nothing,
    /// Immediate data.
    Immediate(u32),
    /// A remote key that the receiver shall invalidate.
    Invalidate(u32),
}

/// The reason why an operation failed. The engine writes it into the error CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The message is longer than the service or the local segments allow.
    LocalLength,
    /// The service does not have this operation.
    LocalOperation,
    /// A local key, range or permission does not fit.
    LocalProtection,
    /// The operation was flushed: an earlier operation of the QP failed, or the QP left Rts.
    Flushed,
    /// The response does not answer the request.
    BadResponse,
    /// The responder found the request malformed or not allowed.
    RemoteInvalidRequest,
    /// The responder found that the key, range or permission does not fit.
    RemoteAccess,
    /// The responder could not carry out the request.
    RemoteOperation,
    /// No answer came within the retries that the QP allows.
    RetryExceeded,
    /// The remote QP had no receive WQE within the RNR retries that the QP allows.
    RnrRetryExceeded,
}

impl Failure {
    /// Returns the syndrome byte for the error CQE (PRM "Completion With Error"; `MLX5_CQE_SYNDROME_*` in rdma-core).
    pub const fn syndrome(self) -> u8 {
        match self {
            Self::LocalLength => 0x01,
            Self::LocalOperation => 0x02,
            Self::LocalProtection => 0x04,
            Self::Flushed => 0x05,
            Self::BadResponse => 0x10,
            Self::RemoteInvalidRequest => 0x12,
            Self::RemoteAccess => 0x13,
            Self::RemoteOperation => 0x14,
            Self::RetryExceeded => 0x15,
            Self::RnrRetryExceeded => 0x16,
        }
    }
}

/// The kind of a remote access that is checked before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAccess {
    /// An RDMA WRITE.
    Write,
    /// An RDMA READ.
    Read,
}

/// The end of a message that consumed a receive WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The number of bytes of the message.
    pub bytes: u32,
    /// True if the message was a SEND. Otherwise it was a WRITE with immediate, whose bytes went elsewhere.
    pub send: bool,
    /// The immediate data or the key to invalidate.
    pub with: SendWith,
    /// The solicited event bit of the last packet.
    pub solicited: bool,
    /// The sender, if the message is a datagram.
    pub source: Option<DatagramSource>,
}

/// The sender of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSource {
    /// The number of the sending QP.
    pub qpn: u32,
    /// The address that the datagram was sent from.
    pub address: Ipv4Addr,
    /// The LMC of the sender's port: this many of the last bits of the address are path bits.
    pub lmc: u8,
    /// The path bits of the receiver's LID that the datagram was sent to.
    pub own_path_bits: u8,
    /// The headers of the datagram's packet.
    pub envelope: Envelope,
    /// True if the datagram was sent with a GRH, as in [`Datagram::has_grh`].
    pub has_grh: bool,
}

/// The reason why a receive WQE could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveError {
    /// The queue has no WQE: the requester shall try again later.
    NotReady,
    /// The message is refused for good.
    Refused(NakCode),
}

/// The engine's side, as the wire sees it. `qpn` is always a QP of this device.
///
/// A QP of an unreliable service ([`Service::Uc`], [`Service::Ud`]) has no requester that could get an error. If a method returns an error
/// for such a QP, the wire drops the message and does not call [`Device::responder_failed`]. The engine has done the rest.
pub trait Device {
    /// The data that the engine keeps about a WQE while the wire carries the WQE out.
    type Wqe;

    /// Copies `out.len()` bytes of the WQE's local data (segments or inline), from `offset` on, to `out`.
    ///
    /// Called once for each packet that is sent, also for packets that are sent again.
    ///
    /// # Errors
    /// If a local key or range does not fit. The operation then ends with this failure.
    fn gather(
        &mut self,
        qpn: u32,
        wqe: &Self::Wqe,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), Failure>;

    /// Returns the destination of a WQE's datagram, with its headers; `None` if no HCA can have the address in `to`.
    fn destination(&self, wqe: &Self::Wqe, to: &Datagram) -> Option<Destination>;

    /// Copies `data` to `offset` of the WQE's local segments. The bytes of READ responses come in order, each byte once. An atomic gives
    /// its original value: 8 bytes in the order of the host, or 4 bytes in big-endian order.
    ///
    /// # Errors
    /// If a local key or range does not fit. The operation then ends with this failure.
    fn scatter(
        &mut self,
        qpn: u32,
        wqe: &Self::Wqe,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Failure>;

    /// Reports the end of an operation. Operations of a QP end in the order in which they were handed over. After the first failure of a QP
    /// all its other operations follow as [`Failure::Flushed`].
    fn complete(&mut self, qpn: u32, wqe: Self::Wqe, outcome: Result<(), Failure>);

    /// Checks that the remote QP of `qpn` may do `access` to the `bytes` at `va`. Called once for each message, before its first byte, but
    /// not for messages of 0 bytes.
    ///
    /// # Errors
    /// The code that the responder answers.
    fn check_remote(
        &mut self,
        qpn: u32,
        access: RemoteAccess,
        rkey: u32,
        va: u64,
        bytes: u32,
    ) -> Result<(), NakCode>;

    /// Carries out one packet of an RDMA WRITE. `data` is not empty.
    ///
    /// # Errors
    /// The code that the responder answers: the key may have been removed since the check.
    fn remote_write(&mut self, qpn: u32, rkey: u32, va: u64, data: &[u8]) -> Result<(), NakCode>;

    /// Reads the bytes of one packet of a READ response. `out` is not empty.
    ///
    /// # Errors
    /// The code that the responder answers: the key may have been removed since the check.
    fn remote_read(&mut self, qpn: u32, rkey: u32, va: u64, out: &mut [u8]) -> Result<(), NakCode>;

    /// Carries out an atomic, with all checks. Returns the original value (4-byte operands are in the low half).
    ///
    /// # Errors
    /// The code that the responder answers.
    fn remote_atomic(&mut self, qpn: u32, atomic: &AtomicEth) -> Result<u64, NakCode>;

    /// Returns whether `qpn` takes datagrams that carry this queue key. Called before [`Device::receive_begin`] for each datagram.
    fn accepts_datagram(&mut self, qpn: u32, qkey: u32) -> bool;

    /// Takes the next receive WQE of `qpn`, which stays current until [`Device::receive_done`]. Called for the first packet of a SEND and
    /// for the last packet of a WRITE with immediate. `srqn` is the SRQ that the packet names (XRC). If the last message of the QP broke
    /// off (UC), the call begins the WQE of that message anew.
    ///
    /// # Errors
    /// If the queue has no WQE, or the QP cannot receive. A QP of an unreliable service drops the message in both cases.
    fn receive_begin(&mut self, qpn: u32, srqn: Option<u32>) -> Result<(), ReceiveError>;

    /// Copies one packet of a SEND to `offset` of the current receive WQE. For a datagram, `data` is the payload alone: the engine leaves
    /// room for the 40 bytes of the GRH in front of the payload.
    ///
    /// # Errors
    /// The code that the responder answers, for example because the message is longer than the WQE.
    fn receive_bytes(&mut self, qpn: u32, offset: u64, data: &[u8]) -> Result<(), NakCode>;

    /// Ends the message that holds the current receive WQE: the message is complete.
    ///
    /// # Errors
    /// The code that the responder answers if the key that the message invalidates cannot be invalidated.
    fn receive_done(&mut self, qpn: u32, received: &Received) -> Result<(), NakCode>;

    /// Notes that the requester of `qpn` is about to learn that its operations were carried out. From now on their bytes must be in memory.
    fn answering(&mut self, _qpn: u32) {}

    /// Notes that the responder of `qpn` has refused a request, so that the QP belongs in the error state. The responder goes on to answer
    /// duplicates and to repeat its refusal until the engine disconnects the QP.
    fn responder_failed(&mut self, qpn: u32, code: NakCode);
}

/// The reason why a responder refuses a request for good (AETH syndrome 0x60 plus this number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NakCode(pub u8);

impl NakCode {
    /// A packet is missing. The packet that carries the AETH has the expected PSN.
    pub const PSN_SEQUENCE_ERROR: Self = Self(0);
    /// The request is malformed or not allowed on this QP.
    pub const INVALID_REQUEST: Self = Self(1);
    /// The key, range or permission does not fit.
    pub const REMOTE_ACCESS_ERROR: Self = Self(2);
    /// The responder could not carry out the request.
    pub const REMOTE_OPERATIONAL_ERROR: Self = Self(3);
}

/// The effect of an atomic on its operand. The requester always gets the original value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// A compare-and-swap of 64 bits: the operand becomes `swap` if it equals `compare`.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The value that is stored on a match.
        swap: u64,
    },
    /// A fetch-and-add of 64 bits: `add` is added, modulo 2^64.
    FetchAdd {
        /// The summand.
        add: u64,
    },
    /// A masked compare-and-swap of `bytes` (4 or 8): the bits in `swap_mask` become those of `swap` if the bits in `compare_mask` equal
    /// those of `compare`.
    MaskedCompareSwap {
        /// The operand size: 4 or 8.
        bytes: u8,
        /// The expected value of the bits in `compare_mask`.
        compare: u64,
        /// The value that is stored in the bits in `swap_mask`.
        swap: u64,
        /// The bits that are compared.
        compare_mask: u64,
        /// The bits that are replaced.
        swap_mask: u64,
    },
    /// A masked fetch-and-add of `bytes` (4 or 8): `add` is added, and no carry leaves a bit that is set in `boundary`.
    MaskedFetchAdd {
        /// The operand size: 4 or 8.
        bytes: u8,
        /// The summand.
        add: u64,
        /// The top bit of each field.
        boundary: u64,
    },
}

/// An atomic as its request header has it. That header is the standard AtomicETH (28 bytes) or, for masked operations,
/// [`MaskedAtomicEth`](crate::wire::headers::MaskedAtomicEth).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// The remote virtual address, a multiple of the operand size.
    pub va: u64,
    /// The remote key.
    pub rkey: u32,
    /// The operation on the word at `va`.
    pub op: AtomicOp,
}
