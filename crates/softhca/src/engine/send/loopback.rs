//! Operations between QPs of one process: memory to memory, no packets.
//!
//! The peer may be a QP of another HCA, another QP of this HCA, or the very same QP. Sequence numbers are kept as on the wire, so that a
//! bring-up that got them wrong fails here too. For a peer that would not answer (not ready, missing, asleep) the HCA waits as long as the
//! wire would. For a peer without a receive WQE it tries again as often as the QP's attributes say.

use super::{End, pending};
use crate::device::check::Finding;
use crate::device::memory::{Access, Region, regions};
use crate::device::objects::work::{Current, Local};
use crate::device::objects::{path, qp_state};
use crate::device::state::{Fabric, HcaState};
use crate::engine::local;
use crate::partition;
use crate::transport::{
    Device, Failure, NakCode, OperationKind, ReceiveError, Received, RemoteAccess, SendWith, Target,
};
use crate::wire::headers::rnr_delay_ns;
use crate::wire::psn::Psn;
use crate::wire::timer::patience_ns;
use file_memory::Gone;
use std::borrow::Cow;

/// The number of bytes that are moved before other QPs have their turn.
const CHUNK: u64 = 1 << 20;
/// Pause between two looks at a peer that does not answer.
const SILENCE_STEP_NS: u64 = 100_000;

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Step {
    /// The operation is over.
    Done(Result<(), Failure>),
    /// A part has been moved. The rest follows in the next turn.
    Again,
    /// The operation cannot go on before this time.
    Wait(u64),
}

/// Carries operation `current` of QP `own` a step further.
pub(super) fn step(
    fabric: &mut Fabric,
    own: End,
    peer_hca: usize,
    current: &mut Current,
    now_ns: u64,
) -> Step {
    let reliable = fabric
        .hca(own.hca)
        .and_then(|hca| hca.qps.get(own.qpn))
        .is_some_and(|qp| qp.service.is_reliable());
    let peer = match find_peer(fabric, own, peer_hca, now_ns) {
        Ok(peer) => peer,
        Err(Silence::Asleep) => return Step::Wait(now_ns + SILENCE_STEP_NS),
        Err(_) if !reliable => return lost(fabric, own, current),
        Err(why) => return silence(fabric, own, current, now_ns, why),
    };
    current.silent_since_ns = None;
    let outcome = match current.operation.kind {
        OperationKind::Write {
            va,
            rkey,
            immediate,
        } => write(fabric, own, peer, current, va, rkey, immediate),
        OperationKind::Read { va, rkey } => {
            move_bytes(fabric, own, peer, current, RemoteAccess::Read, va, rkey)
        }
        OperationKind::Atomic(atomic) => {
            let old = remote(fabric, peer, |hca| hca.remote_atomic(peer.qpn, &atomic));
            old.and_then(|old| {
                // A result of 4 bytes is the low half, big-endian. A result of 8 bytes has the order that atomic_req_8B_endianness_mode
                // says.
                let (wide, narrow) = (old.to_ne_bytes(), &old.to_be_bytes()[4..]);
                let bytes = match current.operation.bytes {
                    4 => narrow,
                    _ => wide.as_slice(),
                };
                let segments = current.work.local.segments();
                on(fabric, own.hca, |hca| {
                    Ok(local::scatter(hca, own.qpn, segments, 0, bytes)?)
                })
            })
        }
        OperationKind::Send { with } => send(fabric, own, peer, current, with),
    };
    match outcome {
        Ok(()) => {
            advance(fabric, own, Some(peer), current.operation.bytes);
            Step::Done(Ok(()))
        }
        Err(Stop::Failed(failure)) => Step::Done(Err(failure)),
        Err(Stop::Refused(_) | Stop::NotReady) if !reliable => lost(fabric, own, current),
        Err(Stop::Refused(code)) => {
            if let Some(hca) = fabric.hca(peer.hca) {
                hca.responder_failed(peer.qpn, code);
            }
            Step::Done(Err(failure(code)))
        }
        Err(Stop::Again) => Step::Again,
        Err(Stop::NotReady) => not_ready(fabric, own, peer, current, now_ns),
    }
}

