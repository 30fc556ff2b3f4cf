//! The boundary between the engine, which knows objects and memory, and the wire, which knows packets.
//!
//! The engine decodes a WQE into an [`Operation`] and hands it to the wire. With it goes the engine's `Wqe`, which the wire gives
//! back at completion. The wire reaches back through [`Device`]. It fetches the bytes of the WQE's local segments, reports
//! completions, and carries out what a remote QP asks. A loopback inside the process uses the same two: it takes the bytes from one
//! `Device` and gives them to another.
//!
//! Nothing here blocks; all calls come from the engine thread that owns the device.

use crate::envelope::{Destination, Envelope};
use std::net::Ipv4Addr;

/// The transport service of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection: no answers, no retries. What cannot be carried out is dropped.
    Uc,
    /// Unreliable datagram: single packets of at most the MTU, each with its own destination.
    Ud,
    /// The sending half of an extended reliable connection: requests name an SRQ of the peer.
    XrcInitiator,
    /// The receiving half of an extended reliable connection: has no receive queue of its own.
    XrcTarget,
}

impl Service {
    /// Requests are answered, and sent again until they are.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcInitiator | Self::XrcTarget)
    }

    /// The service of the other end.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::XrcInitiator => Self::XrcTarget,
            Self::XrcTarget => Self::XrcInitiator,
            same => same,
        }
    }
}

/// What a send WQE asks of the remote QP, in the wire's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The QP that shall do it.
    pub to: Target,
    /// What to do and where.
    pub kind: OperationKind,
    /// Message length in bytes, at most 2^31; 8 or 4 for atomics.
    pub bytes: u32,
    /// Solicited event bit of the WQE.
    pub solicited: bool,
    /// The operation starts only when all READs and atomics before it on this QP have completed.
    pub fence: bool,
}

/// The target of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The peer of the connection.
    Connected,
    /// The peer of an XRC connection; receive WQEs come from this SRQ of its XRC domain. The packets carry an XRCETH.
    Srq(u32),
    /// A target that each WQE names (UD). The packets carry a DETH.
    Datagram(Datagram),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// GID of the HCA; on `InfiniBand` `::ffff:a.b.c.d` for its IPv4 address.
    pub gid: [u8; 16],
    /// The receiver gets the header with the GIDs: always with `RoCE`, on `InfiniBand` if the sender used a GRH.
    pub has_grh: bool,
    /// QP of that HCA.
    pub qpn: u32,
    /// Queue key that the DETH carries.
    pub qkey: u32,
    /// IP time to live.
    pub hop_limit: u8,
    /// IP type of service.
    pub traffic_class: u8,
    /// Path bits of the LID that it leaves from.
    pub path_bits: u8,
}

/// The kinds of operation. A UC QP knows writes and SENDs, a UD QP only SENDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// RDMA WRITE to `va`; with `immediate` it consumes a receive WQE of the remote QP.
    Write {
        /// Remote virtual address.
        va: u64,
        /// Remote key.
        rkey: u32,
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// RDMA READ from `va` into the local segments.
    Read {
        /// Remote virtual address.
        va: u64,
        /// Remote key.
        rkey: u32,
    },
    /// Atomic; the original value goes to the local segment as [`Device::scatter`] describes.
    Atomic(AtomicEth),
    /// SEND: the bytes go to a receive WQE of the peer.
    Send {
        /// What comes with the message.
        with: SendWith,
    },
}

/// What a SEND carries besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendWith {
    /// Its bytes alone.
    Nothing,
    /// Immediate data.
    Immediate(u32),
    /// A remote key that the receiver shall invalidate.
    Invalidate(u32),
}

/// Why an operation failed. The engine writes it into the error CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The message is longer than the service or the local segments allow.
    LocalLength,
    /// The service does not have this operation.
    LocalOperation,
    /// A local key, range or permission does not fit.
    LocalProtection,
    /// Flushed: an earlier operation of the QP failed, or the QP left Rts.
    Flushed,
    /// A response that does not answer the request.
    BadResponse,
    /// The responder found the request malformed or not allowed.
    RemoteInvalidRequest,
    /// The responder found that key, range or permission do not fit.
    RemoteAccess,
    /// The responder could not carry out the request.
    RemoteOperation,
    /// No answer within the retries that the QP allows.
    RetryExceeded,
    /// The remote QP had no receive WQE within the RNR retries that the QP allows.
    RnrRetryExceeded,
}