/// The reason why an operation stopped: it is not over yet, or it has failed.
#[derive(Clone, Copy, Debug)]
enum Stop {
    /// The operation failed at its own end.
    Failed(Failure),
    /// The peer refused the operation.
    Refused(NakCode),
    Again,
    NotReady,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The reason why the peer does not answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Silence {
    /// The peer does not exist, or is not connected to this QP.
    Absent,
    /// The peer expects another sequence number.
    Psn { expected: u32, sent: u32 },
    /// The HCA of the peer sleeps because a test has paused it. The operation waits without a limit.
    Asleep,
}

/// Returns the other end, if it exists and expects the next packet.
pub(super) fn find_peer(
    fabric: &mut Fabric,
    own: End,
    peer_hca: usize,
    now_ns: u64,
) -> Result<End, Silence> {
    let hca = fabric.hca(own.hca).ok_or(Silence::Absent)?;
    let qp = hca.qps.get(own.qpn).ok_or(Silence::Absent)?;
    let port = hca.identity.port_of(&qp.qpc);
    if hca.is_down(port.number) {
        return Err(Silence::Absent);
    }
    let pkey = port.pkey(&qp.qpc);
    let own_ip = port.address(qp.path_bits);
    let named = qp.remote;
    let (remote_qpn, sent, service) = (qp.qpc.remote_qpn(), qp.send_psn, qp.service);
    let hca = fabric.hca(peer_hca).ok_or(Silence::Absent)?;
    if hca.paused_until_ns > now_ns {
        return Err(Silence::Asleep);
    }
    let peer = hca.qps.get(remote_qpn).ok_or(Silence::Absent)?;
    let port = hca.identity.port_of(&peer.qpc);
    if hca.is_down(port.number) {
        return Err(Silence::Absent);
    }
    let is_ours = peer.service == service.peer()
        && peer.qpc.remote_qpn() == own.qpn
        && peer.remote == own_ip
        && port.address(peer.path_bits) == named
        && partition::matches(pkey, port.pkey(&peer.qpc))
        && qp_state::receives(peer.state);
    if !is_ours {
        return Err(Silence::Absent);
    }
    let expected = peer.receive_psn;
    // Without acknowledges each message begins the sequence numbers anew.
    if expected != sent && service.is_reliable() {
        return Err(Silence::Psn { expected, sent });
    }
    Ok(End {
        hca: peer_hca,
        qpn: remote_qpn,
    })
}

/// Ends an operation whose unreliable peer does not take the message. The message counts as sent, unless its own memory refuses it.
fn lost(fabric: &mut Fabric, own: End, current: &Current) -> Step {
    let bytes = u64::from(current.operation.bytes);
    let local = &current.work.local;
    match pieces(fabric, own, local, 0, bytes, Access::LOCAL_READ) {
        Err(Stop::Failed(failure)) => return Step::Done(Err(failure)),
        Err(_) => {}
        Ok(found) => {
            if let Some(hca) = fabric.hca(own.hca) {
                hca.pieces = found;
            }
        }
    }
    advance(fabric, own, None, current.operation.bytes);
    Step::Done(Ok(()))
}

/// Handles a peer that does not answer: the operation waits, and fails when the QP's patience is over.
fn silence(
    fabric: &mut Fabric,
    own: End,
    current: &mut Current,
    now_ns: u64,
    why: Silence,
) -> Step {
    let since = *current.silent_since_ns.get_or_insert(now_ns);
    let Some(hca) = fabric.hca(own.hca) else {
        return Step::Done(Err(Failure::RetryExceeded));
    };
    let patience = hca.qps.get(own.qpn).and_then(|qp| {
        let timeout = qp.qpc.primary_address_path().ack_timeout();
        patience_ns(path::byte(timeout), path::byte(qp.qpc.retry_count()))
    });
    if patience.is_none_or(|patience| now_ns.saturating_sub(since) < patience) {
        return Step::Wait(now_ns + SILENCE_STEP_NS);
    }
    if let Silence::Psn { expected, sent } = why {
        let qpn = own.qpn;
        hca.checker.note(Finding::PsnMismatch, qpn, || {
            format!(
                "QP {qpn:#x} gave up: it sends PSN {sent:#x} and its peer expects {expected:#x}; the two ends were not \
                 given the same numbers, or only one of them was reset"
            )
        });
    }
    Step::Done(Err(Failure::RetryExceeded))
}

/// Handles a peer that has no receive WQE: the operation is tried again after the time that the peer asks for, as often as the QP allows.
fn not_ready(fabric: &mut Fabric, own: End, peer: End, current: &mut Current, now_ns: u64) -> Step {
    /// Value of `rnr_retry` that means without limit.
    const FOR_EVER: u32 = 7;
    let timer = fabric
        .hca(peer.hca)
        .and_then(|hca| hca.qps.get(peer.qpn))
        .map_or(0, |qp| qp.qpc.min_rnr_nak());
    let retries = fabric
        .hca(own.hca)
        .and_then(|hca| hca.qps.get(own.qpn))
        .map_or(0, |qp| qp.qpc.rnr_retry());
    if retries != FOR_EVER && current.rnr_count >= retries {
        return Step::Done(Err(Failure::RnrRetryExceeded));
    }
    current.rnr_count += 1;
    Step::Wait(now_ns + rnr_delay_ns(path::byte(timer)))
}

fn write(
    fabric: &mut Fabric,
    own: End,
    peer: End,
    current: &mut Current,
    va: u64,
    rkey: u32,
    immediate: Option<u32>,
) -> Result<(), Stop> {
    move_bytes(fabric, own, peer, current, RemoteAccess::Write, va, rkey)?;
    if let Some(immediate) = immediate {
        receive_begin(fabric, peer, current)?;
        let received = Received {
            bytes: current.operation.bytes,
            send: false,
            with: SendWith::Immediate(immediate),
            solicited: current.operation.solicited,
            source: None,
        };
        remote(fabric, peer, |hca| hca.receive_done(peer.qpn, &received))?;
    }
    Ok(())
}

/// Moves the next chunk of a WRITE or READ.
fn move_bytes(
    fabric: &mut Fabric,
    own: End,
    peer: End,
    current: &mut Current,
    access: RemoteAccess,
    va: u64,
    rkey: u32,
) -> Result<(), Stop> {
    let total = u64::from(current.operation.bytes);
    if current.done == total {
        return Ok(());
    }
    let need = match access {
        RemoteAccess::Write => Access::LOCAL_READ,
        RemoteAccess::Read => Access::LOCAL_WRITE,
    };
    let local = &current.work.local;
    let both = |fabric: &mut Fabric, done: u64, bytes: u64| {
        let near = pieces(fabric, own, local, done, bytes, need)?;
        let far = remote(fabric, peer, |hca| {
            hca.grant_remote(peer.qpn, access, rkey, va.wrapping_add(done), bytes)
        })?;
        Ok::<_, Stop>((near, far))
    };
    if total > CHUNK && current.done == 0 {
        // A long message is checked as a whole before its first byte moves.
        let (near, far) = both(fabric, 0, total)?;
        give_back(fabric, own, near, peer, far);
    }
    let bytes = (total - current.done).min(CHUNK);
    let (near, far) = both(fabric, current.done, bytes)?;
    let data = outside_memory(fabric, own, local, current.done, bytes)?;
    pending::before_access(fabric, peer, access);
    let moved = match (access, data) {
        (RemoteAccess::Write, data) if pending::is_active(fabric, peer) => data
            .map_or_else(|| pending::gathered(&near), |data| Ok(data.into_owned()))
            .and_then(|data| pending::accept(fabric, peer, rkey, &far, data)),
        (RemoteAccess::Write, Some(data)) => regions::write(&far, &data),
        (RemoteAccess::Write, None) => regions::copy(&near, &far),
        (RemoteAccess::Read, _) => regions::copy(&far, &near),
    };
    give_back(fabric, own, near, peer, far);
    if let Err(gone) = moved {
        return Err(refuse_gone(fabric, own, peer, access, rkey, gone));
    }
    match access {
        RemoteAccess::Write => count(fabric, own, peer, bytes),
        RemoteAccess::Read => count(fabric, peer, own, bytes),
    }
    current.done += bytes;
    if current.done < total {
        return Err(Stop::Again);
    }
    Ok(())
}

/// Reports that a page that belongs to one end is gone. The report goes to that end.
fn refuse_gone(
    fabric: &mut Fabric,
    own: End,
    peer: End,
    access: RemoteAccess,
    rkey: u32,
    gone: Gone,
) -> Stop {
    let is_near = match access {
        RemoteAccess::Write => gone == Gone::Source,
        RemoteAccess::Read => gone == Gone::Target,
    };
    let refused = if is_near {
        on(fabric, own.hca, |hca| {
            Err::<(), _>(Stop::Failed(local::refuse_gone(hca, own.qpn, gone)))
        })
    } else {
        remote(fabric, peer, |hca| {
            Err(hca.refuse_gone(peer.qpn, rkey, gone))
        })
    };
    refused
        .err()
        .unwrap_or(Stop::Failed(Failure::LocalProtection))
}

/// Returns the `bytes` bytes from `offset` of local data if some or all of the data is inline; `None` if all of it lies in memory.
fn outside_memory<'a>(
    fabric: &mut Fabric,
    own: End,
    local: &'a Local,
    offset: u64,
    bytes: u64,
) -> Result<Option<Cow<'a, [u8]>>, Stop> {
    match local {
        Local::Nothing | Local::One(_) | Local::Many(_) => Ok(None),
        // Inline data is shorter than a chunk.
        Local::Inline(inline) => Ok(Some(inline.bytes().into())),
        Local::Mixed(_) => {
            let mut data = vec![0; usize::try_from(bytes).map_err(|_| Failure::LocalLength)?];
            on(fabric, own.hca, |hca| {
                Ok(local::gather(hca, own.qpn, local, offset, &mut data)?)
            })?;
            Ok(Some(data.into()))
        }
    }
}

#[inline(never)] // its buffer would be part of every step's stack frame
fn send(
    fabric: &mut Fabric,
    own: End,
    peer: End,
    current: &mut Current,
    with: SendWith,
) -> Result<(), Stop> {
    const PIECE: usize = 1 << 12;
    let total = u64::from(current.operation.bytes);
    if current.done == 0 {
        let local = &current.work.local;
        let found = pieces(fabric, own, local, 0, total, Access::LOCAL_READ)?;
        on(fabric, own.hca, |hca| {
            hca.pieces = found;
            Ok(())
        })?;
        receive_begin(fabric, peer, current)?;
    }
    let stop = total.min(current.done + CHUNK);
    let mut buffer = [0; PIECE];
    while current.done < stop {
        let bytes = usize::try_from(stop - current.done).map_or(PIECE, |left| left.min(PIECE));
        let buffer = &mut buffer[..bytes];
        let bytes = bytes as u64;
        let (local, done) = (&current.work.local, current.done);
        on(fabric, own.hca, |hca| {
            Ok(local::gather(hca, own.qpn, local, done, buffer)?)
        })?;
        remote(fabric, peer, |hca| {
            hca.receive_bytes(peer.qpn, done, buffer)
        })?;
        on(fabric, own.hca, |hca| {
            hca.counters.bytes_sent += bytes;
            Ok(())
        })?;
        current.done += bytes;
    }
    if current.done < total {
        return Err(Stop::Again);
    }
    let received = Received {
        bytes: current.operation.bytes,
        send: true,
        with,
        solicited: current.operation.solicited,
        source: None,
    };
    remote(fabric, peer, |hca| hca.receive_done(peer.qpn, &received))
}