impl Failure {
    /// Returns the syndrome byte of the error CQE (PRM "Completion With Error"; `MLX5_CQE_SYNDROME_*` in rdma-core).
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

/// A remote access that is checked before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAccess {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
}

/// How a message that consumed a receive WQE ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the message.
    pub bytes: u32,
    /// A SEND; otherwise a WRITE with immediate, whose bytes went elsewhere.
    pub send: bool,
    /// Immediate data or a key to invalidate.
    pub with: SendWith,
    /// Solicited event bit of the last packet.
    pub solicited: bool,
    /// The sender, if it is a datagram.
    pub source: Option<DatagramSource>,
}

/// The sender of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramSource {
    /// Its QP.
    pub qpn: u32,
    /// The address that it has sent from.
    pub address: Ipv4Addr,
    /// LMC of its port: so many of the last bits of the address are path bits.
    pub lmc: u8,
    /// Path bits of the LID that it has sent to.
    pub own_path_bits: u8,
    /// The headers that its packet came with.
    pub envelope: Envelope,
    /// As in [`Datagram::has_grh`].
    pub has_grh: bool,
}

/// Why a receive WQE could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveError {
    /// The queue has none: the requester shall try again later.
    NotReady,
    /// Refused for good.
    Refused(NakCode),
}

/// The engine's side, as the wire sees it. `qpn` is always a QP of this device.
///
/// A QP of an unreliable service ([`Service::Uc`], [`Service::Ud`]) has no requester that could get an error. Where a method
/// returns one, the wire drops the message, without [`Device::responder_failed`]; the engine has done the rest.
pub trait Device {
    /// What the engine remembers of a WQE while the wire carries it out.
    type Wqe;

    /// Copies `out.len()` bytes from `offset` of the WQE's local data (segments or inline) to `out`.
    ///
    /// Called once per packet sent, also for packets that are sent again.
    ///
    /// # Errors
    /// A local key or range does not fit: the operation ends with this failure.
    fn gather(
        &mut self,
        qpn: u32,
        wqe: &Self::Wqe,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), Failure>;

    /// Where the datagram of a WQE goes, and in which headers; `None` if no HCA can have that address.
    fn destination(&self, wqe: &Self::Wqe, to: &Datagram) -> Option<Destination>;