fn receive_begin(fabric: &mut Fabric, peer: End, current: &Current) -> Result<(), Stop> {
    let srqn = match current.operation.to {
        Target::Srq(srqn) => Some(srqn),
        Target::Connected | Target::Datagram(_) => None,
    };
    on(fabric, peer.hca, |hca| {
        hca.receive_begin(peer.qpn, srqn)
            .map_err(|error| match error {
                ReceiveError::NotReady => Stop::NotReady,
                ReceiveError::Refused(code) => Stop::Refused(code),
            })
    })
}

/// Returns the memory of `bytes` bytes from `offset` of the local data. Inline bytes have no memory. The vector is the HCA's scratch.
fn pieces(
    fabric: &mut Fabric,
    own: End,
    data: &Local,
    offset: u64,
    bytes: u64,
    need: Access,
) -> Result<Vec<Region>, Stop> {
    on(fabric, own.hca, |hca| {
        let mut pieces = std::mem::take(&mut hca.pieces);
        pieces.clear();
        let user = local::user(hca, own.qpn);
        local::resolve_data(hca, user, data, offset, bytes, need, &mut pieces)?;
        Ok(pieces)
    })
}

/// Gives the scratch vectors back: `near` came from [`pieces`], `far` from a grant of the peer.
fn give_back(fabric: &mut Fabric, own: End, near: Vec<Region>, peer: End, far: Vec<Region>) {
    if let Some(hca) = fabric.hca(own.hca) {
        hca.pieces = near;
    }
    if let Some(hca) = fabric.hca(peer.hca) {
        hca.granted = far;
    }
}