    /// Copies `data` to `offset` of the WQE's local segments. READ responses come in order, each byte once. An atomic gives its
    /// original value: 8 bytes in the order of the host, or 4 big-endian.
    ///
    /// # Errors
    /// A local key or range does not fit: the operation ends with this failure.
    fn scatter(
        &mut self,
        qpn: u32,
        wqe: &Self::Wqe,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Failure>;

    /// An operation is over. Operations of a QP end in the order in which they were handed over. After the first failure
    /// of a QP all others follow as [`Failure::Flushed`].
    fn complete(&mut self, qpn: u32, wqe: Self::Wqe, outcome: Result<(), Failure>);

    /// May the remote QP of `qpn` do `access` to the `bytes` at `va`? Asked once, before the first byte of a message;
    /// not asked for messages of 0 bytes.
    ///
    /// # Errors
    /// What the responder answers.
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
    /// What the responder answers: the key may have gone since the check.
    fn remote_write(&mut self, qpn: u32, rkey: u32, va: u64, data: &[u8]) -> Result<(), NakCode>;

    /// Reads for one packet of a READ response. `out` is not empty.
    ///
    /// # Errors
    /// What the responder answers: the key may have gone since the check.
    fn remote_read(&mut self, qpn: u32, rkey: u32, va: u64, out: &mut [u8]) -> Result<(), NakCode>;

    /// Carries out an atomic, with all checks; returns the original value (of 4-byte operands in the low half).
    ///
    /// # Errors
    /// What the responder answers.
    fn remote_atomic(&mut self, qpn: u32, atomic: &AtomicEth) -> Result<u64, NakCode>;

    /// Does `qpn` take datagrams that carry this queue key? Asked before [`Device::receive_begin`] for each datagram.
    fn accepts_datagram(&mut self, qpn: u32, qkey: u32) -> bool;

    /// Takes the next receive WQE of `qpn`; it stays current until [`Device::receive_done`]. Called for the first packet of
    /// a SEND and for the last of a WRITE with immediate. `srqn` is the SRQ that the packet names (XRC). A QP whose last
    /// message broke off (UC) begins the WQE of that message anew.
    ///
    /// # Errors
    /// The queue has none, or the QP cannot receive. A QP of an unreliable service drops the message in either case.
    fn receive_begin(&mut self, qpn: u32, srqn: Option<u32>) -> Result<(), ReceiveError>;

    /// Copies one packet of a SEND to `offset` of the current receive WQE. Of a datagram `data` is the payload alone: the
    /// engine leaves room for the 40 bytes of the GRH in front of it.
    ///
    /// # Errors
    /// What the responder answers, for example that the message is longer than the WQE.
    fn receive_bytes(&mut self, qpn: u32, offset: u64, data: &[u8]) -> Result<(), NakCode>;

    /// The message that holds the current receive WQE is complete.
    ///
    /// # Errors
    /// What the responder answers: the key that the message invalidates cannot be.
    fn receive_done(&mut self, qpn: u32, received: &Received) -> Result<(), NakCode>;

    /// The requester of `qpn` is about to learn that its operations were carried out: they are in memory from now on.
    fn answering(&mut self, _qpn: u32) {}

    /// The responder of `qpn` has refused a request: the QP belongs in the error state. It goes on to answer
    /// duplicates and to repeat its refusal until the engine disconnects it.
    fn responder_failed(&mut self, qpn: u32, code: NakCode);
}

/// Why a responder refuses a request for good (AETH syndrome 0x60 plus this number).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NakCode(pub u8);

impl NakCode {
    /// A packet is missing; the AETH's packet carries the expected PSN.
    pub const PSN_SEQUENCE_ERROR: Self = Self(0);
    /// The request is malformed or not allowed on this QP.
    pub const INVALID_REQUEST: Self = Self(1);
    /// Key, range or permission do not fit.
    pub const REMOTE_ACCESS_ERROR: Self = Self(2);
    /// The responder could not carry out the request.
    pub const REMOTE_OPERATIONAL_ERROR: Self = Self(3);
}

/// What an atomic does to its operand. The original value always comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// 64 bits: becomes `swap` if it equals `compare`.
    CompareSwap {
        /// Value expected.
        compare: u64,
        /// Value stored on a match.
        swap: u64,
    },
    /// 64 bits: `add` is added, modulo 2^64.
    FetchAdd {
        /// Summand.
        add: u64,
    },
    /// `bytes` (4 or 8): bits in `swap_mask` become `swap`'s if bits in `compare_mask` equal `compare`'s.
    MaskedCompareSwap {
        /// Operand size: 4 or 8.
        bytes: u8,
        /// Value expected, where masked.
        compare: u64,
        /// Value stored, where masked.
        swap: u64,
        /// Bits that are compared.
        compare_mask: u64,
        /// Bits that are replaced.
        swap_mask: u64,
    },
    /// `bytes` (4 or 8): `add` is added; no carry leaves a bit that is set in `boundary`.
    MaskedFetchAdd {
        /// Operand size: 4 or 8.
        bytes: u8,
        /// Summand.
        add: u64,
        /// Top bit of each field.
        boundary: u64,
    },
}

/// An atomic as its request header has it: the standard AtomicETH (28 bytes) or, for masked operations,
/// [`MaskedAtomicEth`](crate::wire::headers::MaskedAtomicEth).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Remote virtual address, a multiple of the operand size.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// The operation on that word.
    pub op: AtomicOp,
}