/// Runs `call` on the peer's HCA.
fn remote<T>(
    fabric: &mut Fabric,
    peer: End,
    call: impl FnOnce(&mut HcaState) -> Result<T, NakCode>,
) -> Result<T, Stop> {
    on(fabric, peer.hca, |hca| call(hca).map_err(Stop::Refused))
}

/// Runs `call` on an HCA. The HCA is there: both ends were found at the start of the step, and the lock is held.
fn on<T>(
    fabric: &mut Fabric,
    hca: usize,
    call: impl FnOnce(&mut HcaState) -> Result<T, Stop>,
) -> Result<T, Stop> {
    match fabric.hca(hca) {
        Some(hca) => call(hca),
        None => Err(Stop::Failed(Failure::RetryExceeded)),
    }
}

fn failure(code: NakCode) -> Failure {
    match code {
        NakCode::INVALID_REQUEST => Failure::RemoteInvalidRequest,
        NakCode::REMOTE_ACCESS_ERROR => Failure::RemoteAccess,
        _ => Failure::RemoteOperation,
    }
}

fn count(fabric: &mut Fabric, from: End, to: End, bytes: u64) {
    if let Some(hca) = fabric.hca(from.hca) {
        hca.counters.bytes_sent += bytes;
    }
    if let Some(hca) = fabric.hca(to.hca) {
        hca.counters.bytes_received += bytes;
        hca.news = true;
    }
}

/// Moves the sequence numbers of both ends on by the packets that the operation would have been. Without `peer` only the sender counts: a
/// UC receiver goes by the numbers that it sees.
fn advance(fabric: &mut Fabric, own: End, peer: Option<End>, bytes: u32) {
    let Some(qp) = fabric.hca(own.hca).and_then(|hca| hca.qps.get_mut(own.qpn)) else {
        return;
    };
    let packets = bytes.div_ceil(path::mtu_bytes(&qp.qpc)).max(1);
    qp.send_psn = Psn::new(qp.send_psn).add(packets).value();
    let next = qp.send_psn;
    if let Some(peer) = peer
        && let Some(qp) = fabric
            .hca(peer.hca)
            .and_then(|hca| hca.qps.get_mut(peer.qpn))
    {
        qp.receive_psn = next;
    }
}
